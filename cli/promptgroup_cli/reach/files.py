"""Files that are read at once, up to a limit. Messages name the file and never quote it."""

import sys
from pathlib import Path
from typing import BinaryIO

from promptgroup_cli.base.errors import InputError

STDIN = "-"
MANIFEST_BYTES = 4 << 20
"""Limit of a manifest; an API server takes requests of 3 MiB."""


def shown(name: str) -> str:
    """Return a file's name for people."""
    return "standard input" if name == STDIN else name


def standard_input() -> BinaryIO:
    """Return standard input as bytes.

    Raises:
        InputError: it is closed (`<&-`).
    """
    if sys.stdin is None:
        raise InputError(f"{shown(STDIN)}: it is closed: name a FILE, or send one in with <")
    return sys.stdin.buffer


def read_bytes(name: str, limit: int, label: str = "") -> bytes:
    """Read a whole file.

    Args:
        name: of the file; `-` for standard input.
        limit: most bytes that it may have.
        label: of the file in messages; its name when empty.

    Raises:
        InputError: the file cannot be read, or is longer.
    """
    label = label or shown(name)
    try:
        if name == STDIN:
            content = standard_input().read(limit + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise InputError(f"{label}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > limit:
        raise InputError(f"{label}: longer than {limit >> 20} MiB")
    return content


def read_text(name: str, limit: int, label: str = "") -> str:
    """Read a whole file as UTF-8 text; raises as `read_bytes` does."""
    try:
        return read_bytes(name, limit, label).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{label or shown(name)}: not text in UTF-8, at byte {error.start}") from None
