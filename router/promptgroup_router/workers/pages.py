"""Adds up the pages of metrics of several workers, so that they read as one router's. Does no I/O and reads no clock.

Counters and histograms are added. Gauges are added where each worker has its own part (connections), and taken once
where all describe the same thing (the table). Counters of workers that have ended stay in the sums: a sum that fell
would look like a restart to Prometheus and to the operator, and what is left would be counted twice.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median_low

from promptgroup_router.base.metrics import PREFIX, number
from promptgroup_router.routing.unmatched import UNMATCHED

ADDED = frozenset({
    "connections", "inflight", "responses_bytes", "responses_kept", "revision_session_tokens", "revision_sessions",
    "revision_waiting", "semantic_questions", "slot_session_tokens", "slot_sessions", "waiting", "workers",
})  # fmt: skip
"""Gauges of which each worker has a part: a session is counted by the worker that served it last."""

ONCE: dict[str, Callable[[list[float]], float]] = {
    "build_info": max,
    "conflicts": max,
    "departed_at_bytes": median_low,
    "keys_moved_ratio": max,
    "peer_key": min,
    "peers": max,
    "responses_store_up": min,
    "table_age_seconds": max,
    "table_info": max,
}
"""Gauges that say the same in each worker, or nearly, and which of the values stands for all."""


@dataclass(slots=True)
class Family:
    """A metric's lines."""

    comments: list[str] = field(default_factory=list)
    kind: str = ""
    values: dict[str, float] = field(default_factory=dict)
    """Series (name and labels as written) → value."""


_SUBJECT = re.compile(r'\{group="((?:[^"\\]|\\.)*)"(?:,revision="((?:[^"\\]|\\.)*)")?')

Page = dict[str, Family]
"""Name of a metric without the prefix → its lines, in the page's order."""


def parse(text: str) -> Page:
    """Parse a page as this router writes it; lines that cannot be read are passed over."""
    page: Page = {}
    family = Family()
    for line in text.split("\n"):
        words = line.split(" ", 3)
        if words[0] == "#" and len(words) == 4:
            family = page.setdefault(words[2].removeprefix(PREFIX), Family())
            family.comments.append(line)
            if words[1] == "TYPE":
                family.kind = words[3]
            continue
        series, _, written = line.rpartition(" ")
        try:
            value = float(written)
        except ValueError:
            continue
        if isfinite(value):
            family.values[series] = value
    return page


def merge(pages: Sequence[Page]) -> Page:
    """Return the page of all workers; `peers` are the routers beside them."""
    gathered: dict[str, list[Family]] = {}
    for page in pages:
        for name, family in page.items():
            gathered.setdefault(name, []).append(family)
    found = {name: _merged(families, ONCE.get(name, sum)) for name, families in gathered.items()}
    if "peers" in found:
        siblings = len(gathered["peers"]) - 1
        peers = found["peers"].values
        found["peers"].values = {series: max(0.0, value - siblings) for series, value in peers.items()}
    return found


def counters(page: Page) -> Page:
    """Return what is left of a worker that has ended: its counters and histograms."""
    return {name: family for name, family in page.items() if family.kind in ("counter", "histogram")}


def still_told(ended: Page, running: Sequence[Page]) -> Page:
    """Return the counters of workers that have ended, without those of groups and revisions that are gone.

    Workers tell what they counted for a group for a while after it has left the table, and of every revision in the
    table that nobody waits for it. So what none of them tells anything of is gone.
    """
    running = [page for page in running if page.get("table_info", Family()).values]  # those that have a table
    if not running:
        return ended
    alive = {_subject(series) for page in running for family in page.values() for series in family.values}
    alive |= {(group, "") for group, _ in alive} | {("", ""), (UNMATCHED, "")}
    return {
        name: Family(
            family.comments,
            family.kind,
            {series: value for series, value in family.values.items() if _subject(series) in alive},
        )
        for name, family in ended.items()
    }


def _subject(series: str) -> tuple[str, str]:
    """Return the group and the revision that a series is about; empty where it is about none."""
    found = _SUBJECT.search(series)
    return (found[1], found[2] or "") if found is not None else ("", "")


def text(page: Page) -> str:
    """Return the page as text."""
    return "".join(f"{line}\n" for family in page.values() for line in _lines(family))


def _merged(families: Sequence[Family], rule: Callable[[list[float]], float]) -> Family:
    if len(families) == 1:
        return Family(families[0].comments, families[0].kind, dict(families[0].values))
    values: dict[str, list[float]] = {}
    for family in families:
        for series, value in family.values.items():
            values.setdefault(series, []).append(value)
    return Family(families[0].comments, families[0].kind, {series: rule(each) for series, each in values.items()})


def _lines(family: Family) -> Iterable[str]:
    yield from family.comments
    for series, value in family.values.items():
        yield f"{series} {number(value)}"
