"""Rewrites the numbers of cached tokens in answers, whole or streamed, in the fields of all APIs.

A value in `usage` whose name contains `cache` reports tokens from the engine's caches: `cached_tokens` in details of
the prompt (OpenAI), of each turn (vLLM's responses), `cache_read_input_tokens` and `cache_creation_input_tokens`
(Anthropic, whose `input_tokens` exclude both). So does such a value in SGLang's `meta_info`. Both are rewritten at any
depth, except inside fields that a client or a model has written.

An answer that cannot be parsed and contains such a name is not sent to any client. A name in quotes with a colon behind
it cannot be text of the model, since quotes inside a JSON string are escaped. All of it takes linear time.
"""

import json
from typing import Any

import orjson

from promptgroup_contract.caller_rules import CACHED_STEP, CachedTokens
from promptgroup_router.base.errors import RewriteError

MOST_BYTES = 32 * 2**20
"""Most bytes of a whole answer, or of one line of a stream, that are held to be rewritten."""

_READ, _CREATED, _INPUT = "cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens"
_CACHE = "cache"
_EXTENSION = "sglext"
"""SGLang's field for what OpenAI's API has no place for, the origins of cached tokens among it."""


_NAMES = (_CACHE.encode(), _EXTENSION.encode())
_HOLDERS = ("usage", "meta_info")
_WRITTEN = frozenset(("arguments", "input", "instructions", "metadata", "text", "tools"))
"""Fields whose objects a client or a model has written; they are passed on unchanged."""
_BLANKS = b" \t\r\n"


class TooLongError(RewriteError):
    """More would have to be held than MOST_BYTES."""


class UnreadableError(RewriteError):
    """The answer cannot be parsed, and may report cached tokens."""


class ReportedUsage:
    """The body of one answer on its way to the client."""

    __slots__ = ("_compressed", "_held", "_how", "_streamed")

    def __init__(self, how: CachedTokens, *, streamed: bool, compressed: bool = False) -> None:
        self._how = how
        self._compressed = compressed
        self._streamed = streamed
        self._held = bytearray()

    def feed(self, content: bytes) -> bytes:
        """Return what of a part of the body can go to the client.

        Raises:
            RewriteError: the answer is longer than can be rewritten, or cannot be read.
        """
        if self._compressed:
            raise UnreadableError  # although the request did not allow compression
        held = self._held
        held += content
        ready = b""
        if self._streamed and (end := held.rfind(b"\n", len(held) - len(content)) + 1):
            ready = bytes(held[:end])
            del held[:end]
        if len(held) > MOST_BYTES:
            raise TooLongError
        return self._events(ready) if ready else b""

    def finish(self) -> bytes:
        """Return what is left at the end of the body.

        Raises:
            RewriteError: it cannot be read.
        """
        left = bytes(self._held)
        self._held.clear()
        return self._events(left) if self._streamed else self._rewritten(left)

    def _events(self, lines: bytes) -> bytes:
        if not _may_tell(lines):
            return lines
        return b"".join(map(self._line, lines.splitlines(keepends=True)))

    def _line(self, line: bytes) -> bytes:
        if not _may_tell(line):
            return line
        if not line.startswith(b"data:"):
            return _checked(line)
        data = line[len(b"data:") :]
        end = data[len(data.rstrip(b"\r\n")) :]
        return b"data: " + self._rewritten(data.strip()) + end

    def _rewritten(self, document: bytes) -> bytes:
        if not _may_tell(document):
            return document
        try:
            try:
                doc = orjson.loads(document)
            except orjson.JSONDecodeError:
                doc = json.loads(document)  # it takes NaN and halves of surrogate pairs
            if not isinstance(doc, dict | list):
                return document
            _rewrite(doc, self._how)
            try:
                return orjson.dumps(doc)
            except orjson.JSONEncodeError:
                return json.dumps(doc, separators=(",", ":")).encode()  # it nests deeper
        except (ValueError, RecursionError):
            return _checked(document)


def _may_tell(text: bytes) -> bool:
    return _NAMES[0] in text or _NAMES[1] in text


def _checked(text: bytes) -> bytes:
    """Return a text that cannot be parsed, if it has no name in quotes that may concern caches.

    Raises:
        UnreadableError: it has one.
    """
    for name in _NAMES:
        at = text.find(name)
        while at >= 0:
            end = text.find(b'"', at)
            if end < 0:
                break
            at = end + 1
            while at < len(text) and text[at] in _BLANKS:
                at += 1
            if text[at : at + 1] == b":":
                raise UnreadableError
            at = text.find(name, at)
    return text


def _rewrite(doc: Any, how: CachedTokens) -> None:
    """Rewrite each `usage` of a document in its place."""
    left = [doc]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            value.pop(_EXTENSION, None)
            for name in _HOLDERS:
                if name in value:
                    value[name] = _told(value[name], how)
            left += [held for name, held in value.items() if name not in _WRITTEN and name not in _HOLDERS]


def _told(result: Any, how: CachedTokens) -> Any:
    """Return a `usage`, or several in a list, as a client may see it."""
    if isinstance(result, list):
        return [_told(item, how) for item in result]
    return _usage(result, how) if isinstance(result, dict) else result


def _usage(usage: dict[str, Any], how: CachedTokens) -> dict[str, Any]:
    result = {name: value for name, value in _details(usage, how).items() if name not in (_READ, _CREATED)}
    if _READ in usage or _CREATED in usage:
        read = _number(usage.get(_READ))
        total = _number(usage.get(_INPUT)) + read + _number(usage.get(_CREATED))
        shown = _rounded(read) if how is CachedTokens.ROUNDED else 0
        if _INPUT in usage:
            result[_INPUT] = total - shown
        if how is CachedTokens.ROUNDED:
            result |= {_READ: shown, _CREATED: 0}
    return result


def _details(result: dict[str, Any], how: CachedTokens) -> dict[str, Any]:
    """Return an object with its numbers of cached tokens rounded, or without them."""
    document: dict[str, Any] = {}
    for name, value in result.items():
        if _CACHE not in name:
            document[name] = _inner(value, how)
        elif how is CachedTokens.ROUNDED and isinstance(value, int):
            document[name] = _rounded(value)
    return document


def _inner(value: Any, how: CachedTokens) -> Any:
    if isinstance(value, dict):
        return _details(value, how)
    return [_inner(item, how) for item in value] if isinstance(value, list) else value


def _rounded(tokens: int) -> int:
    return tokens - tokens % CACHED_STEP


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
