import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from promptgroup_contract.fingerprint import fingerprint, hash_prefix
from promptgroup_contract.table import Prompt
from promptgroup_operator.api.prompt_group import MAX_MESSAGES, MAX_PROMPT, PromptSpec
from promptgroup_operator.plan.prompt import awaits_sibling, conflict, references, resolve
from promptgroup_operator.world.snapshot import Problem, PromptText, Sibling
from support.builders import FINGERPRINT, NOW, TEXT, group, spec

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"b": 1, "a": 2}}}]


def prompt(**fields):
    return spec(prompt=fields).prompt


def key_of(kind, name="texts", key="system"):
    return {f"{kind}KeyRef": {"name": name, "key": key}}


CONFIG = prompt(systemFrom=key_of("configMap"))
SECRET = prompt(systemFrom=key_of("secret"))
TOOLS_FROM = prompt(system=TEXT, toolsFrom=key_of("configMap", "tools", "tools.json"))


def test_an_inline_prompt_is_the_text_as_written():
    assert resolve(prompt(system=TEXT), {}) == PromptText(Prompt(TEXT), FINGERPRINT, secret=False)


def test_inline_tools_are_part_of_the_prefix_in_their_canonical_form():
    found = resolve(prompt(system=TEXT, tools=TOOLS), {})
    assert isinstance(found, PromptText)
    assert found.fingerprint == fingerprint(TEXT, TOOLS) != FINGERPRINT
    assert found.prompt.tools == '[{"function":{"name":"look","parameters":{"a":2,"b":1}},"type":"function"}]'


def test_no_tools_and_an_empty_list_of_tools_are_one_prompt():
    assert resolve(prompt(system=TEXT, tools=[]), {}) == resolve(prompt(system=TEXT), {})


@pytest.mark.parametrize(("declared", "kind", "secret"), [(CONFIG, "ConfigMap", False), (SECRET, "Secret", True)])
def test_a_referenced_text_is_the_same_prompt_and_knows_whether_it_is_secret(declared, kind, secret):
    assert resolve(declared, {(kind, "texts"): {"system": TEXT}}) == PromptText(Prompt(TEXT), FINGERPRINT, secret)


def test_tools_from_a_secret_make_the_whole_prompt_secret():
    declared = prompt(system=TEXT, toolsFrom=key_of("secret", "tools", "tools.json"))
    found = resolve(declared, {("Secret", "tools"): {"tools.json": json.dumps(TOOLS)}})
    assert found == PromptText(Prompt(TEXT, found.prompt.tools), fingerprint(TEXT, TOOLS), secret=True)


def test_tools_by_reference_and_inline_are_one_prompt():
    referenced = resolve(TOOLS_FROM, {("ConfigMap", "tools"): {"tools.json": json.dumps(TOOLS, indent=2)}})
    assert referenced == resolve(prompt(system=TEXT, tools=TOOLS), {})


