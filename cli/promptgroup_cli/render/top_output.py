"""The traffic and load of groups as text or as JSON. Does no I/O."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from promptgroup_cli.reach.top_rates import ReplicaRate, TopRates
from promptgroup_cli.render.columns import columns
from promptgroup_cli.render.size_output import time
from promptgroup_operator.base.timestamps import rfc3339

UNMATCHED = "-"
"""The routers' name for requests that match no group."""

_HEADS = ("GROUP", "READY", "WARM", "REQ/S", "HIT RATE", "TTFT P50", "P99", "IN FLIGHT", "WAITING")
_SLOTS = ("REPLICA", "IN FLIGHT", "BACKLOG", "SESSIONS", "KV OF SESSIONS")


@dataclass(frozen=True, slots=True)
class TopState:
    """The part of a group's status that is shown."""

    ready: bool
    warm: str


@dataclass(frozen=True, slots=True)
class TopFrame:
    """The values of one moment."""

    now: datetime
    seconds: float
    """Time that the rates cover."""
    routers: int
    silent: tuple[str, ...]
    """Routers that did not answer."""
    states: Mapping[str, TopState]
    """Status by `namespace/group`; empty where no cluster was asked."""
    rates: Mapping[str, TopRates]

    @property
    def groups(self) -> Sequence[tuple[str, TopState | None, TopRates]]:
        """Return the groups of the cluster and of the routers; requests that match none are last, if there are any."""
        names = sorted({*self.states, *self.rates} - {UNMATCHED})
        if self.rates.get(UNMATCHED, TopRates()).requests:
            names.append(UNMATCHED)
        return [(name, self.states.get(name), self.rates.get(name, TopRates())) for name in names]


def table(frame: TopFrame) -> str:
    """Return the text for people."""
    return "\n".join(_lines(frame))


def _lines(frame: TopFrame) -> Iterator[str]:
    silent = f", no answer from {', '.join(frame.silent)}" if frame.silent else ""
    routers = "1 router" if frame.routers == 1 else f"{frame.routers} routers"
    yield f"{rfc3339(frame.now)}, the last {frame.seconds:.0f} s, {routers}{silent}"
    yield ""
    yield from columns([_HEADS, *(_row(*each) for each in frame.groups)])
    replicas = [each for _, _, rates in frame.groups for each in rates.replicas]
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


def document(frame: TopFrame) -> str:
    """Return the JSON for programs in one line; seconds, shares of 0 to 1, null for what is not known."""
    return json.dumps(
        {
            "time": rfc3339(frame.now),
            "seconds": round(frame.seconds, 3),
            "routers": frame.routers,
            "silent": list(frame.silent),
            "groups": [_group(*each) for each in frame.groups],
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
