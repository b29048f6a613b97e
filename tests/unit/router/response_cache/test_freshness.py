"""How long answers are kept, and which may be given."""

import random
from dataclasses import replace
from statistics import mean

import pytest

from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.directives import Directives
from promptgroup_router.response_cache.freshness import JITTER, held_to, lifetime, may_be_given, may_be_given_stale
from support.asks import BORN, answer


def test_lifetimes_are_spread_below_the_limit_the_same_in_every_router():
    keys = [CacheKey(random.Random(number).randbytes(32)) for number in range(1000)]
    found = [lifetime(1000, None, key) for key in keys]
    assert all(1000 * (1 - JITTER) <= each <= 1000 for each in found)
    assert mean(found) == pytest.approx(950, abs=5)
    assert found == [lifetime(1000, None, key) for key in keys]


def test_a_client_can_ask_for_less_and_not_for_more():
    key = CacheKey(bytes(32))
    assert (lifetime(1000, 10, key), lifetime(1000, 5000, key), lifetime(1000, 0, key)) == (10, 1000, 0)


@pytest.mark.parametrize(
    ("asked", "age", "given"),
    [
        (Directives(), 60, True),
        (Directives(), 69.9, True),
        (Directives(), 70, False),
        (Directives(max_age=100), 65, False),
        (Directives(ttl=100), 65, False),
        (Directives(no_cache=True), 65, False),
        (Directives(no_store=True), 65, False),
    ],
)
def test_an_answer_that_is_too_old_is_given_for_a_while_to_who_did_not_say_how_old(asked, age, given):
    assert may_be_given_stale(answer(), asked, BORN + age, ttl=60, stale=10) is given
    assert not may_be_given_stale(answer(), asked, BORN + age, ttl=60, stale=0)
    assert not may_be_given_stale(answer(lifetime=20.0), asked, BORN + 25, ttl=60, stale=10), "its client wanted less"


@pytest.mark.parametrize(("lifetime_kept", "ttl", "longest"), [(900.0, 60, 60), (900.0, 3600, 900), (5.0, 60, 5)])
def test_the_shorter_of_the_lifetime_then_and_now_holds(lifetime_kept, ttl, longest):
    kept = answer(lifetime=lifetime_kept)
    held = held_to(kept, ttl)
    assert longest * (1 - JITTER) <= held.lifetime <= longest
    assert replace(held, lifetime=lifetime_kept) == kept


def test_an_old_answer_is_given_for_a_while_beyond_the_lifetime_of_now():
    held = held_to(answer(lifetime=3600.0), 60)
    given = [may_be_given_stale(held, Directives(), BORN + age, ttl=60, stale=10) for age in (65, 71, 3000)]
    assert given == [True, False, False]


@pytest.mark.parametrize(
    ("asked", "age", "given"),
    [
        (Directives(), 0, True),
        (Directives(), 59.9, True),
        (Directives(), 60, False),
        (Directives(max_age=10), 10, True),
        (Directives(max_age=10), 11, False),
        (Directives(no_cache=True), 0, False),
        (Directives(no_store=True), 0, False),
        (Directives(), -5, True),
    ],
)
def test_an_answer_is_given_while_it_is_young_enough(asked, age, given):
    assert may_be_given(answer(), asked, BORN + age) is given
