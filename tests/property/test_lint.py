"""Lint over any prompt: clean ones have no finding, a volatile token is found wherever it is put."""

import datetime as dt
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.lint.prefixes import Prefixes, _walk
from promptgroup_local.load.prompts import TASKS, system_prompt
from support.lints import chat, declared, found, text

PROMPTS = st.builds(system_prompt, st.sampled_from(TASKS), st.integers(1, 1000))
MOMENTS = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2090, 1, 1))  # noqa: DTZ001
HEX = st.text("0123456789abcdef", min_size=16, max_size=64).filter(
    lambda each: not each.isdigit() and not each.isalpha()
)
TOKENS = st.one_of(
    st.tuples(st.just("uuid"), st.uuids().map(str)),
    st.tuples(st.just("timestamp"), MOMENTS.map(lambda each: each.isoformat(timespec="seconds") + "Z")),
    st.tuples(st.just("timestamp"), st.integers(1_600_000_000, 1_999_999_999).map(str)),
    st.tuples(st.just("date"), MOMENTS.map(lambda each: each.strftime("%Y-%m-%d"))),
    st.tuples(st.just("date"), MOMENTS.map(lambda each: each.strftime("%d %B %Y"))),
    st.tuples(st.just("time"), MOMENTS.map(lambda each: each.strftime("%H:%M:%S"))),
    st.tuples(st.just("random-id"), HEX),
    st.tuples(st.just("named-id"), st.integers(10, 10**9).map(lambda each: f"session id: {each}")),
    st.tuples(st.just("counter"), st.integers(1, 10**6).map(lambda each: f"request #{each}")),
    st.tuples(st.just("current-date"), MOMENTS.map(lambda each: each.strftime("Today is %A, %d %B %Y"))),
    st.tuples(st.just("template-hole"), st.sampled_from(["{{now}}", "${USER}", "%(name)s", "{user_id}"])),
)


@given(PROMPTS)
def test_a_clean_prompt_has_no_finding(prompt):
    assert found(declared(prompt)) == []


@pytest.mark.heavy
@given(PROMPTS, TOKENS, st.data(), st.sampled_from(["", "Größe: "]))
def test_a_token_is_found_at_its_byte_wherever_it_stands(prompt, token, data, front):
    rule, written = token
    words = (front + prompt).split(" ")
    at = data.draw(st.integers(0, len(words)))
    before = "".join(word + " " for word in words[:at])
    subject = declared(before + written + " " + " ".join(words[at:]))
    assert [(name, offset) for name, _, _, offset in found(subject)] == [(rule, len(before.encode()))]


@given(st.text())
def test_any_text_is_linted_without_an_error(any_text):
    found(declared(any_text), declared(any_text, tools=any_text), text(any_text), chat(any_text, any_text))


@given(st.lists(st.text("ab", max_size=12), max_size=30), st.integers(0, 10**6))
def test_the_tree_counts_every_prefix_right_in_any_order(prompts, seed):
    shuffled = prompts.copy()
    random.Random(seed).shuffle(shuffled)
    trees = [Prefixes(1), Prefixes(1)]
    for tree, order in zip(trees, (prompts, shuffled), strict=True):
        for each in order:
            tree.see(chat(each or ""))
    shapes = [
        sorted((prefix, node.count, node.ends) for root in tree._roots.values() for node, prefix in _walk(root))
        for tree in trees
    ]
    assert shapes[0] == shapes[1]
    for prefix, count, ends in shapes[0]:
        tail = prefix.removeprefix(b"\0").decode()
        assert count == sum(each.startswith(tail) for each in prompts)
        assert ends == (prompts.count(tail) if prefix else 0)
