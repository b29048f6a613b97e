from dataclasses import replace

import pytest

from promptgroup_operator.sizing.model import NO_QUEUE, SHARE, credited, fit
from promptgroup_operator.sizing.prefill_rate import RATE_LEAST
from promptgroup_operator.world.load import TierReach
from support.loads import histogram, load


def test_at_the_observed_number_it_says_what_was_observed():
    model = fit(load(16, replicas=4, hit_rate=0.94, usage=0.15, p95=0.2))
    assert model.hit_rate(4) == pytest.approx(0.94)
    assert model.ttft(4) == pytest.approx(0.2)


def test_demand_is_prefill_of_what_is_not_found_and_decoding():
    model = fit(load(16, replicas=4, hit_rate=0.94, usage=0.15))
    prefill = 16 * 600 / 10_000
    assert model.prefilling(4) == pytest.approx(prefill)
    assert model.demand(4) == pytest.approx(prefill + (4 - prefill) * 0.6 / 1.6)
    assert model.utilisation(8) == pytest.approx(model.utilisation(4) / 2)


@pytest.mark.parametrize(
    ("n", "share"), [(1, 0.25), (2, 0.5), (4, 1.0), (8, 1.0)], ids=["a quarter", "half", "all", "no more than all"]
)
def test_the_sessions_that_fit_are_found(n, share):
    """Sessions that need exactly the room of four replicas."""
    room = SHARE * 400_000 - 8000
    model = fit(load(replicas=4, hit_rate=0.97, sessions=100, history=4 * room / 100))
    assert model.hit_rate(n) == pytest.approx(0.8 + 0.17 * share)


def test_where_the_sessions_are_not_known_all_that_was_there_is_needed():
    model = fit(replace(load(replicas=4, hit_rate=0.9), clients=None))
    assert [model.resident(n) for n in (2, 4, 8)] == [0.5, 1.0, 1.0]


def test_what_is_found_fits_whatever_routers_estimate():
    """Hits as high as they can be: the sessions cannot need thrice the room."""
    generous = fit(load(replicas=4, hit_rate=0.975, sessions=1000, history=3500))
    assert generous.working_set == 4 * generous.room()
    thrashing = fit(load(replicas=4, hit_rate=0.82, sessions=1000, history=3500))
    assert thrashing.working_set == 3_500_000


def test_answers_that_are_not_found_again_and_blocks_that_are_not_full_prove_no_eviction():
    """Of 10,000 tokens 220 are a message; 150 of the answer before it and 100 of a last block are computed as well."""
    kept = fit(load(replicas=4, hit_rate=0.953, sessions=1000, history=3500))
    assert kept.working_set == 4 * kept.room()


def test_requests_that_routers_hold_need_room_too():
    assert fit(load(sessions=100, history=2000, held=50)).working_set == 300_000


def test_requests_that_wait_in_engines_show_what_a_replica_can_run():
    model = fit(load(16, replicas=4, running=24, waiting=26))
    assert model.queueing(8) == pytest.approx(1.0)
    assert fit(load(16, replicas=4, running=24, waiting=2)).queueing(1) == 0


RATES = {
    "proven": (None, None, 10_000),
    "an engine that does nothing else": (6000, 0.6 * 1.6, 10_000),
    "slower than proven, by as much as others interfere": (6000, 1.5, 6000 / 1.5 * 1.6 + 1500),
    "no less than half, since short prefills are mostly overhead": (500, 4.0, RATE_LEAST * 10_000),
    "never above the proof": (6000, 0.1, 10_000),
}


@pytest.mark.parametrize("case", RATES)
def test_the_prefill_rate_is_never_over_estimated(case):
    computed, busy, rate = RATES[case]
    model = fit(load(10, replicas=4, usage=0.15, computed=computed, prefill_busy=busy))
    assert model.rate == pytest.approx(rate)


