"""Adds up the pages of metrics of several workers, so that they read as one router's. Does no I/O and reads no clock.

Counters and histograms are added. Gauges are added where each worker has its own part (connections), and taken once
where all describe the same thing (the table). Counters of workers that have ended stay in the sums: a sum that fell
would look like a restart to Prometheus and to the operator, and what is left would be counted twice.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from operator import attrgetter
from statistics import median_low

from promptgroup_router.base.exposition import PROMETHEUS, TOTAL, Exemplar, TextFormat, number
from promptgroup_router.base.metrics import PREFIX
from promptgroup_router.undeclared.unmatched import UNMATCHED

ADDED = frozenset({
    "connections", "inflight", "responses_bytes", "responses_kept", "revision_session_tokens", "revision_sessions",
    "revision_waiting", "semantic_questions", "slot_session_tokens", "slot_sessions", "waiting", "workers",
})  # fmt: skip
"""Gauges of which each worker has a part: a session is counted by the worker that served it last."""

ONCE: dict[str, Callable[[list[float]], float]] = {
    "alias_conflicts": max,
    "build_info": max,
    "conflicts": max,
    "departed_at_bytes": median_low,
    "keys_moved_ratio": max,
    "name_conflicts": max,
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

    help_text: str = ""
    kind: str = ""
    values: dict[str, float] = field(default_factory=dict)
    """Series (name and labels as written) → value."""
    exemplars: dict[str, Exemplar] = field(default_factory=dict)
    """Series → its exemplar."""


_EXEMPLAR_BEGINS = ' # {trace_id="'
_EXEMPLAR = re.compile(r'(.*) # \{trace_id="([0-9a-f]{32})"\} (\S+) (\S+)')
_SUBJECT = re.compile(r'\{group="((?:[^"\\]|\\.)*)"(?:,revision="((?:[^"\\]|\\.)*)")?')

Page = dict[str, Family]
"""Name of a metric without the prefix → its lines, in the page's order."""


def parse(text: str) -> Page:
    """Parse a page as this router writes it, in either format; lines that cannot be read are passed over."""
    page: Page = {}
    family, help_text = Family(), ""
    for line in text.split("\n"):
        words = line.split(" ", 3)
        if words[0] == "#":
            if len(words) == 4 and words[1] == "HELP":
                help_text = words[3]
            elif len(words) == 4:
                name, kind = words[2].removeprefix(PREFIX), words[3]
                name = name.removesuffix(TOTAL) + TOTAL if kind == "counter" else name
                family = page.setdefault(name, Family(help_text, kind))
            continue
        found = _EXEMPLAR.fullmatch(line) if _EXEMPLAR_BEGINS in line else None
        series, _, written = (found[1] if found is not None else line).rpartition(" ")
        try:
            value = float(written)
            exemplar = Exemplar(int(found[2], 16), float(found[3]), float(found[4])) if found is not None else None
        except ValueError:
            continue
        if isfinite(value):
            family.values[series] = value
            if exemplar is not None:
                family.exemplars[series] = exemplar
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
            family.help_text,
            family.kind,
            {series: value for series, value in family.values.items() if _subject(series) in alive},
            {series: exemplar for series, exemplar in family.exemplars.items() if _subject(series) in alive},
        )
        for name, family in ended.items()
    }


def _subject(series: str) -> tuple[str, str]:
    """Return the group and the revision that a series is about; empty where it is about none."""
    found = _SUBJECT.search(series)
    return (found[1], found[2] or "") if found is not None else ("", "")


def text(page: Page, form: TextFormat = PROMETHEUS) -> str:
    """Return the page as text."""
    return form.page(line for name, family in page.items() for line in _lines(PREFIX + name, family, form))


def _merged(families: Sequence[Family], rule: Callable[[list[float]], float]) -> Family:
    first = families[0]
    if len(families) == 1:
        return Family(first.help_text, first.kind, dict(first.values), dict(first.exemplars))
    values: dict[str, list[float]] = {}
    exemplars: dict[str, Exemplar] = {}
    for family in families:
        for series, value in family.values.items():
            values.setdefault(series, []).append(value)
        for series, exemplar in family.exemplars.items():
            exemplars[series] = max(exemplar, exemplars.get(series, exemplar), key=attrgetter("at"))
    return Family(first.help_text, first.kind, {series: rule(each) for series, each in values.items()}, exemplars)


def _lines(name: str, family: Family, form: TextFormat) -> Iterable[str]:
    yield from form.heading(name, family.help_text, family.kind)
    for series, value in family.values.items():
        found = family.exemplars.get(series) if form.openmetrics else None
        yield f"{series} {number(value)}{found.text() if found is not None else ''}"
