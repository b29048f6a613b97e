import json

import pytest

from promptgroup_router.apis.anthropic import parse_messages
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.features.prompt_digest import MOST_MESSAGES, PromptDigest, PromptDigests, digest, first_change

TOOLS = [{"name": "look", "input_schema": {"type": "object"}}]
TURNS = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "3"}]


def message(turns=TURNS, **fields):
    body = {"model": "llama", "max_tokens": 9, "system": "Be brief.", "tools": TOOLS, "messages": turns} | fields
    return digest(parse_messages(json.dumps(body).encode()))


CHANGES = {
    "nothing": ({}, None),
    "a turn more": ({"turns": [*TURNS, {"role": "assistant", "content": "4"}, {"role": "user", "content": "5"}]}, None),
    "where the cache ends": (
        {"turns": [*TURNS[:2], {"role": "user", "content": "3", "cache_control": {"type": "ephemeral"}}]}, None,
    ),
    "the model": ({"model": "other"}, ("model", None)),
    "the tools": ({"tools": [TOOLS[0] | {"name": "hear"}]}, ("tools", None)),
    "the system text": ({"system": "Be brief. Today is Monday."}, ("system", None)),
    "the first message": ({"turns": [{"role": "user", "content": "ONE"}, *TURNS[1:]]}, ("messages", 0)),
    "an answer": ({"turns": [TURNS[0], {"role": "assistant", "content": "TWO"}, TURNS[2]]}, ("messages", 1)),
    "a message that is gone": ({"turns": TURNS[:1]}, ("messages", 1)),
    "several": ({"model": "other", "system": "x", "turns": TURNS[:1]}, ("model", None)),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_the_first_change_is_found(case):
    fields, expected = CHANGES[case]
    found = first_change(message(), message(**fields))
    assert (found and (found.what, found.message)) == expected


def test_what_is_lost_is_behind_the_change_and_the_rest_is_kept():
    before = message()
    changes = [
        first_change(before, message(**CHANGES[case][0]))
        for case in ("the model", "the system text", "the first message", "an answer")
    ]
    assert [each.lost + each.same for each in changes] == [before.sizes[-1]] * 4
    assert [each.same for each in changes] == sorted(each.same for each in changes)


def test_a_system_message_is_no_turn():
    def chat(*messages):
        return digest(parse(ApiKind.CHAT, json.dumps({"model": "m", "messages": messages}).encode()))

    system, user = {"role": "system", "content": "a"}, {"role": "user", "content": "b"}
    found = first_change(chat(system, user), chat(system, user | {"content": "c"}))
    assert (found.what, found.message) == ("messages", 0)
    assert first_change(chat(system, user), chat(system | {"content": "c"}, user)).what == "system"


def test_endless_conversations_are_compared_as_far_as_it_goes():
    turns = [{"role": "user", "content": str(each)} for each in range(MOST_MESSAGES + 5)]
    assert len(message(turns).messages) == MOST_MESSAGES
    assert first_change(message(turns), message([*turns, TURNS[0]])) is None


def test_the_record_is_bounded_and_somebody_elses_answers_are_unknown():
    known = PromptDigests(limit=2)
    for number in range(3):
        known.put("chat", f"msg_{number}", message())
    assert [known.get("chat", f"msg_{number}") is not None for number in range(3)] == [False, True, True]
    assert known.get("other", "msg_2") is None


def test_long_prompts_are_remembered_in_less_number():
    known = PromptDigests(limit=10, most_messages=7)
    long = PromptDigest(1, 1, 1, (1, 2, 3), (0, 0, 1, 2, 3))
    for answer in ("a", "b", "b", "c"):
        known.put("me", answer, long)
    assert [known.get("me", answer) is not None for answer in "abc"] == [False, True, True]
    known.put("me", "d", long._replace(messages=(1,)))
    assert known.get("me", "b") is not None
