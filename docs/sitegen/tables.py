"""Markdown tables."""

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; each cell becomes one line."""
    lines = [_row(header), "|" + "---|" * len(header)]
    return "\n".join([*lines, *(_row(row) for row in rows)]) + "\n"


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter and ends with a full stop; an empty one stays empty."""
    text = " ".join(text.split())
    if not text:
        return ""
    return (text[0].upper() + text[1:]) if text.endswith((".", "!", "?")) else text[0].upper() + text[1:] + "."


def _row(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {_cell(cell)} " if cell else " " for cell in cells) + "|"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))
