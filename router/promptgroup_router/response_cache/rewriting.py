"""Splits an answer into events, marks tokens that no engine computed, and gives an answer a new id.

Does no I/O and reads no clock. All other bytes of an answer stay as the engine sent them.
"""

import re
from typing import Any

import orjson

from promptgroup_router.apis.request import ApiKind

_END = re.compile(rb"\n\r?\n")
"""The end of an event: an empty line."""
_PLAIN_ID = re.compile(rb"([A-Za-z]{1,32}[-_])?[A-Za-z0-9_.:-]{1,200}")
"""An id that needs no escapes in JSON."""


class EventSplitter:
    """Splits a stream into events, independent of the parts in which it arrives."""

    __slots__ = ("_data", "_seen")

    def __init__(self) -> None:
        self._data = bytearray()
        self._seen = 0

    def take(self, data: bytes) -> list[bytes]:
        """Add bytes. Return the complete events, with the empty lines that end them."""
        self._data += data
        result, start = [], 0
        while (end := _END.search(self._data, max(start, self._seen - 2))) is not None:
            result.append(bytes(self._data[start : end.end()]))
            start = self._seen = end.end()
        if start:
            del self._data[:start]
        self._seen = len(self._data)
        return result

    def flush(self) -> bytes:
        """Return and discard the bytes after the last complete event."""
        rest, self._data, self._seen = bytes(self._data), bytearray(), 0
        return rest


def id_of(piece: bytes) -> bytes:
    """Return the id of an answer from its body or from an event; empty if there is none."""
    if b'"id"' not in piece:
        return b""
    doc = document(piece)
    message = doc.get("message")
    result = doc.get("id") or (message.get("id") if isinstance(message, dict) else None)
    plain = result.encode() if isinstance(result, str) else b""
    return plain if _PLAIN_ID.fullmatch(plain) else b""


def new_id(old: bytes, unique: bytes) -> bytes:
    """Return an id of the same kind."""
    prefix = _PLAIN_ID.fullmatch(old)
    return ((prefix[1] or b"") if prefix is not None else b"") + unique


def with_id(piece: bytes, old: bytes, new: bytes) -> bytes:
    """Return a piece of an answer with another id.

    Quotes within a JSON string are escaped, so that the name in quotes is never a part of a text; a text alone may be
    the same as the id.
    """
    if not old or old not in piece:
        return piece
    for name in (b'"id":"', b'"id": "'):  # as engines write them
        piece = piece.replace(b'%b%b"' % (name, old), b'%b%b"' % (name, new))
    return piece


def marked(kind: ApiKind, piece: bytes) -> bytes:
    """Return a piece with its prompt tokens marked as cached; the piece itself if it reports none."""
    if b'"usage"' not in piece:
        return piece
    doc = document(piece)
    message = doc.get("message")
    usages = [item.get("usage") for item in (doc, message) if isinstance(item, dict)]
    changed = [_mark(kind, usage) for usage in usages if isinstance(usage, dict)]
    if not any(changed):
        return piece
    text = orjson.dumps(doc)
    if piece.lstrip().startswith(b"{"):
        return text
    lines = [line for line in piece.splitlines(keepends=True) if not line.startswith(b"data:")]
    end = next((at for at, line in enumerate(lines) if not line.strip()), len(lines))
    ending = b"\r\n" if b"\r\n" in piece else b"\n"
    return b"".join([*lines[:end], b"data: ", text, ending, *lines[end:]])


def _mark(kind: ApiKind, usage: dict[str, Any]) -> bool:
    """Mark the prompt tokens of a usage as cached. Return True if it reports any."""
    if kind is ApiKind.MESSAGES:
        parts = [usage.get(name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
        if not isinstance(parts[0], int):
            return False
        usage["cache_read_input_tokens"] = sum(part for part in parts if isinstance(part, int))
        usage["input_tokens"] = 0
        if parts[2] is not None:
            usage["cache_creation_input_tokens"] = 0
        return True
    prompt = usage.get("prompt_tokens")
    if not isinstance(prompt, int):
        return False
    details = usage.get("prompt_tokens_details")
    usage["prompt_tokens_details"] = (details if isinstance(details, dict) else {}) | {"cached_tokens": prompt}
    return True


def document(piece: bytes) -> dict[str, Any]:
    """Return the object of a body or of an event; an empty one if it has none."""
    data = piece
    if not piece.lstrip().startswith(b"{"):
        data = b"\n".join(line[5:] for line in piece.splitlines() if line.startswith(b"data:"))
    try:
        doc = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return doc if isinstance(doc, dict) else {}
