import orjson
import pytest

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.features.resumed_stream.stream_text import StreamText, WholeUsage
from support.tokenstream import DONE, data_of, event

OPENING = event(
    {
        "id": "a",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}],
        "prompt_token_ids": [1, 2],
    }
)


def part(text, *ids, **fields):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, "token_ids": ids}
    return event({"id": "a", "choices": [choice], **fields})


def rest(text, *ids, **fields):
    choice = {"index": 0, "text": text, "finish_reason": None, "token_ids": ids, "prompt_token_ids": [1, 2, 3]}
    return event({"id": "b", "created": 2, "model": "n", "object": "text_completion", "choices": [choice], **fields})


def test_ids_are_null_for_who_did_not_ask_and_all_else_stays():
    text = StreamText(ApiKind.CHAT, shows_ids=False)
    said = 'a "token_ids":[9] and \\"token_ids\\":[9]'
    told = text.feed(OPENING + part(said, 3, 4) + b": ping\n\n" + DONE)
    assert told == (OPENING + part(said, 3, 4) + b": ping\n\n" + DONE).replace(b'ids":[1,2]', b'ids":null').replace(
        b'ids":[3,4]', b'ids":null'
    )
    assert data_of(told)[1]["choices"][0]["delta"]["content"] == said
    asked = StreamText(ApiKind.CHAT, shows_ids=True)
    assert asked.feed(OPENING + part(said, 3, 4)) == OPENING + part(said, 3, 4)


def test_the_rest_looks_as_if_the_first_engine_had_gone_on():
    text = StreamText(ApiKind.CHAT, shows_ids=False)
    text.feed(OPENING + part("x", 3))
    text.go_on()
    (told,) = data_of(text.feed(rest("y", 4, usage={"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4})))
    assert (told["id"], told["created"], told["model"], told["object"]) == ("a", 1, "m", "chat.completion.chunk")
    assert told["choices"] == [{"index": 0, "finish_reason": None, "token_ids": None, "delta": {"content": "y"}}]
    assert told["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert text.tokens.ids() == b"1,2,3,4"
    assert text.feed(DONE) == DONE


@pytest.mark.parametrize(
    "data",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        b"event: x\ndata: 1\n\n",
        event({"choices": {}}),
        event({"choices": [7]}),
        event({"choices": [{"delta": 3, "text": 4, "token_ids": {}}]}),
        event({"choices": [{"delta": {"content": ["a"]}, "token_ids": [1]}]}),
    ],
)
@pytest.mark.parametrize("goes_on", [False, True])
def test_what_cannot_be_read_passes_and_breaks_nothing(data, goes_on):
    text = StreamText(ApiKind.CHAT, shows_ids=False)
    text.feed(OPENING + part("x", 3))
    if goes_on:
        text.go_on()
    assert text.feed(data)


def test_a_part_of_an_event_ends_the_keeping():
    text = StreamText(ApiKind.CHAT, shows_ids=False)
    text.feed(OPENING + part("x", 3))
    text.feed(b"data: {")
    assert not text.whole
    assert not text.tokens.complete


def test_usage_counts_the_clients_own_prompt_and_all_tokens():
    text = StreamText(ApiKind.CHAT, shows_ids=False)
    tail = WholeUsage(Tail(), text)
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 6}}
    data = b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\n"
    tail.add(data)
    assert tail.usage() == Usage(7, 6, 5)
    text.feed(OPENING + part("x", 3))
    text.go_on()
    tail.go_on()
    assert tail.usage() is None
    tail.add(data)
    assert tail.usage() == Usage(2, 2, 6)
