"""Reads the token counts of an answer while it is relayed, streamed or whole. Does no I/O and reads no clock.

Engines report the counts in `usage`, a member of the answer itself, or of what an event has of it:

| API       | whole answer | event of a stream                                       |
|-----------|--------------|---------------------------------------------------------|
| chat, text| `usage`      | `usage`                                                 |
| responses | `usage`      | `response.usage`                                        |
| messages  | `usage`      | `message.usage` of the first event, `usage` of the last |

A `usage` that stands elsewhere is none: answers repeat what a client has written (`metadata`, `instructions`, tools),
and their text is the model's. Of two members with one name the last one counts, as for every reader of JSON; engines
write one. Of a stream the last event with counts does.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from promptgroup_router.base.errors import HttpError
from promptgroup_router.documents.members import MemberReader
from promptgroup_router.http11.framing import Chunked

MOST_PARTS = 64
"""Most parts that wait to be read."""
MOST_WAITING = 8192
"""Most bytes of them."""
MOST_PARSED = 65_536
"""Most bytes of a whole answer, or of an event, that are parsed at once; longer ones are read in passing."""

_USAGE = b"usage"
_NAME = b'"usage"'
_DATA = b"data:"
MOST_TOKENS = 10**8
"""Largest count that is accepted: more tokens than any prompt has."""
_BLANKS = b" \t\r\n"
_OBJECT = b"{"
_NOTHING = b":null"
"""The value in each event before, where engines report the usage at the end."""


@dataclass(slots=True)
class Usage:
    """The token counts that an engine reports for a prompt and its answer."""

    prompt_tokens: int
    cached_tokens: int | None
    """None if the engine does not report it."""
    completion_tokens: int = 0
    """Tokens of the answer; 0 if the engine does not report it."""


class _Document:
    """One JSON document, of which the members `usage` are read: its own, and those of a member `under`."""

    __slots__ = ("_held", "_readers", "_under")

    def __init__(self, under: tuple[str, ...]) -> None:
        self._under = under
        self._held = b""
        """The document, until it is longer than is parsed at once."""
        self._readers: list[MemberReader] | None = None
        """Those of a longer one."""

    def feed(self, data: bytes) -> None:
        """Add a part of the document."""
        if self._readers is None:
            self._held += data
            if len(self._held) > MOST_PARSED:
                self._readers, self._held = self._read(self._held), b""
            return
        for reader in self._readers:
            reader.feed(data)

    def usages(self) -> list[dict[str, Any]]:
        """Return the members that are objects, in the order of the places where they may stand."""
        readers = self._readers
        if readers is None:
            doc = _object(self._held)
            if doc is not None:
                return self._parsed(doc)
            # it has not ended, or has what other readers of JSON take: NaN, halves of surrogate pairs
            readers = self._read(self._held)
        return [result for reader in readers if (result := _object(reader.value)) is not None]

    def _read(self, data: bytes) -> list[MemberReader]:
        readers = [MemberReader(_USAGE, under.encode()) for under in self._under]
        for reader in readers:
            reader.feed(data)
        return readers

    def _parsed(self, doc: dict[str, Any]) -> list[dict[str, Any]]:
        holders = [doc.get(under) if under else doc for under in self._under]
        usages = [holder.get("usage") for holder in holders if isinstance(holder, dict)]
        return [item for item in usages if isinstance(item, dict)]


class Tail:
    """The token counts of an answer, as far as it has arrived. Parts are read many at a time: an event costs 0.1 µs."""

    __slots__ = (
        "_bytes", "_chunks", "_document", "_events", "_line", "_parts", "_rest", "_streams", "_usage", "_whole",
    )  # fmt: skip

    def __init__(self, whole: tuple[str, ...] = ("",), events: tuple[str, ...] = ("",)) -> None:
        """Begin with nothing.

        Args:
            whole: the members of a whole answer that may have `usage`, empty for the answer itself.
            events: the same of an event.
        """
        self._whole, self._events = whole, events
        self._parts: list[bytes] = []
        """Parts that were not read yet."""
        self._bytes = 0
        """Their bytes."""
        self._chunks: Chunked | None = None
        self._document: _Document | None = None
        """The state of a whole answer, once the answer has proved to be one."""
        self._streams = False
        """True once the answer has proved to be a stream of events."""
        self._rest = b""
        """The beginning of a line of the stream."""
        self._line: _Document | None = None
        """That of a line which is longer than is parsed at once."""
        self._usage: Usage | None = None

    def in_chunks(self) -> None:
        """Expect the body in the chunked transfer coding."""
        self._chunks = Chunked()

    def add(self, data: bytes) -> None:
        """Add received bytes of the body."""
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes > MOST_WAITING or len(self._parts) >= MOST_PARTS:
            self._read()

    def usage(self) -> Usage | None:
        """Return the usage in the received part, None if there is none."""
        self._read()
        if self._document is not None:
            self._take_all(self._document)
        elif self._line is not None:
            self._take_all(self._line)
        elif self._rest:
            self._take_line(self._rest)
        return self._usage

    def _take(self, usage: dict[str, Any]) -> None:
        """Store the counts of a usage, unless they are invalid."""
        prompt = count(usage.get("prompt_tokens"))
        if prompt is not None:
            cached = _cached(usage, "prompt_tokens_details")
            self._usage = Usage(prompt, cached, count(usage.get("completion_tokens")) or 0)

    def _take_all(self, document: _Document) -> None:
        for usage in document.usages():
            self._take(usage)

    def _read(self) -> None:
        """Read the parts that wait."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._bytes = [], 0
        if self._chunks is not None:
            content = bytearray()
            with suppress(HttpError):  # the relay cuts such an answer
                self._chunks.feed(data, content)
            data = bytes(content)
        if self._document is not None:
            self._document.feed(data)
        elif self._streams:
            self._read_lines(data)
        elif data := (self._rest + data).lstrip(_BLANKS):
            if data.startswith(_OBJECT):
                self._document = _Document(self._whole)
                self._document.feed(data)
            else:
                self._streams = True
                self._read_lines(data)

    def _read_lines(self, data: bytes) -> None:
        """Read the whole lines of a stream: the JSON text of an event has no line feed in it."""
        if self._line is not None:
            stop = data.find(b"\n")
            if stop < 0:
                self._line.feed(data)
                return
            self._line.feed(data[:stop])
            self._take_all(self._line)
            self._line, data = None, data[stop:]
        text = self._rest + data if self._rest else data
        cut = text.rfind(b"\n") + 1
        # a search from the end is three times as fast, and nearly no part of a stream contains the name
        if text.rfind(_NAME, 0, cut) >= 0:
            at = text.find(_NAME)
            while 0 <= at < cut:
                stop = text.index(b"\n", at)
                self._take_line(text[text.rfind(b"\n", 0, at) + 1 : stop])
                at = text.find(_NAME, stop)
        self._rest = text[cut:]
        if len(self._rest) > MOST_PARSED:
            # a line that is no event has no usage
            self._line = _Document(self._events if self._rest.startswith(_DATA) else ())
            self._line.feed(self._rest[len(_DATA) :])
            self._rest = b""

    def _take_line(self, line: bytes) -> None:
        """Store the counts of an event."""
        at = line.find(_NAME)
        if at < 0 or not line.startswith(_DATA):
            return
        at += len(_NAME)
        if line.startswith(_NOTHING, at) and line.find(_NAME, at) < 0:
            return
        document = _Document(self._events)
        document.feed(line[len(_DATA) :])
        self._take_all(document)


