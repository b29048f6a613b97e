"""Tools that come in another order, with other keys first, or not always."""

from promptgroup_cli.lint import tooling
from support.lints import STATIC, chat, found, report, tool

A, B, C = tool("a"), tool("b"), tool("c")


def with_tools(*tools, system=STATIC, line=1):
    return chat(system, line=line, tools=list(tools))


def rules(*subjects):
    return [rule for rule, *_ in found(*subjects)]


def test_the_same_tools_always_are_fine():
    assert rules(with_tools(A, B), with_tools(A, B), chat(STATIC)) == []


def test_another_order_is_an_error_where_it_is_first_seen():
    (finding,) = report(with_tools(A, B), with_tools(A, B), with_tools(B, A, line=7)).findings
    assert (finding.rule.id, finding.severity.name, finding.place.line, finding.requests) == (
        "tools-order",
        "ERROR",
        7,
        3,
    )


def test_keys_in_another_order():
    swapped = {"function": A["function"], "type": "function"}
    assert rules(with_tools(A, B), with_tools(swapped, B)) == ["tools-key-order"]


def test_other_sets_of_tools_for_one_prompt():
    (finding,) = report(with_tools(A, B), with_tools(A), with_tools(A, B, C)).findings
    assert (finding.rule.id, finding.message) == ("tools-vary", "one system text with different sets of tools (3 sets)")


def test_another_prompt_or_model_has_tools_of_its_own():
    other = chat(STATIC, tools=[B, A], model="n")
    assert rules(with_tools(A, B), with_tools(B, A, system=STATIC + " And more."), other) == []


def test_ever_new_prompts_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(tooling, "TRACKED", 8)
    seen = tooling.Tooling()
    for number in range(50):
        seen.see(with_tools(A, system=str(number)))
    assert len(seen._by_text) == 8
