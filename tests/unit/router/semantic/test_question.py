"""The question of a request, and what it was asked in."""

import pytest

from promptgroup_router.semantic.question import MOST_CHARACTERS, read_question
from support.asks import MESSAGES, asked

SYSTEM = {"role": "system", "content": "Help."}


def chat(*messages, **fields):
    return asked({"model": "llama", "messages": list(messages), **fields})


def user(content):
    return {"role": "user", "content": content}


def test_the_question_is_the_last_message_of_the_user():
    text, rest = read_question(chat(SYSTEM, user("Hi"), {"role": "assistant", "content": "Hello"}, user("Why?")))
    assert text == "Why?"
    assert [message["content"] for message in rest.doc["messages"]] == ["Help.", "Hi", "Hello", None]


def test_the_request_itself_stays_what_it_was():
    ask = chat(SYSTEM, user("Why?"))
    read_question(ask)
    assert ask.doc["messages"][-1]["content"] == "Why?"


def test_parts_of_text_are_one_question():
    assert read_question(chat(user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])))[0] == "a\nb"


@pytest.mark.parametrize(
    "ask",
    [
        chat(SYSTEM),
        chat(user("Hi"), {"role": "assistant", "content": "Hello"}),
        chat(user("")),
        chat(user(" \n")),
        chat(user("x" * (MOST_CHARACTERS + 1))),
        chat(user(None)),
        chat(user([{"type": "text", "text": 7}])),
        chat(user("Hi"), tools=[{"type": "function", "function": {"name": "f"}}]),
        chat(user("Hi"), functions=[{"name": "f"}]),
        chat({"role": "tool", "content": "42", "tool_call_id": "1"}, user("Hi")),
        chat({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, user("Hi")),
        chat(user([{"type": "tool_result", "content": "42"}]), user("Hi")),
    ],
)
def test_there_is_none_with_tools_or_without_a_short_text_of_a_user(ask):
    assert read_question(ask) is None


def test_prompts_that_are_no_conversations_have_none():
    assert read_question(asked({"model": "llama", "prompt": "Hi"}, b"/v1/completions")) is None


def test_messages_of_anthropic_have_one():
    ask = asked({"model": "llama", "max_tokens": 5, "system": "Help.", "messages": [user("Why?")]}, MESSAGES)
    assert read_question(ask)[0] == "Why?"
