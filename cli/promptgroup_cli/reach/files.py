"""Files that are read at once, up to a limit. Messages name the file and never quote it."""

import sys
from pathlib import Path
from typing import BinaryIO

from promptgroup_cli.base.errors import InputError
from promptgroup_contract.command_line import did_you_mean

STDIN = "-"
MANIFEST_BYTES = 4 << 20
"""Limit of a manifest; an API server accepts requests of 3 MiB."""


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


def unreadable(name: str, error: OSError | ValueError) -> str:
    """Return why a file cannot be read, with a way out where there is one to name."""
    path = Path(name)
    match error:
        case FileNotFoundError() if path.parent.is_dir():
            meant = did_you_mean(path.name, (item.name for item in path.parent.iterdir()))
            return f"there is no such file in {path.parent.absolute()}{meant}"
        case FileNotFoundError():
            return f"there is no folder {path.parent.absolute()}"
        case IsADirectoryError():
            return "it is a folder: name a file in it"
        case PermissionError():
            return "it may not be read by you: change its mode, or ask its owner"
        case _:
            return getattr(error, "strerror", None) or str(error)


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
        raise InputError(f"{label}: {unreadable(name, error)}") from None
    if len(content) > limit:
        raise InputError(f"{label}: longer than {limit >> 20} MiB")
    return content


def read_text(name: str, limit: int, label: str = "") -> str:
    """Read a whole file as UTF-8 text; raises as `read_bytes` does."""
    try:
        return read_bytes(name, limit, label).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{label or shown(name)}: not text in UTF-8, at byte {error.start}") from None


def write_new(name: str, text: str, label: str) -> None:
    """Write a text to a file that does not exist yet: an existing one is not overwritten.

    Args:
        name: of the file.
        text: to be written.
        label: the flag that named the file, for the error.

    Raises:
        InputError: it cannot be written, or exists.
    """
    try:
        with Path(name).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"{label} {name}: {_unwritable(name, error)}") from None


def _unwritable(name: str, error: OSError) -> str:
    match error:
        case FileExistsError():
            return "it exists: name another file, or remove this one"
        case FileNotFoundError():
            return f"there is no folder {Path(name).parent.absolute()}: make it, or name a file in one that exists"
        case _:
            return error.strerror or str(error)
