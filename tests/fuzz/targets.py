"""What is fuzzed: parsers of bytes that clients and engines send, and a second reader that each is compared with.

`observe` gives what the router makes of an input that comes in parts; it may raise nothing, since each parser's own
errors are part of what it gives. `compare` asserts that a second reader reads the same, and returns True if there was
something to compare.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from promptgroup_router.apis.usage import MessagesTail, ResponsesTail, Tail
from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import MAX_HEAD, Framing, ResponseHead
from promptgroup_router.http11.reader import RequestReader, ResponseReader
from support.h11oracle import answers_agree, requests_agree

MAX_BODY = 100_000


class Target(Protocol):
    """One kind of input."""

    def observe(self, parts: Sequence[bytes]) -> object: ...

    def compare(self, data: bytes) -> bool: ...


class Heads:
    """Heads of requests and of answers, with the bodies that they announce."""

    def observe(self, parts: Sequence[bytes]) -> object:
        return _requests(parts), _answer(parts)

    def compare(self, data: bytes) -> bool:
        asked, answered = requests_agree(data), answers_agree(data)
        return asked or answered


class Chunks:
    """Bodies in the chunked coding, without their head."""

    def observe(self, parts: Sequence[bytes]) -> object:
        body, content, taken = Chunked(MAX_BODY), bytearray(), 0
        try:
            for part in parts:
                taken += body.feed(part, content)
                if body.done:
                    break
        except HttpError as error:
            return error.status, bytes(content)
        assert len(content) <= MAX_BODY
        assert len(body._line) <= 4096
        return body.done, bytes(content), taken

    def compare(self, data: bytes) -> bool:
        return requests_agree(b"POST / HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n" + data)


class Streams:
    """Answers of engines with server-sent events, whose token counts are read in passing."""

    def observe(self, parts: Sequence[bytes]) -> object:
        tails = Tail(), ResponsesTail(), MessagesTail()
        found = _answer(parts, tails)
        return found, [each.usage() for each in tails] if found is not None else []

    def compare(self, data: bytes) -> bool:
        """Every number that is found is one that the engine wrote, by a parser of events and of JSON."""
        tails = Tail(), ResponsesTail(), MessagesTail()
        found = _answer([data], tails)
        usages = [each.usage() for each in tails]
        if found is None or not found.whole or not any(usages):
            return False  # nothing to compare
        try:
            written = _numbers(found.content)
        except (ValueError, RecursionError):
            return False  # not the events of an API: nobody can tell what its numbers mean
        chat, responses, messages = usages
        if chat is not None:
            assert chat.prompt_tokens in written["prompt_tokens"]
            assert chat.completion_tokens in {0} | written["completion_tokens"]
        if responses is not None:
            assert responses.prompt_tokens in written["input_tokens"]
            assert responses.completion_tokens in {0} | written["output_tokens"]
        for usage in (chat, responses):
            assert usage is None or usage.cached_tokens in {None} | written["cached_tokens"]
        if messages is not None:
            read = {0} | written["cache_read_input_tokens"]
            created = {0} | written["cache_creation_input_tokens"]
            sums = {each + more + most for each in written["input_tokens"] for more in read for most in created}
            assert messages.prompt_tokens in sums
        return True


TARGETS: dict[str, Target] = {"heads": Heads(), "chunked": Chunks(), "sse": Streams()}


def _requests(parts: Sequence[bytes]) -> list[object]:
    """Return the requests that a reader finds, and the status of the refusal that ends them."""
    reader, found = RequestReader(MAX_BODY), []
    most = 2 * (MAX_HEAD + max(map(len, parts), default=0)) + MAX_BODY
    try:
        for part in parts:
            reader.feed(part)
            while (request := reader.next()) is not None:
                found.append((request.head, request.body))
            assert reader.buffered + reader.body_bytes + len(reader._head_buffer) <= most
    except HttpError as error:
        found.append(error.status)
    return found


class Answer(NamedTuple):
    head: ResponseHead | None
    content: bytes
    whole: bool
    """An answer that ends with its connection is whole where it ends."""


def _answer(parts: Sequence[bytes], tails: Sequence[Tail] = ()) -> Answer | None:
    """Return an answer as far as it came; None for one that is refused, whose content may end anywhere."""
    reader, content, decoder = ResponseReader(), bytearray(), None
    try:
        for part in parts:
            data = reader.feed(part)
            if decoder is None and reader.head is not None and reader.head.framing is Framing.CHUNKED:
                decoder = Chunked()
                for tail in tails:
                    tail.in_chunks()
            for tail in tails:
                tail.add(data)
            if decoder is not None:
                decoder.feed(data, content)
            else:
                content += data
            assert len(reader._head_buffer) <= MAX_HEAD
            if reader.done:
                break
    except HttpError:
        return None
    return Answer(reader.head, bytes(content), reader.done or reader.ends_by_close)


_NUMBERS = ("prompt_tokens", "completion_tokens", "cached_tokens", "input_tokens", "output_tokens")
_CACHES = ("cache_read_input_tokens", "cache_creation_input_tokens")
_LINE = re.compile(r"\r\n|\r|\n")


def _numbers(content: bytes) -> dict[str, set[int]]:
    """Return the whole numbers that events, or one JSON document, have under each name.

    Raises:
        ValueError: an event is neither JSON nor the mark of the end.
    """
    found: dict[str, set[int]] = {name: set() for name in (*_NUMBERS, *_CACHES)}

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for name, value in pairs:
            if name in found and type(value) is int:
                found[name].add(value)
        return dict(pairs)

    for text in _events(content.decode()):
        if text != "[DONE]":
            json.loads(text, object_pairs_hook=note)
    return found


def _events(text: str) -> Iterator[str]:
    """Yield the data of each event (WHATWG HTML, section 9.2.6); of a document that is no stream, all of it."""
    if text[:1] == "{":
        yield text
        return
    lines: list[str] = []
    for line in _LINE.split(text.removeprefix("\ufeff") + "\n\n"):
        name, _, value = line.partition(":")
        if not line and lines:
            yield "\n".join(lines)
            lines = []
        elif name == "data":
            lines.append(value.removeprefix(" "))
        elif '"' in line or name not in ("", "event", "id", "retry"):
            raise ValueError("a field that no API has")