PROBLEMS = {
    "a missing ConfigMap is waited for by name": (
        CONFIG,
        {("ConfigMap", "texts"): None},
        ("PromptNotFound", "ConfigMap texts (spec.prompt.systemFrom) does not exist"),
    ),
    "a missing Secret is waited for by name": (
        SECRET,
        {},
        ("PromptNotFound", "Secret texts (spec.prompt.systemFrom) does not exist"),
    ),
    "a missing key is waited for by name": (
        CONFIG,
        {("ConfigMap", "texts"): {"other": TEXT}},
        (
            "PromptNotFound",
            "key system of ConfigMap texts (spec.prompt.systemFrom) does not exist in that object",
        ),
    ),
    "an empty text is refused": (
        CONFIG,
        {("ConfigMap", "texts"): {"system": ""}},
        (
            "EmptyPrompt",
            "key system of ConfigMap texts (spec.prompt.systemFrom) is empty: write the system prompt there",
        ),
    ),
    "a text of blanks alone is refused": (
        CONFIG,
        {("ConfigMap", "texts"): {"system": " \n\t\u00a0"}},
        (
            "EmptyPrompt",
            (
                "key system of ConfigMap texts (spec.prompt.systemFrom) has nothing but blanks: write the system "
                "prompt there"
            ),
        ),
    ),
    "blanks alone are refused inline": (
        PromptSpec(system=" \n"),
        {},
        ("EmptyPrompt", "spec.prompt.system has nothing but blanks: write the system prompt there"),
    ),
    "missing tools are waited for under their own reason": (
        TOOLS_FROM,
        {},
        ("ToolsNotFound", "ConfigMap tools (spec.prompt.toolsFrom) does not exist"),
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_is_missing(case):
    declared, values, expected = PROBLEMS[case]
    assert resolve(declared, values) == Problem(*expected)


BAD_TOOLS = {
    "not JSON": ("{", "is not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
    "empty": ("", "is not JSON: Expecting value at line 1 column 1"),
    "no list": ("{}", "is not a JSON list of tool definitions"),
    "a list of something else": ("[1]", "is not a JSON list of tool definitions"),
    "not a number": ('[{"a": NaN}]', "holds a number or a character that JSON does not allow"),
    "infinity by overflow": ('[{"a": 1e999}]', "holds a number or a character that JSON does not allow"),
    "a number of too many digits": (f'[{{"a": {"1" * 5000}}}]', "holds a number or a character that JSON"),
    "half a surrogate pair": (r'[{"a": "\ud800"}]', "holds a number or a character that JSON does not allow"),
    "nested too deeply": ("[" * 200_000, "is nested too deeply to be read"),
    "nested more deeply than in a spec": (
        '[{"a":' + "[" * 64 + "]" * 64 + "}]",
        "is nested too deeply to be read",
    ),
}


@pytest.mark.parametrize("case", BAD_TOOLS)
def test_bad_tools_are_a_problem_that_says_where_and_never_a_crash(case):
    text, message = BAD_TOOLS[case]
    found = resolve(TOOLS_FROM, {("ConfigMap", "tools"): {"tools.json": text}})
    assert isinstance(found, Problem)
    assert found.reason == "InvalidTools"
    assert found.message.startswith(f"key tools.json of ConfigMap tools (spec.prompt.toolsFrom) {message}")


SAID = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]
MESSAGES_FROM = prompt(system=TEXT, messagesFrom=key_of("secret", "said", "messages.json"))


def test_messages_are_part_of_the_prefix_inline_and_by_reference():
    inline = resolve(prompt(system=TEXT, messages=SAID), {})
    assert isinstance(inline, PromptText)
    assert inline.prompt.messages == '[{"content":"Where?","role":"user"},{"content":"Here.","role":"assistant"}]'
    assert inline.fingerprint == hash_prefix("", TEXT.encode(), inline.prompt.messages) != FINGERPRINT
    found = resolve(MESSAGES_FROM, {("Secret", "said"): {"messages.json": json.dumps(SAID, indent=2)}})
    assert found == replace(inline, secret=True)
    assert references(MESSAGES_FROM) == [("Secret", "said")]
    assert resolve(prompt(system=TEXT, messages=[]), {}) == resolve(prompt(system=TEXT), {})


def test_missing_messages_are_waited_for():
    at = "Secret said (spec.prompt.messagesFrom)"
    assert resolve(MESSAGES_FROM, {}) == Problem("MessagesNotFound", f"{at} does not exist")


BAD_MESSAGES = {
    "not JSON": "{",
    "no list": "{}",
    "empty": "[]",
    "a list of something else": "[1]",
    "another role": '[{"role":"system","content":"x"},{"role":"assistant","content":"y"}]',
    "a field more": '[{"role":"user","content":"x","name":"a"},{"role":"assistant","content":"y"}]',
    "no text": '[{"role":"user","content":""},{"role":"assistant","content":"y"}]',
    "half a pair": '[{"role":"user","content":"x"}]',
    "not in turn": '[{"role":"assistant","content":"x"},{"role":"user","content":"y"}]',
    "too many": json.dumps(SAID * (MAX_MESSAGES // 2 + 1)),
    "half a surrogate pair": r'[{"role":"user","content":"\ud800"},{"role":"assistant","content":"y"}]',
    "nested too deeply": "[" * 200_000,
}


@pytest.mark.parametrize("case", BAD_MESSAGES)
def test_bad_messages_are_a_problem_that_says_where(case):
    found = resolve(MESSAGES_FROM, {("Secret", "said"): {"messages.json": BAD_MESSAGES[case]}})
    assert isinstance(found, Problem)
    assert found.reason == "InvalidMessages"
    assert found.message.startswith("key messages.json of Secret said (spec.prompt.messagesFrom) ")


def test_a_pin_that_holds_changes_nothing():
    assert resolve(prompt(system=TEXT, fingerprint=FINGERPRINT), {}) == resolve(prompt(system=TEXT), {})


def test_a_pin_that_does_not_hold_is_refused_with_both_hashes():
    found = resolve(prompt(system=TEXT, fingerprint="0" * 32), {})
    assert isinstance(found, Problem)
    assert found.reason == "FingerprintMismatch"
    assert FINGERPRINT in found.message
    assert "0" * 32 in found.message


def test_no_message_quotes_the_text():
    secret = "the launch code is 12345"
    declared = prompt(systemFrom=key_of("secret"), toolsFrom=key_of("secret", "texts", "tools"), fingerprint="0" * 32)
    for tools in ("", secret, f'["{secret}"]', f'[{{"{secret}": NaN}}]', "[]"):
        found = resolve(declared, {("Secret", "texts"): {"system": secret, "tools": tools}})
        assert isinstance(found, Problem)
        assert secret not in found.message


def test_references_names_each_object_once():
    declared = prompt(systemFrom=key_of("configMap"), toolsFrom=key_of("configMap", key="tools"))
    assert references(declared) == [("ConfigMap", "texts")]
    assert references(prompt(systemFrom=key_of("secret"), toolsFrom=key_of("configMap"))) == [
        ("ConfigMap", "texts"),
        ("Secret", "texts"),
    ]
    assert references(prompt(system=TEXT)) == []
    assert references(prompt(systemFrom={})) == []


EARLIER, SAME, LATER = "2026-11-03T10:00:00Z", "2026-11-03T11:00:00Z", "2026-11-03T12:00:00Z"

SIBLINGS = {
    "no other group is no conflict": ([], None),
    "an older one with the same prompt keeps it": ([Sibling("old", EARLIER, FINGERPRINT)], "old"),
    "an older one with another prompt is no conflict": ([Sibling("old", EARLIER, "0" * 32)], None),
    "a younger one is no conflict": ([Sibling("new", LATER, FINGERPRINT)], None),
    "of one age the first by name keeps it": ([Sibling("alpha", SAME, FINGERPRINT)], "alpha"),
    "of one age a later name is no conflict": ([Sibling("zulu", SAME, FINGERPRINT)], None),
    "of several older ones the oldest is named": (
        [Sibling("b", "2026-11-03T10:30:00Z", FINGERPRINT), Sibling("c", EARLIER, FINGERPRINT)],
        "c",
    ),
}


@pytest.mark.parametrize("case", SIBLINGS)
def test_conflict(case):
    siblings, keeper = SIBLINGS[case]
    found = conflict(group(name="mine"), FINGERPRINT, siblings)
    if keeper is None:
        assert found is None
    else:
        assert found.reason == "Conflict"
        assert f"PromptGroup {keeper} is older" in found.message


def test_the_size_of_a_prompt_is_counted_in_bytes():
    assert isinstance(resolve(PromptSpec(system="x" * MAX_PROMPT), {}), PromptText)
    found = resolve(PromptSpec(system="é" * (MAX_PROMPT // 2 + 1)), {})
    assert isinstance(found, Problem)
    assert (found.reason, "é" in found.message) == ("PromptTooLarge", False)


def test_the_group_that_is_replaced_is_no_conflict():
    mine = replace(group(name="mine"), replaces="old")
    assert conflict(mine, FINGERPRINT, [Sibling("old", EARLIER, FINGERPRINT)]) is None
    others = [Sibling("old", EARLIER, FINGERPRINT), Sibling("older", EARLIER, FINGERPRINT)]
    assert "PromptGroup older is older" in conflict(mine, FINGERPRINT, others).message


NEW = Sibling("alpha", SAME, "", observed=False)
AWAITED = {
    "an older one that no pass has seen": (NEW, 0, True),
    "one that a pass has seen": (replace(NEW, observed=True), 0, False),
    "a younger one": (replace(NEW, name="zulu"), 0, False),
    "one that no pass looks at": (NEW, 61, False),
    "one whose time cannot be read": (replace(NEW, created="0"), 0, True),
}


@pytest.mark.parametrize("case", AWAITED)
def test_a_new_group_waits_for_the_fingerprint_of_an_older_one_that_was_created_with_it(case):
    sibling, seconds, expected = AWAITED[case]
    now = datetime.fromisoformat(SAME) + timedelta(seconds=seconds)
    assert awaits_sibling(group(name="mine"), [sibling], now) is expected


def test_of_two_groups_that_are_created_together_exactly_one_goes_first():
    pairs = [("a", "b"), ("b", "a")]
    first = [awaits_sibling(group(name=mine), [replace(NEW, name=other)], NOW) for mine, other in pairs]
    assert first == [False, False] or sorted(first) == [False, True]


def test_a_group_that_was_created_while_no_operator_worked_waits_from_the_first_pass_on():
    sibling = replace(NEW, name="a", created="2020-01-01T00:00:00Z")
    waits = {
        seconds: awaits_sibling(group(name="b"), [sibling], NOW + timedelta(seconds=seconds), NOW)
        for seconds in (0, 59, 60)
    }
    assert waits == {0: True, 59: True, 60: False}
