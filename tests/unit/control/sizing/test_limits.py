import pytest

from promptgroup_operator.sizing.limits import Limit, Target, exceeded, is_late, least_replicas, reachable
from promptgroup_operator.sizing.model import fit
from support.loads import load

NONE, TTFT = Target(None), Target(0.3)

LIMITS = {
    "all kept": (load(), 4, TTFT, None),
    "work": (load(40, usage=0.45, sessions=100), 4, TTFT, Limit.UTILISATION),
    "sessions before work": (load(40, hit_rate=0.82, usage=0.45, sessions=1000), 4, TTFT, Limit.WORKING_SET),
    "requests that run and fill the cache": (load(2, usage=0.76, hit_rate=1, sessions=9), 4, NONE, Limit.UTILISATION),
    "a queue": (load(waiting=20), 4, NONE, Limit.QUEUE),
    "a queue in which nobody waits too long": (load(waiting=20, p95=0.2), 4, TTFT, None),
    "a queue in which somebody does": (load(waiting=20, p95=0.4), 4, TTFT, Limit.QUEUE),
    "first tokens": (load(p95=0.4), 4, TTFT, Limit.FIRST_TOKEN),
    "first tokens within the tolerance": (load(p95=0.32), 4, TTFT, None),
    "first tokens nobody asks for": (load(p95=0.4), 4, NONE, None),
    "too few first tokens to tell": (load(p95=None), 4, TTFT, None),
}


@pytest.mark.parametrize("case", LIMITS)
def test_the_first_limit_that_is_exceeded(case):
    seen, n, target, limit = LIMITS[case]
    assert exceeded(fit(seen), n, target) is limit


def test_fewer_replicas_keep_every_limit_with_a_margin():
    model = fit(load(16, usage=0.12, sessions=50, p95=0.1))
    assert least_replicas(model, 1, 9, NONE) == 3
    assert least_replicas(model, 1, 9, NONE, margin=0.9) == 3
    assert least_replicas(model, 1, 9, NONE, margin=0.6) == 5


def test_first_tokens_ask_for_no_more_than_their_ratio_to_the_target():
    """By the model alone it would take more; engines saw prefills take 75 ms longer than alone."""
    model = fit(load(20, replicas=8, usage=0.15, sessions=100, p95=0.4, prefill_busy=20 * (0.06 + 0.075)))
    assert (least_replicas(model, 1, 40, TTFT), model.ttft(11) > 0.3) == (11, True)


def test_a_target_that_prefill_alone_misses_asks_for_no_replicas_and_gives_none_away():
    cold = fit(load(2, hit_rate=0.05, usage=0.05, opening=1.0, declared_tokens=500, sessions=8, p95=1.6))
    assert is_late(cold, TTFT)
    assert not reachable(cold, TTFT)
    assert least_replicas(cold, 1, 40, TTFT) <= 4
    assert least_replicas(cold, 1, 40, TTFT, margin=0.9) >= 3


def test_one_above_the_bound_says_that_the_bound_does_not_do():
    assert least_replicas(fit(load(40, usage=0.45, sessions=100)), 1, 3, NONE) == 4


def test_sessions_must_fit_fewer_replicas_with_a_margin_too():
    """They need 95 % of the room of four."""
    model = fit(load(2, hit_rate=0.94, usage=0.02, sessions=100, history=0.95 * 4 * 292_000 / 100, p95=0.05))
    assert least_replicas(model, 1, 9, NONE) == 4
    assert least_replicas(model, 1, 9, NONE, margin=0.9) == 5
