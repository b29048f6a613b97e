"""Prints what callers have used. Does no I/O."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from promptgroup_cli.reach.usage_prometheus import CallerUsage
from promptgroup_cli.render.columns import columns

_HEADS = ("GROUP", "CALLER", "REQUESTS", "PROMPT", "CACHED", "HIT RATE", "ANSWER", "KEPT", "UNMETERED")


def table(rows: Sequence[CallerUsage], end: datetime, seconds: int) -> str:
    """Return a table, with the period above it and the sum below it."""
    start = end - timedelta(seconds=seconds)
    said = f"{_time(start)} to {_time(end)}"
    if not rows:
        return f"{said}: no caller that is known has used anything"
    total = CallerUsage("total", "", *(sum(getattr(row, name) for row in rows) for name in _COUNTS))
    cells = [_HEADS, *map(_cells, rows), *([_cells(total)] if len(rows) > 1 else [])]
    return "\n".join([said, "", *columns(cells, right=range(2, len(_HEADS)))])


def document(rows: Sequence[CallerUsage], end: datetime, seconds: int) -> str:
    """Return the same as JSON."""
    start = end - timedelta(seconds=seconds)
    return json.dumps({"start": _time(start), "end": _time(end), "usage": [asdict(row) for row in rows]}, indent=2)


_COUNTS = ("requests", "prompt", "cached", "answer", "kept", "unmetered")


def _cells(row: CallerUsage) -> tuple[str, ...]:
    rate = f"{100 * row.cached / row.prompt:.1f} %" if row.prompt else "-"
    counts = (f"{row.answer:,}", f"{row.kept:,}", f"{row.unmetered:,}")
    return row.group, row.caller, f"{row.requests:,}", f"{row.prompt:,}", f"{row.cached:,}", rate, *counts


def _time(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
