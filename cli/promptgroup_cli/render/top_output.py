"""What goes on in groups as text, or as JSON. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from promptgroup_cli.reach.top_rates import ReplicaRate, TopRates
from promptgroup_cli.render.columns import columns
from promptgroup_cli.render.size_output import time
from promptgroup_operator.rollout.annotations import rfc3339

UNMATCHED = "-"
"""The routers' word for requests that belong to no group."""

_HEADS = ("GROUP", "READY", "WARM", "REQ/S", "HIT RATE", "TTFT P50", "P99", "IN FLIGHT", "WAITING")
_SLOTS = ("REPLICA", "IN FLIGHT", "BACKLOG", "SESSIONS", "KV OF SESSIONS")


@dataclass(frozen=True, slots=True)
class TopState:
    """What stands in a group's status."""

    ready: bool
    warm: str


@dataclass(frozen=True, slots=True)
class TopFrame:
    """All that is shown at one moment."""

    now: datetime
    seconds: float
    """That rates are of."""
    routers: int
    silent: tuple[str, ...]
    """Routers that did not answer."""
    states: Mapping[str, TopState]
    """`namespace/group` → what stands in its status; empty where no cluster was asked."""
    rates: Mapping[str, TopRates]

    @property
    def groups(self) -> Sequence[tuple[str, TopState | None, TopRates]]:
        """Those that there are, and those that routers know; requests of none of them at the end, if there are any."""
        names = sorted({*self.states, *self.rates} - {UNMATCHED})
        if self.rates.get(UNMATCHED, TopRates()).requests:
            names.append(UNMATCHED)
        return [(name, self.states.get(name), self.rates.get(name, TopRates())) for name in names]


def table(look: TopFrame) -> str:
    """For people."""
    return "\n".join(_lines(look))


def _lines(look: TopFrame) -> Iterator[str]:
    silent = f", no answer of {', '.join(look.silent)}" if look.silent else ""
    routers = "1 router" if look.routers == 1 else f"{look.routers} routers"
    yield f"{rfc3339(look.now)}, the last {look.seconds:.0f} s, {routers}{silent}"
    yield ""
    yield from columns([_HEADS, *(_row(*each) for each in look.groups)])
    replicas = [each for _, _, rates in look.groups for each in rates.replicas]
    if replicas:
        yield ""
        yield from columns([_SLOTS, *map(_slot, replicas)])


def _row(name: str, state: TopState | None, rates: TopRates) -> tuple[str, ...]:
    return (
        name if name != UNMATCHED else "(no group)",
        str(state.ready) if state is not None else "-",
        (state.warm or "-") if state is not None else "-",
        f"{rates.requests:.1f}",
        f"{rates.hit_rate:.1%}" if rates.hit_rate is not None else "-",
        time(rates.median) if rates.median is not None else "-",
        time(rates.late) if rates.late is not None else "-",
        str(rates.in_flight),
        str(rates.waiting),
    )


def _slot(replica: ReplicaRate) -> tuple[str, ...]:
    name = f"{replica.group}/{replica.revision}/{replica.slot}"
    return name, str(replica.in_flight), time(replica.wait), str(replica.sessions), f"{replica.filled:.0%}"


def document(look: TopFrame) -> str:
    """For programs, in one line; times in seconds, shares 0 to 1, null for what is not known."""
    return json.dumps(
        {
            "time": rfc3339(look.now),
            "seconds": round(look.seconds, 3),
            "routers": look.routers,
            "silent": list(look.silent),
            "groups": [_group(*each) for each in look.groups],
        }
    )


def _group(name: str, state: TopState | None, rates: TopRates) -> dict[str, Any]:
    return {
        "group": name,
        "ready": state.ready if state is not None else None,
        "warm": (state.warm or None) if state is not None else None,
        "requestsPerSecond": round(rates.requests, 3),
        "hitRate": round(rates.hit_rate, 4) if rates.hit_rate is not None else None,
        "ttftP50": round(rates.median, 4) if rates.median is not None else None,
        "ttftP99": round(rates.late, 4) if rates.late is not None else None,
        "inFlight": rates.in_flight,
        "waiting": rates.waiting,
        "replicas": [
            {
                "revision": each.revision,
                "slot": each.slot,
                "inFlight": each.in_flight,
                "backlogSeconds": each.wait,
                "sessions": each.sessions,
                "kvOfSessions": round(each.filled, 4),
            }
            for each in rates.replicas
        ],
    }
