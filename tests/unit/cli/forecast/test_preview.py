import math
from dataclasses import replace

import pytest

from promptgroup_cli.forecast.forecast import ReplicaForecast, Workload, expect
from promptgroup_cli.forecast.preview import broken_limit, least_replicas, observed
from promptgroup_cli.forecast.tiers import TierForecast
from promptgroup_operator.sizing.limits import UTILISATION, Limit, Target, exceeded
from promptgroup_operator.sizing.model import fit

CHAT = Workload(rate=20, sessions=400, prefix=3000, history=1200, turn=100, answer=200)
REPLICA = ReplicaForecast(kv_tokens=400_000, prefill_rate=10_000, step=0.007, context_rate=25e6)


def test_what_is_expected_is_what_the_operator_would_have_observed():
    expected = expect(CHAT, REPLICA, 4)
    model = fit(observed(CHAT, REPLICA, expected))
    assert model.hit_rate(4) == pytest.approx(expected.hit_rate)
    assert model.first_token == pytest.approx(expected.ttft)
    assert model.working_set == 600_000


LACKS = {
    "nothing": (CHAT, REPLICA, 4, 0.3, None),
    "time": (CHAT, REPLICA, 1, None, Limit.UTILISATION),
    "quickness": (CHAT, REPLICA, 4, 0.03, Limit.FIRST_TOKEN),
    "cache for sessions": (CHAT, replace(REPLICA, kv_tokens=100_000), 4, None, Limit.WORKING_SET),
}


@pytest.mark.parametrize("case", LACKS)
def test_what_so_many_replicas_lack(case):
    workload, replica, replicas, target, limit = LACKS[case]
    assert broken_limit(workload, replica, expect(workload, replica, replicas), target) is limit


def test_the_least_number_keeps_all_limits_and_the_one_before_does_not():
    replicas, bound = least_replicas(CHAT, REPLICA, 0.3, 64)
    kept = expect(CHAT, REPLICA, replicas)
    assert kept.ttft <= 0.3
    assert kept.utilization <= UTILISATION
    assert broken_limit(CHAT, REPLICA, expect(CHAT, REPLICA, replicas - 1), 0.3) is bound is not None


@pytest.mark.parametrize("rate", [1, 5, 20, 100])
@pytest.mark.parametrize("sessions", [200, 2000, 10_000])
def test_the_operator_would_ask_for_no_more(rate, sessions):
    workload = replace(CHAT, rate=rate, sessions=sessions)
    replicas, _ = least_replicas(workload, REPLICA, 0.3, 512)
    model = fit(observed(workload, REPLICA, expect(workload, REPLICA, replicas)))
    assert exceeded(model, replicas, Target(0.3)) is None


def test_a_target_below_a_step_is_met_by_no_number():
    assert least_replicas(CHAT, REPLICA, 0.005, 64) == (None, Limit.FIRST_TOKEN)


def test_with_a_larger_tier_sessions_need_not_fit_the_gpus():
    small = replace(REPLICA, kv_tokens=100_000)

    def tiers(replicas):
        return [TierForecast(room=room * replicas, latency=0.001, token=1e-7)]

    counts = {}
    for room in (0, 300_000, math.inf):
        counts[room], _ = least_replicas(CHAT, small, 0.3, 64, tiers)
    assert counts[0] == least_replicas(CHAT, small, 0.3, 64)[0]
    assert counts[math.inf] <= counts[300_000] < counts[0]


def test_sessions_that_fit_no_tier_ask_for_replicas():
    quiet, small = replace(CHAT, rate=1), replace(REPLICA, kv_tokens=100_000)
    for room, limit in ((300_000, Limit.WORKING_SET), (1_200_000, None)):
        tier = TierForecast(room=room, latency=0, token=0)
        assert broken_limit(quiet, small, expect(quiet, small, 1, [tier]), None, [tier]) is limit