def test_more_replicas_bring_first_tokens_sooner_down_to_the_own_prefill():
    model = fit(load(16, replicas=4, p95=0.3))
    times = [model.ttft(n) for n in range(2, 60)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == pytest.approx(3 * model.own(60), rel=0.1)


def test_lateness_that_no_queue_explains_is_not_shared_out():
    """Two seconds where a third is modelled, and nothing waits: of that replicas take away no more than is credible."""
    model = fit(load(16, replicas=4, p95=2.0))
    assert model.ttft(100) > 1.0
    waits = fit(load(16, replicas=4, p95=2.0, waiting=14))
    assert waits.ttft(100) < 0.5


def test_first_tokens_are_the_routers_then_the_engines_then_nobodys():
    assert fit(load(p95=0.3)).first_token == pytest.approx(0.3)
    seen = load(p95=0.3)
    assert fit(replace(seen, clients=replace(seen.clients, first_token=histogram(None)))).first_token == pytest.approx(
        0.3
    )
    assert fit(load(p95=None)).first_token is None


@pytest.mark.parametrize(
    "seen",
    [replace(load(), engines=None), load(replicas=0), load(0.1, prefill_rate=0)],
    ids=["no engines", "none", "no rate"],
)
def test_where_too_little_is_known_there_is_no_model(seen):
    assert fit(seen) is None


def test_of_no_traffic_no_rate_is_needed():
    assert fit(load(0, usage=0, sessions=0, p95=None, prefill_rate=0)).utilisation(1) == 0


def test_a_load_with_more_found_decodes_as_much_in_less_time():
    seen = load(16, replicas=4, hit_rate=0.8, usage=0.3)
    better = credited(seen, 0.94 * 160_000)
    assert fit(better).decode == pytest.approx(fit(seen).decode)
    assert better.engines.usage < 0.3
    assert fit(better).first_token is None
    assert credited(seen, 0.5 * 160_000) is seen


def behind(reach, share=0.3, **fields):
    """The load, with tiers that brought such a share of prompt tokens."""
    found = load(**fields)
    return replace(found, tiers=reach, engines=replace(found.engines, tiered=share * found.engines.queries))


def test_sessions_that_a_pool_holds_fit_any_number_of_replicas():
    """Sessions that need thrice the room of the GPUs, and are all found."""
    model = fit(behind(TierReach.SHARED, hit_rate=0.97, sessions=1000, history=3500))
    assert [model.resident(n) for n in (1, 4, 8)] == [1.0, 1.0, 1.0]
    assert model.filled(1) == 1.0
    assert not model.sessions_need_replicas


def test_what_a_pool_loses_no_replica_finds_before_the_gpus_hold_more_than_it_does():
    model = fit(behind(TierReach.SHARED, hit_rate=0.87, sessions=1000, history=3500))
    seen = model.resident(4)
    assert 0.5 < seen < 0.8
    assert model.hit_rate(4) == model.hit_rate(7) == pytest.approx(0.87)
    alone = 3_500_000 / model.room()
    assert model.resident(1.01 * seen * alone) > seen
    assert model.resident(alone) == 1.0


def test_tiers_of_each_replica_grow_with_them():
    model = fit(behind(TierReach.REPLICA, hit_rate=0.87, sessions=1000, history=3500))
    assert model.resident(6) == pytest.approx(1.5 * model.resident(4))
    assert model.resident(2) == pytest.approx(model.resident(4) / 2)
    assert model.sessions_need_replicas


@pytest.mark.parametrize("reach", TierReach)
def test_tiers_that_bring_nothing_change_nothing(reach):
    fields = {"hit_rate": 0.85, "sessions": 1000, "history": 3500}
    assert fit(behind(reach, 0.0, **fields)) == fit(load(**fields))


def test_caches_whose_size_nobody_knows_are_not_small():
    model = fit(load(replicas=4, hit_rate=0.9, kv_tokens=0))
    assert (model.capacity(4), model.filled(4)) == (None, None)
    assert [model.resident(n) for n in (2, 4, 8)] == [0.5, 1.0, 1.0]


def test_of_lateness_no_more_is_shared_out_than_what_waited():
    """Requests that waited for 50 ms do not explain two seconds."""
    waiting = 4 * NO_QUEUE + 0.05 * 16
    assert fit(load(16, replicas=4, p95=2.0, waiting=waiting)).ttft(100) > 1.0


def test_first_tokens_of_requests_before_the_window_are_no_traffic_in_it():
    model = fit(load(0, p95=0.3))
    assert model.ttft(1) >= model.ttft(8) >= 0
