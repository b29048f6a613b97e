"""Reads and writes table files: the file of `--table`, and the copy of the last good table for a restart."""

import contextlib
import os
from collections.abc import Generator, Sequence
from pathlib import Path

import orjson

from promptgroup_contract.encoding import decode_table, encode_table
from promptgroup_contract.table import RoutingTable, TableError
from promptgroup_router.base.steps import at_once

MAX_BYTES = 64 << 20
"""Most bytes of a table file: seventy prompts of the largest size, or thousands of common ones."""


def write(path: Path, table: RoutingTable) -> None:
    """Replace the file atomically: readers see the old one or the new one, also after a power loss.

    Raises:
        OSError: the file cannot be written.
    """
    # it may hold the text of prompts from Secrets
    replace_file(path, at_once(encode_steps(table)))


def encode_steps(table: RoutingTable) -> Generator[None, None, list[bytes]]:
    """Return the content of a table file in pieces, made in steps of a group."""
    head = orjson.dumps(encode_table(RoutingTable((), table.version)) | {"groups": []}).removesuffix(b"]}")
    pieces = [head]
    for group in table.groups:
        listed: list[object] = encode_table(RoutingTable((group,)))["groups"]
        pieces.append((b"," if len(pieces) > 1 else b"") + orjson.dumps(listed[0]))
        yield
    return [*pieces, b"]}"]


def replace_file(path: Path, content: Sequence[bytes]) -> None:
    """Replace a file atomically, readable by its owner only.

    Args:
        path: of the file.
        content: its parts.

    Raises:
        OSError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, opened with its mode
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def read(path: Path) -> RoutingTable:
    """Read a table file.

    Raises:
        OSError: the file cannot be read.
        TableError: the file holds no table; the message names the field, the value and what is expected.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TableError(f"{path} is larger than {MAX_BYTES >> 20} MiB, which no table is")
    return parse(content, str(path))


def parse(content: bytes, name: str) -> RoutingTable:
    """Return the table in the content of a table file; raises TableError as `read` does.

    Args:
        content: of the file.
        name: of the file, for messages.
    """
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise TableError(f"{name} is not JSON: {error}") from None
    table = decode_table(data)
    for group in table.groups:
        for revision in group.revisions:
            if revision.prompt is not None and (fingerprint := revision.prompt.fingerprint) != revision.fingerprint:
                raise TableError(
                    f"{group.namespace}/{group.name}: the prompt hashes to {fingerprint}, its fingerprint is "
                    f"{revision.fingerprint}: correct one of them (promptgroup fingerprint FILE prints the hash)"
                )
    return table
