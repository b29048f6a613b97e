import json
import time

import orjson
import pytest

from promptgroup_router.apis.usage import (
    MOST_PARSED,
    MOST_TOKENS,
    MOST_WAITING,
    MessagesTail,
    NoUsage,
    ResponsesTail,
    Tail,
    Usage,
)

USAGE = {"prompt_tokens": 467, "total_tokens": 470, "prompt_tokens_details": {"cached_tokens": 464}}
FORGED = {
    "usage": {
        **dict.fromkeys(("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"), 0),
        "prompt_tokens_details": {"cached_tokens": 0},
    }
}
WHOLE = orjson.dumps({"choices": [], "usage": USAGE})
STREAM = (
    b'data: {"choices":[{"delta":{"content":"x"}}],"usage":null}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens": 467, "prompt_tokens_details": {"cached_tokens": 464}}}\n\n'
    b"data: [DONE]\n\n"
)


def read(tail, *pieces: bytes) -> Usage | None:
    for piece in pieces:
        tail.add(piece)
    return tail.usage()


def usage(*pieces: bytes) -> Usage | None:
    return read(Tail(), *pieces)


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def event(doc: object) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(doc)


@pytest.mark.parametrize("before", [0, 1, MOST_WAITING, 2 * MOST_PARSED])
@pytest.mark.parametrize("size", [1, 7, 1448, 65536])
def test_usage_is_found_however_long_the_answer_and_its_parts(before, size):
    size = max(size, before // 2000)
    whole = orjson.dumps({"choices": ["x" * before], "usage": USAGE})
    stream = event({"choices": ["x" * before]}) + STREAM
    for body in (whole, stream, b"\r\n" + whole, stream.replace(b"\n", b"\r\n")):
        assert usage(*cut(body, size)) == Usage(467, 464)


def test_an_engine_that_does_not_report_cached_tokens():
    assert usage(b'{"usage":{"prompt_tokens":5,"prompt_tokens_details":null}}') == Usage(5, None)


def test_the_answers_length_is_read_wherever_it_stands():
    details = '"completion_tokens_details":{"reasoning_tokens":4,"completion_tokens":7}'
    for inner, expected in (
        (f'"completion_tokens":9,{details},"prompt_tokens":5', 9),
        (f'"prompt_tokens":5,{details},"completion_tokens": 9', 9),
        (f'"prompt_tokens":5,{details}', 0),
    ):
        assert usage(f'{{"usage":{{{inner}}}}}'.encode()) == Usage(5, None, expected)


@pytest.mark.parametrize("number", ["1.5", "1e3", '"5"', "true", "-1", str(MOST_TOKENS), "null", "[5]"])
def test_what_is_no_number_of_tokens_is_no_count(number):
    assert usage(f'{{"usage":{{"prompt_tokens":{number}}}}}'.encode()) is None
    inner = f'{{"prompt_tokens":5,"prompt_tokens_details":{{"cached_tokens":{number}}}}}'
    assert usage(f'{{"usage":{inner}}}'.encode()) == Usage(5, None)


@pytest.mark.parametrize("body", [WHOLE, STREAM, WHOLE.replace(b":", b" : \t ")], ids=["whole", "stream", "blanks"])
def test_an_answer_may_be_cut_anywhere(body):
    for at in range(len(body)):
        tail = Tail()
        found = read(tail, body[:at])
        assert found is None or found.prompt_tokens == 467
        assert read(tail, body[at:]) == Usage(467, 464)


def test_the_last_event_that_tells_counts():
    told = [event({"usage": {"prompt_tokens": number}}) for number in (1, 2)]
    assert usage(*told, event({"usage": None}), event({"usage": {}}), b": usage\n\n") == Usage(2, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\n\n",
        b"[]",
        b'"usage"',
        b'data: {"usage":null}\n\ndata: [DONE]\n\n',
        rb'{"content":"{\"usage\": {\"prompt_tokens\": 5}}"}',
        b'[{"usage":{"prompt_tokens":5}}]',
        b'data: [{"usage":{"prompt_tokens":5}}]\n\n',
        b': {"usage":{"prompt_tokens":5}}\n\n',
        b'event: {"usage":{"prompt_tokens":5}}\n\n',
        b': {"x":"' + b"x" * 2 * MOST_PARSED + b'","usage":{"prompt_tokens":5}}\n\n',
    ],
)
def test_no_usage(body):
    assert usage(body) is None
    assert usage(*cut(body, 1 + len(body) // 900)) is None


def test_of_two_members_with_one_name_the_last_one_counts():
    first, last = b'"usage":{"prompt_tokens":1}', b'"usage":{"prompt_tokens":2}'
    filler = b'"x":"' + b"x" * MOST_PARSED + b'",'
    for between in (b"", filler):
        assert usage(b"{%b,%b%b}" % (first, between, last)) == Usage(2, None)
        assert usage(b'{%b,%b"usage":null}' % (first, between)) is None


# --- what clients write ---------------------------------------------------------------------------------------

ECHOES = {
    "metadata": FORGED,
    "tools": [{"type": "function", "parameters": {"properties": FORGED}}],
    "instructions": '"usage":{"prompt_tokens":0,"input_tokens":0}}',
    "input": [{"role": "user", "content": json.dumps(FORGED), **FORGED}],
    "response_format": {"schema": FORGED | {"response": FORGED, "message": FORGED}},
    "user": 'x"},"usage":{"prompt_tokens":0,"input_tokens":0,"output_tokens":0}',
    'metadata\\": {': FORGED,
}
COUNTS = {"prompt_tokens": 40, "completion_tokens": 3, "input_tokens": 40, "output_tokens": 3}
KINDS = {
    "chat": (Tail, lambda doc: doc, lambda doc: [doc]),
    "responses": (ResponsesTail, lambda doc: doc, lambda doc: [{"type": "x"}, {"type": "y", "response": doc} | FORGED]),
    "messages": (
        MessagesTail,
        lambda doc: doc,
        lambda doc: [{"message": doc}, {"content_block": {"input": FORGED}}, {"usage": {"output_tokens": 3}}],
    ),
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("filler", [0, MOST_PARSED])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_writes_is_never_counted(kind, echo, behind, filler, chunked):
    tail, whole, events = KINDS[kind]
    says, counts = {echo: ECHOES[echo], "filler": "x" * filler}, {"usage": COUNTS}
    doc = counts | says if behind else says | counts
    for body in (orjson.dumps(whole(doc)), b"".join(map(event, events(doc))) + b"data: [DONE]\n\n"):
        reader, pieces = tail(), cut(body, 1 + len(body) // 50)
        if chunked:
            reader.in_chunks()
            pieces = cut(b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces), 1 + len(body) // 47)
        assert read(reader, *pieces) == Usage(40, None, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_tells_nothing_itself_has_no_usage(kind):
    tail, whole, events = KINDS[kind]
    for body in (
        orjson.dumps(whole(ECHOES)),
        b"".join(map(event, events(ECHOES)))[: -40 if kind == "messages" else None],
    ):
        assert read(tail(), body) is None


# --- the other APIs -------------------------------------------------------------------------------------------


def test_a_responses_input_and_output_are_counted():
    told = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2, "total_tokens": 11}
    whole = {"usage": told, "user": "x" * 10 * MOST_PARSED}
    assert read(ResponsesTail(), orjson.dumps(whole)) == Usage(9, 4, 2)
    begun = event({"type": "response.created", "response": {"usage": None}})
    assert read(ResponsesTail(), begun) is None
    ended = event({"type": "response.completed", "response": whole})
    assert read(ResponsesTail(), begun, *cut(ended, 4096), b"data: [DONE]\n\n") == Usage(9, 4, 2)


def test_a_messages_prompt_is_what_was_read_and_written_and_the_rest():
    told = {"input_tokens": 2, "output_tokens": 5, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 60}
    assert read(MessagesTail(), orjson.dumps({"usage": told})) == Usage(92, 60, 5)
    assert read(MessagesTail(), b'{"usage":{"input_tokens":2,"output_tokens":5}}') == Usage(2, None, 5)


@pytest.mark.parametrize("between", [0, 1, 3 * MOST_WAITING])
def test_a_messages_first_event_may_count_its_input(between):
    start = event({"message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 1}}})
    end = event({"usage": {"output_tokens": 5}})
    body = start + event({"delta": "x" * between}) + end
    assert read(MessagesTail(), body) == Usage(10, 3, 5)
    assert read(MessagesTail(), *cut(body, 1 + between // 900)) == Usage(10, 3, 5)
    later = event({"usage": {"input_tokens": 8, "output_tokens": 5}})
    assert read(MessagesTail(), start, later) == Usage(8, None, 5)


def test_without_a_count_of_its_input_a_message_has_no_usage():
    assert read(MessagesTail(), b'{"type":"message"}') is None
    assert read(MessagesTail(), b'{"usage":{"output_tokens":5}}') is None


def test_an_answer_that_is_not_counted():
    assert read(NoUsage(), WHOLE) is None


# --- cost -----------------------------------------------------------------------------------------------------


def test_little_is_kept():
    for begin in (b'{"a":"', b'data: {"a":"', b": ", b"x"):
        tail = Tail()
        tail.add(begin)
        for _ in range(1000):
            tail.add(b"x" * 1000)
        tail._read()
        held = len(tail._rest) + sum(len(each._held) for each in (tail._document, tail._line) if each is not None)
        assert held <= MOST_PARSED


def test_a_malformed_chunk_ends_nothing():
    tail = Tail()
    tail.in_chunks()
    assert read(tail, b"zz\r\n", WHOLE) is None


def test_a_long_line_takes_linear_time():
    def seconds(size: int) -> float:
        pieces = cut(b'data: {"a":"' + b"x" * size + b'","usage":{"prompt_tokens":5}}\n\n', 1448)
        best = 1e9
        for _ in range(3):
            began = time.process_time()
            assert usage(*pieces) == Usage(5, None)
            best = min(best, time.process_time() - began)
        return best

    assert seconds(1 << 20) < 24 * seconds(1 << 17)
