"""More room and fewer requests are never worse, and nothing is found that was not there."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.forecast.forecast import ReplicaForecast, Workload, cached_share, expect

LOADS = st.builds(
    Workload,
    rate=st.floats(0.01, 500),
    sessions=st.floats(1, 1e5),
    prefix=st.integers(1, 50_000),
    history=st.one_of(st.just(0.0), st.floats(1, 1e5)),
    turn=st.floats(1, 10_000),
    answer=st.floats(1, 5000),
)
REPLICAS = st.builds(
    ReplicaForecast,
    kv_tokens=st.integers(1000, 5_000_000),
    prefill_rate=st.floats(100, 100_000),
    step=st.floats(0.001, 0.1),
    context_rate=st.floats(1e5, 1e9),
)
SLACK = 1e-4
"""What the circle is closed to, and some."""


@given(LOADS, REPLICAS, st.integers(1, 100))
def test_figures_are_shares_and_the_prompt_bounds_what_is_computed(load, one, replicas):
    expected = expect(load, one, replicas)
    assert 0 <= expected.cached_histories <= 1
    assert 0 <= expected.hit_rate < 1
    assert load.turn * (1 - 1e-9) <= expected.uncached <= load.turn + load.history * (1 + 1e-9)
    assert expected.median <= expected.ttft


@given(LOADS, REPLICAS, st.integers(1, 100))
def test_one_replica_more_is_never_worse(load, one, replicas):
    less, more = expect(load, one, replicas), expect(load, one, replicas + 1)
    assert more.cached_histories >= less.cached_histories - SLACK
    assert more.utilization <= less.utilization + SLACK
    assert math.isinf(less.ttft) or more.ttft <= less.ttft * (1 + 1e-2)


@given(LOADS, REPLICAS, st.integers(1, 100))
def test_more_kv_cache_is_never_worse(load, one, replicas):
    larger = replace(one, kv_tokens=2 * one.kv_tokens)
    assert expect(load, larger, replicas).cached_histories >= expect(load, one, replicas).cached_histories - SLACK


@given(st.floats(0.001, 100), st.floats(1.01, 100))
def test_what_is_touched_fills_the_room(fill, turns):
    share = cached_share(fill, turns)
    if share < 0.999999:
        assert math.isclose(share - math.log(1 - share) / (turns - 1), fill, rel_tol=1e-4)
