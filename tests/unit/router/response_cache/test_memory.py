"""Answers in memory, within bounds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.response_cache.memory import Memory
from support.asks import answer


def test_an_answer_is_kept_until_it_is_removed():
    memory = Memory(10**6)
    memory.put(answer(1), 10**6)
    assert memory.get("chat/support", answer(1).key) == answer(1)
    assert memory.get("chat/other", answer(1).key) is None
    assert memory.remove_if(lambda _: True) == 1
    assert memory.bytes == 0


def test_a_newer_answer_takes_the_place_of_an_older_one():
    memory = Memory(10**6)
    memory.put(answer(1), 10**6)
    memory.put(answer(1, 2000), 10**6)
    assert memory.bytes == 2000


def test_an_answer_that_would_take_most_of_the_room_is_not_kept():
    memory = Memory(10**6)
    memory.put(answer(1, 600), 1000)
    assert memory.bytes == 0


def test_all_groups_together_have_a_limit_and_the_largest_gives_way():
    memory = Memory(20_000)
    memory.put(answer(0, group="a/small"), 20_000)
    for number in range(30):
        memory.put(answer(number), 20_000)
    assert memory.bytes <= 20_000
    assert memory.get("a/small", answer(0).key) is not None
    assert memory.evictions == 11


def test_groups_that_are_gone_are_forgotten_and_others_shrink():
    memory = Memory(10**6)
    for number in range(10):
        memory.put(answer(number), 10**6)
        memory.put(answer(number, group="a/gone"), 10**6)
    memory.keep({"chat/support": 3000})
    assert set(memory.groups) == {"chat/support"}
    assert memory.bytes == 3000


def test_answers_that_are_asked_for_again_outlive_a_flood_of_others():
    memory = Memory(100_000)
    popular = [answer(number) for number in range(20)]
    for each in popular:
        memory.put(each, 100_000)
    for number in range(1000, 3000):
        memory.put(answer(number), 100_000)
        wanted = popular[number % 20]
        memory.get(wanted.group, wanted.key)
    assert sum(memory.get(each.group, each.key) is not None for each in popular) == 20


@pytest.mark.heavy
def test_the_hit_rate_under_zipf_is_above_that_of_lru():
    rng = random.Random(1)
    asked = rng.choices(range(5000), [1 / (rank + 1) ** 0.8 for rank in range(5000)], k=20_000)
    memory, lru, hits, lru_hits = Memory(10**7), {}, 0, 0
    for number in asked:
        if memory.get("chat/support", answer(number).key) is not None:
            hits += 1
        else:
            memory.put(answer(number), 250_000)
        if number in lru:
            lru_hits += 1
            del lru[number]
        lru[number] = True
        if len(lru) > 250:
            del lru[next(iter(lru))]
    assert hits > lru_hits


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(500, 3000), st.sampled_from(["put", "get", "remove"]))))
def test_the_bytes_are_those_of_the_answers(steps):
    memory = Memory(20_000)
    for number, size, what in steps:
        if what == "put":
            memory.put(answer(number, size), 10_000)
        elif what == "get":
            memory.get("chat/support", answer(number).key)
        else:
            memory.remove_if(lambda kept, number=number: kept.key == answer(number).key)
        found = memory.groups.get("chat/support")
        if found is not None:
            kept = [found.get(answer(each).key) for each in range(31)]
            assert found.bytes == sum(each.size for each in kept if each is not None) <= 10_000
            assert len(found) == sum(each is not None for each in kept)
