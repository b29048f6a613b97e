"""What runs: a load that was observed, and what other numbers of replicas would do with it. Pure.

By the model that the operator itself sizes by, so that its next decision can be seen coming.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from promptgroup_cli.render.size_output import row, time
from promptgroup_operator.sizing.limits import Limit, Target, exceeded, least
from promptgroup_operator.sizing.model import fit
from promptgroup_operator.world.load import GroupLoad

AROUND = 2
"""Replicas more and fewer than there are that are shown."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What so many replicas would do with the load."""

    replicas: int
    hit_rate: float
    utilization: float
    ttft: float
    """Seconds to the first token, p95."""
    lacks: Limit | None


@dataclass(frozen=True, slots=True)
class ObservedSize:
    """What is said of a group that runs."""

    observed: float
    """Replicas that the load was observed with."""
    rate: float
    prompt_tokens: float
    """Of a request, the mean."""
    needed: int | None
    """Replicas that keep all limits; None when no number up to the most does."""
    prospects: tuple[Prospect, ...]


def running(load: GroupLoad, target: float | None, most: int) -> ObservedSize:
    """Size what runs.

    Args:
        load: as it was observed.
        target: seconds to the first token, p95; None when the load alone counts.
        most: replicas to look at.

    Raises:
        ValueError: too little is known; says why.
    """
    model = fit(load)
    if model is None:
        raise ValueError(load.stale or "too little is known of the engines: no readings, or no proven prefill rate")
    wanted, present = Target(target), max(1, round(model.observed))
    needed = least(model, 1, most, wanted)
    shown = sorted({*range(max(1, present - AROUND), present + AROUND + 1), *((needed,) if needed <= most else ())})
    return ObservedSize(
        observed=model.observed,
        rate=model.requests,
        prompt_tokens=model.prompt_tokens / model.requests if model.requests else 0.0,
        needed=needed if needed <= most else None,
        prospects=tuple(
            Prospect(n, model.hit_rate(n), model.utilisation(n), model.ttft(n), exceeded(model, n, wanted))
            for n in shown
        ),
    )


_HEADS = ("replicas", "hit rate", "TTFT p95", "busy", "lacks")
_WIDTHS = (8, 10, 11, 7, 26)


def table(found: ObservedSize) -> str:
    """For people."""
    return "\n".join(_lines(found))


def document(found: ObservedSize) -> str:
    """For programs; times in seconds, shares 0 to 1."""
    return json.dumps(
        {
            "observed": {
                "replicas": round(found.observed, 2),
                "requestsPerSecond": round(found.rate, 3),
                "promptTokens": round(found.prompt_tokens),
            },
            "replicas": found.needed,
            "prospects": [
                {
                    "replicas": each.replicas,
                    "hitRate": round(each.hit_rate, 4),
                    "utilization": round(each.utilization, 4),
                    "ttftP95": round(each.ttft, 4),
                    "lacks": each.lacks,
                }
                for each in found.prospects
            ],
        },
        indent=2,
    )


def _lines(found: ObservedSize) -> Iterator[str]:
    requests = f"{found.rate:,.1f} requests/s of {found.prompt_tokens:,.0f} tokens"
    yield f"observed     {found.observed:.1f} replicas, {requests}"
    yield f"needs        {found.needed if found.needed is not None else 'more replicas than were looked at'}"
    yield ""
    yield row(_HEADS, _WIDTHS)
    for each in found.prospects:
        lacks = each.lacks.value if each.lacks is not None else "-"
        cells = (str(each.replicas), f"{each.hit_rate:.1%}", time(each.ttft), f"{each.utilization:.0%}", lacks)
        yield row(cells, _WIDTHS)
