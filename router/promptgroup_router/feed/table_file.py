"""Reads and writes table files: the file of `--table`, and the copy of the last good table for a restart."""

import contextlib
import os
import re
from collections.abc import Generator, Sequence
from pathlib import Path

import orjson
import xxhash

from promptgroup_contract.encoding import add_group, check_table, decode_entry, encode_table
from promptgroup_contract.table import Group, RoutingTable, TableError
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
    return parse(content_of(path), str(path))


def content_of(path: Path) -> bytes:
    """Return the content of a table file; raises as `read` does."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TableError(f"{path} is larger than {MAX_BYTES >> 20} MiB, which no table is")
    return content


def parse(content: bytes, name: str) -> RoutingTable:
    """Return the table in the content of a table file; raises TableError as `read` does.

    Args:
        content: of the file.
        name: of the file, for messages.
    """
    return at_once(parse_steps(content, name))


def parse_steps(
    content: bytes, name: str, decoded: dict[bytes, Group] | None = None
) -> Generator[None, None, RoutingTable]:
    """Return the table in the content of a table file, parsed in steps of a group; raises TableError as `read` does.

    Args:
        content: of the file.
        name: of the file, for messages.
        decoded: hash of a group's text → the group, of the previous content: these groups are not decoded again. It is
            replaced by that of this content.
    """
    document, listed = yield from _document_steps(content, name)
    table = check_table(document)
    before, now = decoded or {}, dict[bytes, Group]()
    groups: dict[str, Group] = {}
    listed.reverse()
    for index in range(len(listed)):
        item = listed.pop()
        digest = xxhash.xxh3_128_digest(item) if isinstance(item, bytes) else b""
        group = before.get(digest)
        if group is None:
            group = decode_entry(index, _value(item, name) if isinstance(item, bytes) else item)
            _check_prompts(group)
        if digest:
            now[digest] = group
        add_group(groups, group)
        yield
    if decoded is not None:
        decoded.clear()
        decoded.update(now)
    return RoutingTable(tuple(groups.values()), table.get("version", ""))


def _check_prompts(group: Group) -> None:
    for revision in group.revisions:
        if revision.prompt is not None and (fingerprint := revision.prompt.fingerprint) != revision.fingerprint:
            raise TableError(
                f"{group.namespace}/{group.name}: the prompt hashes to {fingerprint}, its fingerprint is "
                f"{revision.fingerprint}: correct one of them (promptgroup fingerprint FILE prints the hash)"
            )


_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]', re.DOTALL)
SMALL = 1 << 20
"""Bytes of a file that is parsed at once, which takes 3 ms."""
_ITEMS = 2
"""Depth at which the groups of a table file stand."""


def _document_steps(content: bytes, name: str) -> Generator[None, None, tuple[object, list[object]]]:
    """Return the document of a table file, and its groups: the text of each where the file is large.

    To parse a file of ten thousand groups at once takes a tenth of a second. So it is cut at the commas between them;
    the rest, and each of them, is valid JSON exactly if the whole is.
    """
    depth, begin, start, items = 0, -1, -1, list[object]()
    before, key = b"", b""
    for result in _TOKEN.finditer(content) if len(content) > SMALL else ():
        token = result[0]
        if token in b"{[":
            depth += 1
            if token == b"[" and depth == _ITEMS and key == b'"groups"' and before == b":":
                begin = start = result.end()
        elif token in b"}]":
            depth -= 1
            if begin >= 0 and depth < _ITEMS:
                last = content[start : result.start()]
                items += [last] if items or last.strip() else []
                rest = content[:begin] + content[result.start() :]
                return _value(rest, name), items
        elif token == b"," and begin >= 0 and depth == _ITEMS:
            items.append(content[start : result.start()])
            start = result.end()
            yield
        elif depth == 1 and token.startswith(b'"') and before in b"{,":
            key = token
        before = token
    document = _value(content, name)  # it is small, or its groups are no list, or have their name in another form
    listed = document.get("groups") if isinstance(document, dict) else None
    return document, list(listed) if isinstance(listed, list) else []


def _value(text: bytes, name: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise TableError(f"{name} is not JSON: {error}") from None
