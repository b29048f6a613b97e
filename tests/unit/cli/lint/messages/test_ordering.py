"""Examples that are shuffled, and histories that lose their beginning."""

import itertools

import pytest

from promptgroup_cli.lint.messages import ordering
from support.lints import STATIC, chat, found, report

EXAMPLES = (("Is this spam: win", "yes"), ("Is this spam: hi", "no"), ("Is this spam: hello", "no"))


def asked(order, question):
    return chat(STATIC, *itertools.chain.from_iterable(EXAMPLES[i] for i in order), question)


def rules(*subjects):
    return [rule for rule, *_ in found(*subjects) if rule in ("messages-order", "history-cut")]


def test_examples_in_another_order_are_an_error():
    orders = list(itertools.permutations(range(3)))
    subjects = [asked(order, f"Is this spam: number {n}") for n, order in enumerate(orders)]
    (told,) = [each for each in report(*subjects).findings if each.rule.id == "messages-order"]
    assert (told.severity.name, told.requests) == ("ERROR", 5)
    assert told.message == "the same messages in another order than in log:1"


def test_examples_in_one_order_and_conversations_that_go_on_are_fine():
    same = [asked(range(3), f"Is this spam: number {n}") for n in range(9)]
    turns = [("Hi", "Hello", "A?", "B.", "C?", "D.", "E?")[:length] for length in (1, 3, 5, 7)]
    assert rules(*same, *(chat(STATIC, *each) for each in turns)) == []


def test_the_same_messages_under_another_prompt_are_others():
    assert rules(asked((0, 1, 2), "x"), chat("Another prompt", *EXAMPLES[1], *EXAMPLES[0], *EXAMPLES[2], "x")) == []


def test_a_history_that_loses_its_beginning_is_told():
    turns = [f"{who} {number}" for number in range(9) for who in ("Question", "Answer")]
    windows = [chat(STATIC, *turns[max(0, end - 7) : end]) for end in (3, 5, 7, 9, 11, 13)]
    told = [each for each in report(*windows).findings if each.rule.id == "history-cut"]
    assert [(each.severity.name, each.requests) for each in told] == [("WARNING", 3)]


@pytest.mark.parametrize("said", [("Hi",), ("Hi", "Hello", "Yes")])
def test_short_conversations_say_nothing(said):
    assert rules(chat(STATIC, *said), chat(STATIC, *reversed(said))) == []


def test_ever_new_messages_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(ordering, "TRACKED", 8)
    seen = ordering.Ordering()
    for number in range(50):
        seen.see(chat(STATIC, *(f"{number} {i}" for i in range(9))))
    assert (len(seen._orders), len(seen._pairs)) == (8, 8)
