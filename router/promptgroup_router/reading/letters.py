"""The messages between a router and the process that reads bodies: a document in JSON, and bytes. Does no I/O."""

import struct
from typing import Any, NamedTuple

import orjson

from promptgroup_router.apis.request import encoded

_LENGTHS = struct.Struct("!II")
"""Bytes of the document, bytes of the content."""


class Letter(NamedTuple):
    """A message."""

    document: dict[str, Any]
    content: bytearray


def head(document: dict[str, Any], size: int) -> bytes:
    """Return all of a letter but its content, which has `size` bytes and is sent after it, without a copy.

    Raises:
        ApiError: 400: the document holds a part of a body that is nested too deeply.
    """
    value = encoded(document)
    return _LENGTHS.pack(len(value), size) + value


class LetterReader:
    """A reader of one letter after the other; at most one is on its way at a time."""

    def __init__(self) -> None:
        self._lengths = bytearray()
        self._header = bytearray()
        self._content = bytearray()

    def feed(self, data: bytes) -> Letter | None:
        """Add received bytes. Return the letter once it is whole."""
        view = memoryview(data)
        missing = _LENGTHS.size - len(self._lengths)
        if missing:
            self._lengths += view[:missing]
            view = view[missing:]
            if len(self._lengths) < _LENGTHS.size:
                return None
            self._content = bytearray()
        value, size = _LENGTHS.unpack(self._lengths)
        missing = value - len(self._header)
        self._header += view[:missing]
        view = view[missing:]
        # the buffer grows as data arrives: to allocate all of it at once takes milliseconds
        self._content += view
        if len(self._header) < value or len(self._content) < size:
            return None
        letter = Letter(orjson.loads(self._header), self._content)
        self._lengths, self._header, self._content = bytearray(), bytearray(), bytearray()
        return letter
