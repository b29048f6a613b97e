"""A table of text as kubectl prints them. Pure."""

from collections.abc import Sequence
from itertools import zip_longest

GAP = 3
"""Blanks between two columns."""


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, each column as wide as its widest cell; a row may end early."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return [
        (" " * GAP).join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows
    ]