class ResponsesTail(Tail):
    """The same of OpenAI's Responses API, which counts input and output."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(events=("response",))

    def _take(self, usage: dict[str, Any]) -> None:
        prompt = count(usage.get("input_tokens"))
        if prompt is not None:
            cached = _cached(usage, "input_tokens_details")
            self._usage = Usage(prompt, cached, count(usage.get("output_tokens")) or 0)


class MessagesTail(Tail):
    """The same of Anthropic's Messages API.

    The input that was neither read from the cache nor written to it is counted separately, so the prompt is their sum.
    A stream may count its input in the first event alone, and its output in the last.
    """

    __slots__ = ("_answer",)

    def __init__(self) -> None:
        super().__init__(events=("message", ""))
        self._answer = 0
        """Tokens of the answer, as last reported."""

    def _take(self, usage: dict[str, Any]) -> None:
        answer = count(usage.get("output_tokens"))
        if answer is not None:
            self._answer = answer
        rest = count(usage.get("input_tokens"))
        if rest is not None:
            cached = count(usage.get("cache_read_input_tokens"))
            created = count(usage.get("cache_creation_input_tokens"))
            self._usage = Usage(rest + (cached or 0) + (created or 0), cached, self._answer)
        elif self._usage is not None:
            self._usage.completion_tokens = self._answer


class OuterTail(Tail):
    """A tail around another one, to which all goes."""

    __slots__ = ("_tail",)

    def __init__(self, tail: Tail) -> None:
        """Put a tail around another one."""
        super().__init__()
        self._tail = tail

    def in_chunks(self) -> None:
        """Expect the body in the chunked transfer coding."""
        self._tail.in_chunks()

    def add(self, data: bytes) -> None:
        """Add received bytes of the body."""
        self._tail.add(data)

    def usage(self) -> Usage | None:
        """Return the usage in the received part, None if there is none."""
        return self._tail.usage()


class NoUsage(Tail):
    """The counts of an answer whose tokens are not counted."""

    __slots__ = ()

    def add(self, data: bytes) -> None:
        """Keep nothing."""

    def usage(self) -> Usage | None:
        """Return None."""
        return None


def _object(text: bytes) -> dict[str, Any] | None:
    """Return the object that a text is; None for any other."""
    try:
        doc = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return doc if isinstance(doc, dict) else None


def count(value: object) -> int | None:
    """Return a number of tokens; None for what is none, or more than any prompt has."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS:
        return value
    return None


def _cached(usage: dict[str, Any], name: str) -> int | None:
    details = usage.get(name)
    return count(details.get("cached_tokens")) if isinstance(details, dict) else None
