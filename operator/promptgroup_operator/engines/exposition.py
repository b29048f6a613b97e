"""Lines of Prometheus' text exposition format. Does no I/O and reads no clock.

Pages are written by engines and routers, which may be hostile, so the time for a line is linear in its length: a label
is matched where the previous one ended, never searched for.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_LINE = 8192
"""Maximum length of a line in characters. Longer lines are skipped: metrics that are read here are far shorter."""
BLOCK = 1 << 16
"""Characters that are split into lines at once: a list of the lines of a whole page takes twenty times the page."""
MAX_NUMBER = 1e15
"""Largest value that is accepted as a count: a thousand years of a million tokens per minute. Sums of such values are
finite."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_LABEL = re.compile(r'\s*+([a-zA-Z_][a-zA-Z0-9_]*+)="([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+([,}])')
_VALUE = re.compile(r"\s*+(\S++)")
_ESCAPE = re.compile(r"\\(.)")


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: dict[str, str]
    value: str
    """The value as text; `number` parses it."""


def samples(page: str, prefixes: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the samples whose names begin with one of the prefixes.

    Lines that are no samples, and lines of more than MAX_LINE characters, are skipped.
    """
    for line in _lines(page):
        if line.startswith(prefixes) and len(line) <= MAX_LINE:
            sample = _sample(line)
            if sample is not None:
                yield sample


def _lines(page: str) -> Iterator[str]:
    at = 0
    while at < len(page):
        end = page.find("\n", at + BLOCK)
        end = end if end >= 0 else len(page)
        yield from page[at:end].split("\n")
        at = end + 1


def _sample(line: str) -> Sample | None:
    name = _NAME.match(line)
    if name is None:
        return None
    at, labels = name.end(), {}
    if line.startswith("{", at):
        at += 1
        closed = line.startswith("}", at)
        at += closed
        while not closed:
            label = _LABEL.match(line, at)
            if label is None:
                return None
            labels[label[1]] = _ESCAPE.sub(_unescaped, label[2]) if "\\" in label[2] else label[2]
            at, closed = label.end(), label[3] == "}"
            if not closed and line.startswith("}", at):  # a comma may follow the last label
                at, closed = at + 1, True
    elif not line.startswith((" ", "\t"), at):
        return None
    value = _VALUE.match(line, at)
    return Sample(name[0], labels, value[1]) if value is not None else None


def _unescaped(result: re.Match[str]) -> str:
    return "\n" if result[1] == "n" else result[1]


def number(text: str) -> float | None:
    """Return a count, a gauge or a sum; None if it is not a number from 0 to MAX_NUMBER."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= MAX_NUMBER else None  # NaN is not


def bound(text: str) -> float | None:
    """Return the upper bound of a bucket, which may be infinite; None if it is not a number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value
