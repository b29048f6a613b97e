import orjson
import pytest

from promptgroup_contract.messages import canonical_messages
from promptgroup_router.apis.anthropic import parse_messages
from promptgroup_router.apis.conversation import first_bytes, first_messages
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.responses import parse_response

SAID = [("user", "Hi"), ("assistant", "Grüße")]
WANTED = canonical_messages(SAID)
LISTED = [{"role": role, "content": text} for role, text in SAID]


def chat(*messages):
    return parse(ApiKind.CHAT, orjson.dumps({"model": "m", "messages": messages}))


def claude(*messages, **fields):
    return parse_messages(orjson.dumps({"model": "m", "messages": messages} | fields))


def response(given, **fields):
    return parse_response(orjson.dumps({"model": "m", "input": given} | fields))


PARTS = [
    {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": "Grüße", "tool_calls": None, "refusal": None},
]
ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Grüße", "annotations": []}],
    },
]
SYSTEM = {"role": "system", "content": "Sys"}


@pytest.mark.parametrize(
    "ask",
    [
        chat(*LISTED),
        chat(SYSTEM, *LISTED, {"role": "user", "content": "And?"}),
        chat({"role": "developer", "content": "Sys"}, *PARTS),
        claude(*LISTED, system="Sys"),
        claude(*PARTS),
        response(LISTED),
        response([SYSTEM, *ITEMS]),
        response(ITEMS, instructions="Sys"),
    ],
)
def test_the_first_messages_are_the_same_in_every_api(ask):
    assert first_messages(ask, 2) == WANTED
    assert first_bytes(ask, 2) == len("HiGrüße".encode())
    assert first_messages(ask, 1) == canonical_messages(SAID[:1])


@pytest.mark.parametrize(
    "ask",
    [
        chat(LISTED[0]),
        chat(SYSTEM, LISTED[0]),
        chat(LISTED[0], SYSTEM),
        chat(LISTED[0], {"role": "tool", "content": "Grüße"}),
        chat({"role": "user", "content": "Hi", "name": "Eve"}, LISTED[1]),
        chat(LISTED[0], {"role": "assistant", "content": "Grüße", "tool_calls": [{"id": "1"}]}),
        chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}, LISTED[1]),
        chat({"role": "user", "content": None}, LISTED[1]),
        chat({"role": "user", "content": ["Hi"]}, LISTED[1]),
        claude(LISTED[0], {"role": "assistant", "content": [{"type": "thinking", "thinking": "Grüße"}]}),
        response("Hi"),
        response([LISTED[0], {"type": "function_call", "name": "f", "arguments": "{}"}, LISTED[1]]),
    ],
)
def test_messages_that_hold_more_than_texts_are_none(ask):
    assert first_messages(ask, 2) is None
    assert first_bytes(ask, 2) == 0


def test_parts_are_joined_as_chat_templates_join_them():
    ask = chat({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})
    assert first_messages(ask, 1) == canonical_messages([("user", "a\nb")])
