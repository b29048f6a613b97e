"""A fault drill in virtual time: each cause is injected, and the right reason is told within two windows, no other.

The drill plays what passes see: a reading each 15 s, means over a window of four readings. Groups are sized by the
operator, have a fixed number of replicas, or one that an autoscaler changes. A KV pool that is away has a condition of
its own, beside the one of the caches.
"""

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from promptgroup_operator.plan.plan import decide
from promptgroup_operator.sizing.diagnosis import HEALTHY, diagnose
from promptgroup_operator.sizing.recommend import SizingInput, replicas
from promptgroup_operator.world.load import LOAD_WINDOW, PERIOD, PromptDrift
from promptgroup_operator.world.sizing_history import NEW
from promptgroup_operator.world.snapshot import PoolAnswers
from support.builders import NOW, group, pod, revision, spec, world
from support.loads import load

WINDOW = LOAD_WINDOW // PERIOD
"""Readings of a window."""
UNEXPLAINED = "Unexplained"
POOL = {"pool": {"type": "LMCache", "address": "kv:5555", "monitor": "kv:8080"}}
HIT = 0.94
"""Hit rate of the healthy group, of 96 % that may be found."""
SCALERS = {
    "sized": {"replicas": None, "sizing": {"minReplicas": 4, "maxReplicas": 5}},
    "fixed": {"replicas": 4},
    "autoscaled": {"replicas": 4},
}


@dataclass(frozen=True)
class Fault:
    """A cause, from one reading on."""

    reason: str
    hit_rate: float
    fields: dict[str, Any] = field(default_factory=dict)
    """Of the load, from the first reading with the fault on: what routers tell as of now."""
    departing: PromptDrift | None = None
    scales: bool = False
    releases: bool = False


FAULTS = {
    "sessions outgrow the caches": Fault("Thrashing", 0.6, {"sessions": 1000.0, "history": 3500.0}),
    "running requests fill the caches": Fault("Thrashing", 0.6, {"usage": 0.97, "preemptions": 2.0}),
    "the prompt was edited at a byte": Fault("PromptDrift", 0.3, departing=PromptDrift(0.7, 4000, 32_000)),
    "a time stands on top": Fault("PromptDrift", 0.05, departing=PromptDrift(0.9, 0, 32_000)),
    "little is shared": Fault("LowSharing", 0.05, {"declared_tokens": 500, "opening": 1.0}),
    "the engines cache nothing": Fault("PrefixCachingDisabled", 0.0),
    "a replica joined": Fault("ScalingWave", 0.4, scales=True),
    "a release began": Fault("Release", 0.2, releases=True),
}


class Drill:
    """A group under load, as its passes see it."""

    def __init__(self, scaler: str, seed: int) -> None:
        self.scaler = scaler
        self._draw = random.Random(seed)
        self._hits = [HIT] * WINDOW
        self._shares = [0.0] * WINDOW
        self._history, self._reason, self._now = NEW, "", NOW
        self._wanted = 4

    def look(self, fault: Fault | None = None) -> str:
        """Read once, with the fault or without; return the reason that the condition has then."""
        departing = fault.departing if fault is not None else None
        rate = fault.hit_rate if fault is not None else HIT
        self._hits = [*self._hits[1:], min(0.955, max(0.0, rate * self._draw.uniform(0.98, 1.015)))]
        self._shares = [*self._shares[1:], departing.share if departing is not None else 0.0]
        share = sum(self._shares) / WINDOW
        seen = load(
            **({"requests": 16 * self._draw.uniform(0.8, 1.1)} | (fault.fields if fault is not None else {})),
            hit_rate=sum(self._hits) / WINDOW,
            drift=replace(departing, share=share) if departing is not None else None,
        )
        current = self._wanted
        if fault is not None and fault.scales:
            current = 5
        revision = "b" if fault is not None and fault.releases else "a"
        group = SizingInput(current, current, revision, seen, releasing=revision == "b")
        bounds = SCALERS[self.scaler] | ({"replicas": current} if self.scaler != "sized" else {})
        decided = replicas(spec(**bounds), group, self._history, self._now)
        self._history = decided.history
        self._now += PERIOD
        self._reason = diagnose(seen, decided.wave, self._reason).reason
        return self._reason


@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FAULTS)
def test_the_cause_is_named_within_two_windows_and_no_other(name, seed, scaler):
    fault, drill = FAULTS[name], Drill(scaler, seed)
    assert {drill.look() for _ in range(2 * WINDOW)} == {HEALTHY}
    if fault.scales or fault.releases:  # the sessions that moved come back within some seconds, and are cached again
        told = [drill.look(replace(fault, hit_rate=HIT)), drill.look(fault)]
        told += [drill.look(replace(fault, hit_rate=HIT)) for _ in range(2 * WINDOW)]
        assert fault.reason in told
        assert set(told) <= {HEALTHY, fault.reason}, told
        return
    told = [drill.look(fault) for _ in range(2 * WINDOW)]
    assert told[-1] == fault.reason, told
    # "no known cause" is no wrong one: while the window still has hits of before, that is all that can be said
    assert set(told) <= {HEALTHY, UNEXPLAINED, fault.reason}, told
    assert {drill.look(fault) for _ in range(WINDOW)} == {fault.reason}


@pytest.mark.heavy
@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize("seed", range(3))
def test_an_hour_of_healthy_load_is_never_called_anything_else(seed, scaler):
    drill = Drill(scaler, seed)
    assert {drill.look() for _ in range(timedelta(hours=1) // PERIOD)} == {HEALTHY}


@pytest.mark.parametrize("name", [name for name, each in FAULTS.items() if not (each.scales or each.releases)])
def test_a_cause_that_is_gone_is_not_told_for_long(name):
    drill = Drill("fixed", 1)
    for _ in range(3 * WINDOW):
        drill.look(FAULTS[name])
    assert [drill.look() for _ in range(2 * WINDOW)][-1] == HEALTHY


def pool_condition(scaler: str, answers: PoolAnswers) -> tuple[str, str]:
    """Return status and reason of CachePoolReady, as the pass tells them that got these answers."""
    of = group(cache=POOL, **SCALERS[scaler])
    seen = replace(world([revision(pods=[pod()])], of=of), pool_answers=answers)
    written = decide(seen, NOW).status["conditions"]
    [found] = [each for each in written if each["type"] == "CachePoolReady"]
    return found["status"], found["reason"]


@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize(
    ("load_of", "reason"),
    [(None, HEALTHY), ("sessions outgrow the caches", "Thrashing")],
    ids=["the GPUs hold the sessions", "the pool held them"],
)
def test_a_pool_that_is_away_is_named_beside_what_the_caches_do(load_of, reason, scaler):
    fault, drill = FAULTS[load_of] if load_of else None, Drill(scaler, 1)
    assert {drill.look() for _ in range(2 * WINDOW)} == {HEALTHY}
    assert pool_condition(scaler, PoolAnswers(2)) == ("True", "PoolReady")
    away = PoolAnswers(2, {"10.0.0.2:8080": "refused"})
    assert pool_condition(scaler, away) == ("False", "PoolUnreachable")
    told = [drill.look(fault) for _ in range(2 * WINDOW)]
    assert told[-1] == reason
    assert set(told) <= {HEALTHY, UNEXPLAINED, reason}
