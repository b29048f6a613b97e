import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptgroup_contract.table import rank_numbers
from promptgroup_operator.warmth.ranks import differ, of_all_ranks, refreshed
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.snapshot import Reading, Spent
from promptgroup_operator.world.warming import Outcome, RefreshAnswer, WarmReason

READING = Reading(queries=10, hits=5, generated=1, usage=0.0, step=16, caching=True, kv_tokens=2000)


def proven(kv_tokens=1000, rate=500, prefix=96):
    return Outcome(WarmReason.PROVEN, "96 of 100 prefix tokens are in cache", Measured(kv_tokens, rate, prefix))


COLD = Outcome(WarmReason.NOT_CACHED, "0 of 100 prefix tokens are in cache")


def test_an_engine_with_one_cache_is_asked_without_a_rank():
    assert list(rank_numbers(1)) == [None]
    assert list(rank_numbers(3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("told", "ranks", "fits"), [(0, 1, True), (0, 2, True), (2, 2, True), (2, 1, False), (1, 2, False)]
)
def test_an_engine_must_have_the_ranks_that_its_arguments_tell_of(told, ranks, fits):
    found = differ(told, ranks)
    assert (found is None) is fits
    if found is not None:
        assert (found.reason, found.warm) == (WarmReason.RANKS_DIFFER, False)
        assert f"has {told}" in found.message
        assert f"give it {ranks}" in found.message


def test_a_replica_is_as_warm_as_its_coldest_rank():
    found = of_all_ranks([proven(), COLD])
    assert (found.reason, found.message) == (COLD.reason, f"data-parallel rank 1: {COLD.message}")


def test_a_replica_is_proven_once_each_rank_is_and_has_the_measurements_of_the_least():
    found = of_all_ranks([proven(1000, 500), proven(800, 600)])
    assert found.reason is WarmReason.PROVEN
    assert found.message == "on each of 2 data-parallel ranks: 96 of 100 prefix tokens are in cache"
    assert found.measured == Measured(800, 500, 96)


def test_one_cache_speaks_for_itself():
    assert of_all_ranks([proven()]) == proven()


def test_the_rank_that_is_warm_for_another_reason_is_named():
    short = Outcome(WarmReason.SHORT, "too short", Measured(500, 0, 5))
    found = of_all_ranks([proven(), short])
    assert (found.reason, found.message) == (WarmReason.SHORT, "data-parallel rank 1: too short")


@given(st.lists(st.tuples(st.none() | st.integers(0, 100), st.none() | st.integers(0, 100)), min_size=1, max_size=4))
@example([(0, None), (None, None)])
def test_a_refresh_tells_what_the_coldest_rank_had(found):
    answers = [
        RefreshAnswer(READING, cached, then, Spent(100, cached, 1), copied=(cached or 0) + 1) for cached, then in found
    ]
    together = refreshed(READING, answers)
    known = [cached for cached, _ in found]
    assert together.cached == (None if None in known else min(known))
    assert together.copied == (together.cached or 0) + 1
    assert together.then == (None if None in [then for _, then in found] else min(then for _, then in found))
    assert (together.spent.queries, together.spent.requests) == (100 * len(found), len(found))
    assert together.spent.hits == (None if None in known else sum(known))
