"""Who shares what: the table of prefixes, where requests part, and that the tree stays small."""

import pytest

from promptgroup_cli.lint import prefixes
from promptgroup_contract.fingerprint import fingerprint, short
from support.lints import STATIC, chat, found, report, tool

OTHER = "Summaries are what you are here for: a reader hands you a report and has two minutes to learn what is in it."


def table(*subjects):
    return [(each.length, each.requests, each.prompts, each.offset) for each in report(*subjects).prefixes]


def test_requests_with_one_prompt_share_it_whole():
    (row,) = report(*[chat(STATIC)] * 3, chat("")).prefixes
    assert (row.hash, row.length, row.requests, row.share, row.prompts) == (
        short(fingerprint(STATIC)), len(STATIC), 3, 0.75, 1,
    )  # fmt: skip


def test_tools_belong_to_the_prefix():
    look, see = tool("look", why=OTHER), tool("look", why=OTHER + " So see.")
    (row,) = report(*[chat(STATIC, tools=[look])] * 2).prefixes
    assert row.hash == short(fingerprint(STATIC, [look]))
    (row,) = report(chat(STATIC, tools=[look]), chat(STATIC, tools=[see])).prefixes
    assert (row.field, row.prompts, row.length) == ("tools", 2, row.offset)


def test_prompts_that_begin_alike_are_listed_with_where_they_part():
    assert table(*[chat(f"{STATIC} A: {OTHER}")] * 2, *[chat(f"{STATIC} B: {OTHER}")] * 3) == [
        (len(STATIC) + 1, 5, 2, len(STATIC) + 1),
        (len(STATIC) + 4 + len(OTHER), 3, 1, len(STATIC) + 4 + len(OTHER)),
        (len(STATIC) + 4 + len(OTHER), 2, 1, len(STATIC) + 4 + len(OTHER)),
    ]


def test_models_share_nothing():
    assert table(chat(STATIC), chat(STATIC, model="n")) == []


def test_less_than_a_block_is_no_prefix():
    assert table(*[chat("Be kind.")] * 2) == []


def test_what_less_than_a_hundredth_shares_is_not_listed():
    assert [row[1] for row in table(*[chat(STATIC)] * 200, *[chat(OTHER)] * 2)] == [200]
    assert [row[1] for row in table(*[chat(STATIC)] * 198, *[chat(OTHER)] * 2)] == [198, 2]


def names(text, count=20):
    return [chat(text.format("abcdefghijklmnopqrstuvwxyz"[i] * 5 + str(i))) for i in range(count)]


def test_prompts_that_are_all_different_behind_a_common_start_part_there():
    text = STATIC + " The customer is called {}. " + OTHER
    assert found(*names(text)) == [("prefix-parts", "error", "system", len(STATIC) + 24)]


@pytest.mark.parametrize("count", [9])
def test_of_few_requests_nothing_is_said(count):
    assert found(*names(STATIC + " The customer is called {}.", count)) == []


def test_several_prompts_with_a_common_start_are_fine():
    several = [chat(f"{STATIC} {letter} {OTHER}") for letter in "ABC" for _ in range(10)]
    assert found(*several) == []


@pytest.mark.parametrize("endings", [("", ""), ("One.", "Two.")])
def test_ways_that_are_a_block_long_are_prompts_of_their_own(endings):
    assert found(*(chat(f"{STATIC} {letter} {OTHER} {end}") for letter in "ABCDE" for end in endings)) == []


def test_requests_that_share_nothing():
    assert [rule for rule, *_ in found(*names("{} " + STATIC))] == ["low-sharing"]


def test_a_third_that_shares_is_enough():
    assert found(*names("{} " + STATIC, 12), *[chat(OTHER)] * 8) == []


def test_ever_new_prompts_take_no_more_memory_and_the_heavy_ones_stay(monkeypatch):
    monkeypatch.setattr(prefixes, "NODES", 64)
    seen = prefixes.Prefixes(16)
    for number in range(1000):
        seen.see(chat(OTHER if number % 4 else f"{STATIC} {number} {OTHER}"))
        assert seen._nodes <= 64
        assert seen._nodes == sum(1 for root in seen._roots.values() for _ in prefixes._walk(root)) - 1
    (heavy, light) = seen.table()[:2]
    assert (heavy.requests, heavy.length, light.requests, light.length) == (750, len(OTHER), 250, len(STATIC) + 1)
    assert light.prompts == 250


def test_long_prompts_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(prefixes, "BYTES", 10_000)
    seen = prefixes.Prefixes(16)
    for number in range(50):
        seen.see(chat(f"{number} {'x' * 4000}"))
        assert seen._bytes <= 10_000
        assert seen._bytes == sum(len(node.edge) for root in seen._roots.values() for node, _ in prefixes._walk(root))
