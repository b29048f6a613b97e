import math
from dataclasses import replace

import pytest

from promptgroup_cli.forecast.forecast import (
    SEQUENCE,
    ReplicaForecast,
    Workload,
    cached_share,
    expect,
    working_set,
)
from promptgroup_cli.forecast.model_config import ModelConfig
from promptgroup_cli.forecast.tiers import TierForecast

CHAT = Workload(rate=20, sessions=400, prefix=3000, history=1200, turn=100, answer=200)
"""Sessions of five turns."""
REPLICA = ReplicaForecast(kv_tokens=400_000, prefill_rate=10_000, step=0.007, context_rate=25e6)


def test_what_a_session_is_made_of():
    assert CHAT.prompt == 4300
    assert CHAT.context == 1500
    assert CHAT.turns == 5
    assert working_set(CHAT, REPLICA).sessions == 600_000


def test_a_window_bounds_what_a_session_takes():
    halves = replace(REPLICA, shape=ModelConfig(16, 8, 256, 16, 500))
    assert halves.held(500) == 500
    assert halves.held(1500) == 1000
    assert working_set(CHAT, halves).sessions == 400_000
    assert expect(CHAT, halves, 4).use < expect(CHAT, REPLICA, 4).use


@pytest.mark.parametrize(
    ("fill", "share"), [(0, 0.0), (-1, 0.0), (1 - math.exp(-1) + 1 / 4, 1 - math.exp(-1)), (100, 1.0)]
)
def test_the_share_that_is_found_solves_the_equation(fill, share):
    assert cached_share(fill, turns=5) == pytest.approx(share)


def test_sessions_that_just_fit_lose_a_third_and_twice_the_room_keeps_nearly_all():
    assert cached_share(1, turns=5) == pytest.approx(0.70, abs=0.01)
    assert cached_share(2, turns=5) == pytest.approx(0.98, abs=0.01)


def test_where_all_fits_a_request_computes_its_turn_only():
    expected = expect(CHAT, REPLICA, 4)
    assert expected.cached_histories == pytest.approx(1, abs=0.001)
    assert expected.uncached == pytest.approx(100, abs=1)
    assert expected.hit_rate == pytest.approx(4200 / 4300, abs=0.001)
    assert expected.use == (4 * 3000 + 600_000) / 1_600_000


def test_utilization_is_prefill_and_what_answers_add_to_steps():
    expected = expect(CHAT, REPLICA, 4)
    decoding = 5 * 200 * (SEQUENCE + 4500 / 25e6)
    assert expected.utilization == pytest.approx(5 * 100 / 10_000 + decoding, abs=0.001)


def test_an_idle_replica_takes_a_step_and_a_half_and_the_prefill():
    quiet = replace(CHAT, rate=1e-6, sessions=4)
    expected = expect(quiet, REPLICA, 1)
    assert expected.median == pytest.approx(1.5 * 0.007 + math.log(2) * 0.01, rel=1e-3)
    assert expected.ttft == pytest.approx(1.5 * 0.007 + math.log(20) * 0.01, rel=1e-3)


def test_where_nothing_has_a_history_none_is_lost():
    single = replace(CHAT, history=0)
    assert expect(single, REPLICA, 4).uncached == 100


def test_a_replica_without_room_finds_the_prefix_only():
    expected = expect(replace(CHAT, rate=1), replace(REPLICA, kv_tokens=3000), 1)
    assert expected.cached_histories == 0
    assert expected.hit_rate == pytest.approx(3000 / 4300)


def test_a_load_beyond_the_replicas_has_no_first_token():
    expected = expect(replace(CHAT, rate=2000, sessions=40_000), REPLICA, 4)
    assert expected.utilization > 1
    assert expected.ttft == expected.median == math.inf


def test_requests_that_run_take_the_room_of_those_that_pause():
    slow = replace(REPLICA, kv_tokens=40_000, step=0.02)
    running = 20 * 200 * 0.02 / (1 - expect(CHAT, slow, 4).utilization)
    assert running * CHAT.context > 4 * (40_000 - 3000)
    assert expect(CHAT, slow, 4).cached_histories == 0
    assert expect(CHAT, replace(slow, step=0.002), 4).cached_histories > 0


def test_what_runs_is_how_many_come_times_how_long_they_take():
    expected = expect(CHAT, REPLICA, 4)
    assert expected.running == pytest.approx(20 * 200 * 0.007 / (1 - expected.utilization))
    assert expect(replace(CHAT, rate=2000), REPLICA, 4).running == CHAT.sessions


SMALL = replace(REPLICA, kv_tokens=40_000)


def test_a_tier_without_bounds_brings_what_the_gpus_have_lost():
    assert expect(CHAT, SMALL, 4).cached_histories < 0.5
    found = expect(CHAT, SMALL, 4, [TierForecast(room=math.inf, latency=0, token=0)])
    assert found.cached_histories == 1
    assert found.uncached == CHAT.turn


def test_a_tier_keeps_what_gpus_of_its_size_would():
    larger = replace(REPLICA, kv_tokens=150_000)
    room = 4 * (150_000 - CHAT.prefix)
    tiered = expect(CHAT, SMALL, 4, [TierForecast(room=room, latency=0, token=0)])
    assert tiered.cached_histories == pytest.approx(expect(CHAT, larger, 4).cached_histories, abs=1e-3)


def test_a_tier_that_is_smaller_adds_nothing():
    within = TierForecast(room=1000, latency=0, token=0)
    assert expect(CHAT, REPLICA, 4, [within]) == expect(CHAT, REPLICA, 4)
    half, all_ = (TierForecast(room=room, latency=0, token=0) for room in (400_000, math.inf))
    assert (
        expect(CHAT, SMALL, 4, [half, all_]).cached_histories
        == expect(CHAT, SMALL, 4, [all_, half]).cached_histories
        == 1
    )


def test_copies_make_first_tokens_later_and_gpus_no_busier():
    quick, slow = (TierForecast(room=math.inf, latency=seconds, token=0) for seconds in (0, 0.1))
    fast, late = (expect(CHAT, SMALL, 4, [tier]) for tier in (quick, slow))
    lost = 1 - expect(CHAT, SMALL, 4).cached_histories
    assert late.utilization == fast.utilization
    assert late.median > fast.median
    assert late.ttft - fast.ttft <= math.log(20) * 0.1 * 1.01
    assert lost > 0
