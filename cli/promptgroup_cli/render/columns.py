"""Facts and tables as text, the tables as kubectl prints them. Pure."""

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

WIDTH = 100
"""Columns of a line; a table is as wide as it must be."""
GAP = 3
"""Blanks between two columns of a table."""
INDENT = 13
"""Columns of the names before facts."""


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, each column as wide as its widest cell; a row may end early."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return [
        (" " * GAP).join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows
    ]


def fact(name: str, text: str) -> list[str]:
    """Lines of a named fact; without a name it belongs to the one before."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=name.ljust(INDENT),
        subsequent_indent=" " * INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )
