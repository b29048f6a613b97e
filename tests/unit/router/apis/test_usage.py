import pytest

from promptgroup_router.apis.usage import HEAD_BYTES, TAIL_BYTES, MessagesTail, NoUsage, ResponsesTail, Tail, Usage

WHOLE = b'{"choices":[],"usage":{"prompt_tokens":467,"total_tokens":470,"prompt_tokens_details":{"cached_tokens":464}}}'
STREAM = (
    b'data: {"choices":[{"delta":{"content":"x"}}],"usage":null}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens": 467, "prompt_tokens_details": {"cached_tokens": 464}}}\n\n'
    b"data: [DONE]\n\n"
)


def usage(*pieces: bytes, scans: bool = False) -> Usage | None:
    tail = Tail()
    tail.scans = scans
    for piece in pieces:
        tail.add(piece)
    return tail.usage()


@pytest.mark.parametrize("body", [WHOLE, STREAM])
@pytest.mark.parametrize("before", [0, 1, TAIL_BYTES, 10 * TAIL_BYTES])
def test_usage_at_the_end_is_found_however_long_the_answer(body, before):
    assert usage(b"x" * before + body) == Usage(467, 464)
    assert usage(*[bytes((byte,)) for byte in b"x" * min(before, 100) + body]) == Usage(467, 464)


def test_an_engine_that_does_not_report_cached_tokens():
    assert usage(b'"usage":{"prompt_tokens":5,"prompt_tokens_details":null}') == Usage(5, None)


def test_the_answers_length_is_read_wherever_it_stands():
    details = b'"completion_tokens_details":{"reasoning_tokens":4}'
    assert usage(b'"usage":{"completion_tokens":9,' + details + b',"prompt_tokens":5}') == Usage(5, None, 9)
    assert usage(b'"usage":{"prompt_tokens":5,' + details + b',"completion_tokens": 9}') == Usage(5, None, 9)
    assert usage(b'"usage":{"prompt_tokens":5,' + details + b"}") == Usage(5, None, 0)


@pytest.mark.parametrize("number", [b"1.5", b"1e3", b"12\r\n5\r\n34", b"9" * 9])
def test_a_part_of_a_number_is_no_count(number):
    assert usage(b'"usage":{"prompt_tokens":' + number + b"}") is None
    assert usage(b'"usage":{"prompt_tokens":5,"details":{"cached_tokens":' + number + b"}}") == Usage(5, None)


@pytest.mark.parametrize("body", [WHOLE, STREAM, WHOLE.replace(b":", b": \t ")], ids=["whole", "stream", "blanks"])
def test_an_answer_may_be_cut_anywhere(body):
    for at in range(len(body)):
        found = usage(body[:at])
        assert found is None or found.prompt_tokens == 467


def test_the_last_usage_counts():
    assert usage(b'"usage":{"prompt_tokens":1}', b'"usage":{"prompt_tokens":2}') == Usage(2, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'data: {"usage":null}\n\ndata: [DONE]\n\n',
        rb'{"content":"{\"usage\": {\"prompt_tokens\": 5}}"}',
        b'{"usage":{"prompt_tokens":"5"}}',
        WHOLE + b"x" * TAIL_BYTES,
    ],
)
def test_no_usage(body):
    assert usage(body) is None


@pytest.mark.parametrize("size", [TAIL_BYTES - 10, TAIL_BYTES + 1, 3 * TAIL_BYTES, 10 * TAIL_BYTES])
@pytest.mark.parametrize("read", [1, 1448, 65536])
def test_what_a_client_chooses_hides_no_usage_behind_which_it_stands(size, read):
    body = b'{"output":"' + b"y" * 3000 + b'",' + WHOLE[14:-1] + b',"user":"' + b"x" * size + b'"}\n\n'
    pieces = [body[at : at + read] for at in range(0, len(body), read)]
    assert usage(*pieces, scans=True) == usage(*pieces, b"data: [DONE]\n\n", scans=True) == Usage(467, 464)


def test_little_is_kept():
    tail = Tail()
    for _ in range(1000):
        tail.add(b"x" * 1000)
    assert len(b"".join(tail._parts)) <= 2 * TAIL_BYTES


def read(tail, *pieces: bytes) -> Usage | None:
    for piece in pieces:
        tail.add(piece)
    return tail.usage()


def test_a_responses_input_and_output_are_counted():
    body = b'"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":2,"total_tokens":11}'
    assert read(ResponsesTail(), body) == Usage(9, 4, 2)
    assert read(ResponsesTail(), b'"usage":null') is None
    assert read(ResponsesTail(), body, b',"user":"' + b"x" * 10 * TAIL_BYTES, b'"}}\n\n') == Usage(9, 4, 2)


def test_a_messages_prompt_is_what_was_read_and_written_and_the_rest():
    body = b'"usage":{"input_tokens":2,"output_tokens":5,"cache_creation_input_tokens":30,"cache_read_input_tokens":60}'
    assert read(MessagesTail(), body) == Usage(92, 60, 5)
    assert read(MessagesTail(), b'"usage":{"input_tokens":2,"output_tokens":5}') == Usage(2, None, 5)


@pytest.mark.parametrize("between", [0, 1, HEAD_BYTES, 3 * TAIL_BYTES])
def test_a_messages_first_event_may_count_its_input(between):
    start, end = b'"usage":{"input_tokens":7,"cache_read_input_tokens":3}', b'"usage":{"output_tokens":5}'
    assert read(MessagesTail(), start, b"x" * between, end) == Usage(10, 3, 5)
    assert read(MessagesTail(), *[bytes((byte,)) for byte in start + end]) == Usage(10, 3, 5)


def test_without_a_count_of_its_input_a_message_has_no_usage():
    assert read(MessagesTail(), b'{"type":"message"}') is None
    assert read(MessagesTail(), b'"usage":{"output_tokens":5}') is None


def test_an_answer_that_is_not_counted():
    assert read(NoUsage(), WHOLE) is None
