"""Rewrites what an answer says of its cached tokens, whole or streamed, in the fields of all APIs.

A number in `usage` whose name has `cache` in it says what engines had in their caches: `cached_tokens` in details of
the prompt (OpenAI), of each turn (vLLM's responses), `cache_read_input_tokens` and `cache_creation_input_tokens`
(Anthropic, whose `input_tokens` are those of neither). Does no I/O and reads no clock.
"""

from typing import Any

import orjson

from promptgroup_router.contract.caller_rules import CACHED_STEP, CachedTokens

MOST_BYTES = 32 * 2**20
"""Most bytes of a whole answer, or of one line of a stream, that are held to be rewritten."""

_READ, _CREATED, _INPUT = "cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens"
_CACHE = "cache"
_EXTENSION = "sglext"
"""SGLang's field for what OpenAI's API has no place for, the origins of cached tokens among it."""


class TooLongError(Exception):
    """More would have to be held than MOST_BYTES."""


class ReportedUsage:
    """The body of one answer on its way to the client."""

    __slots__ = ("_held", "_how", "_streamed")

    def __init__(self, how: CachedTokens, *, streamed: bool) -> None:
        self._how = how
        self._streamed = streamed
        self._held = bytearray()

    def feed(self, content: bytes) -> bytes:
        """Return what of a part of the body can go to the client.

        Raises:
            TooLongError: the answer is longer than can be rewritten.
        """
        held = self._held
        held += content
        ready = b""
        if self._streamed and (end := held.rfind(b"\n") + 1):
            ready = bytes(held[:end])
            del held[:end]
        if len(held) > MOST_BYTES:
            raise TooLongError
        return self._events(ready) if ready else b""

    def finish(self) -> bytes:
        """Return what is left at the end of the body."""
        left = bytes(self._held)
        self._held.clear()
        return self._events(left) if self._streamed else self._rewritten(left)

    def _events(self, lines: bytes) -> bytes:
        if _CACHE.encode() not in lines and _EXTENSION.encode() not in lines:
            return lines
        return b"".join(map(self._line, lines.splitlines(keepends=True)))

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:") or (_CACHE.encode() not in line and _EXTENSION.encode() not in line):
            return line
        data = line[len(b"data:") :]
        end = data[len(data.rstrip(b"\r\n")) :]
        return b"data: " + self._rewritten(data.strip()) + end

    def _rewritten(self, document: bytes) -> bytes:
        try:
            doc = orjson.loads(document)
        except orjson.JSONDecodeError:
            return document
        if not isinstance(doc, dict):
            return document
        doc.pop(_EXTENSION, None)
        for holder in (doc, doc.get("message"), doc.get("response")):
            if isinstance(holder, dict) and isinstance(usage := holder.get("usage"), dict):
                holder["usage"] = _usage(usage, self._how)
        return orjson.dumps(doc)


def _usage(usage: dict[str, Any], how: CachedTokens) -> dict[str, Any]:
    told = {name: value for name, value in _details(usage, how).items() if name not in (_READ, _CREATED)}
    if _READ in usage or _CREATED in usage:
        read = _number(usage.get(_READ))
        total = _number(usage.get(_INPUT)) + read + _number(usage.get(_CREATED))
        shown = _rounded(read) if how is CachedTokens.ROUNDED else 0
        if _INPUT in usage:
            told[_INPUT] = total - shown
        if how is CachedTokens.ROUNDED:
            told |= {_READ: shown, _CREATED: 0}
    return told


def _details(found: dict[str, Any], how: CachedTokens) -> dict[str, Any]:
    """Return an object with what it says of caches rounded, or without it."""
    told: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            told[name] = _details(value, how)
        elif _CACHE not in name:
            told[name] = value
        elif how is CachedTokens.ROUNDED and isinstance(value, int):
            told[name] = _rounded(value)
    return told


def _rounded(tokens: int) -> int:
    return tokens - tokens % CACHED_STEP


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
