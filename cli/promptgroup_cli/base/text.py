"""Turns values into the texts of all commands: tables, named texts, counts, times. Does no I/O.

`columns` prints a table of a complete list of rows, `line` one row of a table that is printed while it is computed, and
`fact` a named text.
"""

import math
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest

WIDTH = 100
"""Columns of a line; a table is as wide as its cells."""
GAP = 3
"""Blanks between two columns of a table."""
INDENT = 14
"""Columns of the names of facts."""


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return the lines of a table; a row may end early.

    Args:
        rows: the heads and the rows.
        right: indexes of the columns that are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return [line(row, widths, right) for row in rows]


def line(cells: Sequence[str], widths: Sequence[int], right: Collection[int] = (), gap: int = GAP) -> str:
    """Return one row of a table, with a width for each column and blanks between them."""
    padded = (
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=False))
    )
    return (" " * gap).join(padded).rstrip()


def fact(name: str, text: str) -> list[str]:
    """Return the lines of a named text; one without a name belongs to the fact before."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=(f"{name}:" if name else "").ljust(INDENT),
        subsequent_indent=" " * INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )


def facts(name: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of several texts under one name."""
    for number, text in enumerate(texts):
        yield from fact("" if number else name, text)


def counted(count: int, thing: str) -> str:
    """Return a count with its noun, as in `1 pod` and `1,200 pods`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def duration(seconds: float) -> str:
    """Return a time, as in `80 ms` and `12 s`; `never` for one without an end."""
    if math.isinf(seconds):
        return "never"
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.0f} s"
