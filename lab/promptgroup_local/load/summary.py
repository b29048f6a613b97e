"""A run in one row: the clients' results, the engines' counters, and the best possible result. Does no I/O."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_local.load.client import Outcome
from promptgroup_local.load.counters import Measured
from promptgroup_local.load.reference import infinite_cache_hit_rate


@dataclass(frozen=True, slots=True)
class Summary:
    """One run; None is unknown, times are in seconds."""

    name: str
    requests: int
    failed: Mapping[str, int]
    """Failed requests by error."""
    ttft_p50: float | None
    ttft_p99: float | None
    e2e_p50: float | None
    measured: Measured
    possible: float | None
    """Hit rate of an infinite cache behind one replica on the same requests."""

    @property
    def failures(self) -> int:
        """Failed requests."""
        return sum(self.failed.values())

    @property
    def of_possible(self) -> float | None:
        """Measured hit rate as a share of the possible one."""
        if self.measured.hit_rate is None or not self.possible:
            return None
        return self.measured.hit_rate / self.possible


def summarise(name: str, outcomes: Sequence[Outcome], measured: Measured, *, warm: Iterable[str] = ()) -> Summary:
    """The row of a run; `warm` are the system prompts that its replicas were warm for."""
    good = [outcome for outcome in outcomes if not outcome.failed]
    ttft = sorted(outcome.ttft for outcome in good)
    return Summary(
        name=name,
        requests=len(outcomes),
        failed=Counter(outcome.error for outcome in outcomes if outcome.failed),
        ttft_p50=quantile(ttft, 0.5),
        ttft_p99=quantile(ttft, 0.99),
        e2e_p50=quantile(sorted(outcome.e2e for outcome in good), 0.5),
        measured=measured,
        possible=infinite_cache_hit_rate((outcome.exchange for outcome in good), warm=warm),
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest-rank quantile of an ascending list; None of an empty one."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def moved(before: Iterable[Outcome], after: Iterable[Outcome]) -> tuple[int, int]:
    """Sessions that another replica serves than before, and sessions that were served both times.

    Compares the last answer before with the first one after, by the router's name of the replica, or else by URL.
    """
    last = {outcome.session: _replica(outcome) for outcome in before if not outcome.failed}
    first: dict[str, str] = {}
    for outcome in after:
        if not outcome.failed:
            first.setdefault(outcome.session, _replica(outcome))
    both = last.keys() & first.keys()
    return sum(last[session] != first[session] for session in both), len(both)


def _replica(outcome: Outcome) -> str:
    return outcome.served_by or outcome.url
