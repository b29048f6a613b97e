"""Scalers decide the number of replicas: a fixed number, and HorizontalPodAutoscaler on two metrics."""

from collections.abc import Callable
from typing import Protocol

from promptgroup_research.scaling import hpa
from promptgroup_research.scaling.fleet import Fleet
from promptgroup_research.scaling.meter import Counters, Meter

MEAN_SECONDS = 60.0
"""Window over which a HorizontalPodAutoscaler's metric is averaged, as by `avg_over_time(...[1m])`: gauges fluctuate,
and one low reading would look like a low load."""


class Scaler(Protocol):
    """Decides periodically, from metrics that can be observed."""

    name: str

    def recommend(self, now: float, meter: Meter, fleet: Fleet) -> int:
        """The replicas that are wanted from now on."""


class Fixed:
    """Always the same."""

    def __init__(self, count: int) -> None:
        self.name = f"fixed at {count}"
        self._count = count

    def recommend(self, _: float, __: Meter, ___: Fleet) -> int:
        """The number."""
        return self._count


class Hpa:
    """HorizontalPodAutoscaler on a metric whose mean per replica it keeps at a target."""

    def __init__(self, name: str, metric: Callable[[Counters], float], target: float, *, least: int, most: int) -> None:
        self.name = name
        self._metric = metric
        self._target = target
        self._behavior = hpa.Behavior(least, most)

    @classmethod
    def on_queue(cls, target: float, least: int, most: int) -> "Hpa":
        """On requests that run or wait; those that wait in the routers for capacity count too."""
        name = f"HPA, queue {target:g}"
        return cls(name, lambda rates: rates.running + rates.waiting + rates.held, target, least=least, most=most)

    @classmethod
    def on_kv_usage(cls, target: float, least: int, most: int) -> "Hpa":
        """On the share of the KV cache that running requests hold."""
        return cls(f"HPA, KV {target:.1%}", lambda rates: rates.usage, target, least=least, most=most)

    def recommend(self, now: float, meter: Meter, fleet: Fleet) -> int:
        """The number that HPA would set."""
        seconds, rates = meter.rates(MEAN_SECONDS)
        if not seconds:
            return fleet.wanted
        replicas = hpa.replicas(fleet.wanted, fleet.up, self._metric(rates), self._target)
        return self._behavior.decide(now, fleet.wanted, replicas)
