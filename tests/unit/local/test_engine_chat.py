import pytest

from promptgroup_local.engine.chat import TemplateError, plain, render
from promptgroup_local.engine.tokenizer import Special, detokenize

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {}}}


def test_tools_come_first_then_messages_in_order_then_the_generation_prompt() -> None:
    prompt = render([SYSTEM, USER, {"role": "assistant", "content": "Hi"}, USER], [{"b": 1, "a": 2}])
    assert detokenize(prompt.tokens) == (
        '<|begin|><|tools|>[{"b":1,"a":2}]<|end|><|system|>Be brief.<|end|><|user|>Hello<|end|>'
        "<|assistant|>Hi<|end|><|user|>Hello<|end|><|assistant|>"
    )


def test_tier1_is_the_tools_and_the_leading_system_text() -> None:
    prompt = render([SYSTEM, USER], [TOOL])
    assert detokenize(prompt.tokens[: prompt.tier1]).endswith("<|system|>Be brief.<|end|>")
    assert render([USER], [TOOL]).tier1 < prompt.tier1
    assert render([USER, SYSTEM]).tier1 == 0
    assert plain("Hello").tier1 == 0


def test_requests_of_one_task_share_exactly_their_tier1_and_the_next_marker() -> None:
    one, two = render([SYSTEM, USER], [TOOL]), render([SYSTEM, {"role": "user", "content": "Bye"}], [TOOL])
    assert one.tier1 == two.tier1
    assert one.tokens[: one.tier1 + 1] == two.tokens[: one.tier1 + 1]
    assert one.tokens[one.tier1 + 1] != two.tokens[one.tier1 + 1]


def test_a_turn_is_a_prefix_of_the_next_turn() -> None:
    first = render([SYSTEM, USER])
    second = render([SYSTEM, USER, {"role": "assistant", "content": "Hi"}, USER])
    assert second.tokens[: len(first.tokens)] == first.tokens


def test_text_parts_are_joined_and_tool_calls_are_part_of_the_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render([{"role": "user", "content": parts}]) == render([{"role": "user", "content": "a\nb"}])
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    assert '[{"id":"1"}]' in detokenize(render([call]).tokens)
    assert render([USER], generation_prompt=False).tokens[-1] == Special.END


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("hi", r"messages\[0\] is a str"),
        ({"content": "x"}, r"messages\[0\]\.role is None"),
        ({"role": "robot", "content": "x"}, "'robot', expected one of system"),
        ({"role": "user", "content": 3}, r"messages\[0\]\.content is a int"),
        ({"role": "user", "content": [{"type": "image_url"}]}, r"messages\[0\]\.content\[0\] is no text part"),
    ],
)
def test_a_message_that_cannot_be_rendered_is_named(message: object, names: str) -> None:
    with pytest.raises(TemplateError, match=names):
        render([message])
