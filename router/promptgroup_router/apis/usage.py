"""Finds token counts at the end of an answer, streamed or not, without parsing it. Does no I/O and reads no clock.

Engines put `usage` at the end of a body and into the last event of a stream. A name in quotes with a colon behind it
cannot be text of the model, since quotes inside a JSON string are escaped. Only the input of a tool in Anthropic's API
is JSON itself, and `usage` comes after it.
"""

import re
from typing import NamedTuple

TAIL_BYTES = 4096
"""Bytes of the end that are kept: `usage` and the fields that may follow it fit several times."""

HEAD_BYTES = 2048
"""Bytes of the beginning that are kept where the first event tells the prompt's length: it has that length alone."""


def _count(name: bytes) -> re.Pattern[bytes]:
    """Return a pattern for a member of an object that is a whole number.

    What follows the number belongs to the pattern: `1.5` is no count, and the size of the next chunk, which may come
    between any two bytes, would end a number too early.
    """
    return re.compile(rb'"' + name + rb'":\s*+(\d{1,12}+)\s*+[,}]')


_PROMPT = _count(b"prompt_tokens")
_COMPLETION = _count(b"completion_tokens")
_CACHED = _count(b"cached_tokens")
_INPUT = _count(b"input_tokens")
_OUTPUT = _count(b"output_tokens")
_CACHE_READ = _count(b"cache_read_input_tokens")
_CACHE_CREATION = _count(b"cache_creation_input_tokens")


class Usage(NamedTuple):
    """The token counts that an engine reports for a prompt and its answer."""

    prompt_tokens: int
    cached_tokens: int | None
    """None if the engine does not report it."""
    completion_tokens: int = 0
    """Tokens of the answer; 0 if the engine does not report it."""


class Tail:
    """The last bytes of a body. Memory is moved once in TAIL_BYTES only, so that an event costs 0.1 µs."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Add received bytes of the body."""
        kept = self._data
        kept += data
        if len(kept) > 2 * TAIL_BYTES:
            del kept[:-TAIL_BYTES]

    def usage(self) -> Usage | None:
        """Return the last usage of the body, None if there is none."""
        end, at = self._last_usage()
        return _read(end, at, _PROMPT, _COMPLETION) if at >= 0 else None

    def _last_usage(self) -> tuple[bytes, int]:
        """Return the bytes kept, and where the last usage begins; -1 if there is none."""
        end = bytes(self._data[-TAIL_BYTES:])
        return end, end.rfind(b'"usage":')


class ResponsesTail(Tail):
    """The end of an answer of OpenAI's Responses API, which counts input and output."""

    __slots__ = ()

    def usage(self) -> Usage | None:
        """Return the last usage in the tail; None when there is none."""
        end, at = self._last_usage()
        return _read(end, at, _INPUT, _OUTPUT) if at >= 0 else None


class MessagesTail(Tail):
    """The end of an answer of Anthropic's Messages API, and its beginning.

    The input that was neither read from the cache nor written to it is counted apart, so the prompt is their sum. A
    stream may count its input in the first event alone, and its output in the last.
    """

    __slots__ = ("_head",)

    def __init__(self) -> None:
        super().__init__()
        self._head = b""

    def add(self, data: bytes) -> None:
        """Add bytes of the body, as received."""
        if len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - len(self._head)]
        super().add(data)

    def usage(self) -> Usage | None:
        """Return the usage; None when the answer has none."""
        end, at = self._last_usage()
        if at < 0:
            return None
        output = _OUTPUT.search(end, at)
        read = _message_input(end, at) or _message_input(self._head, self._head.find(b'"usage":'))
        if read is None:
            return None
        return Usage(*read, int(output[1]) if output else 0)


class NoUsage(Tail):
    """The end of an answer whose tokens are not counted."""

    __slots__ = ()

    def add(self, data: bytes) -> None:
        """Keep nothing."""

    def usage(self) -> Usage | None:
        """Return None."""
        return None


def _read(end: bytes, at: int, prompt_tokens: re.Pattern[bytes], answer_tokens: re.Pattern[bytes]) -> Usage | None:
    prompt = prompt_tokens.search(end, at)
    if prompt is None:
        return None
    cached = _CACHED.search(end, at)
    completion = answer_tokens.search(end, at)
    return Usage(int(prompt[1]), int(cached[1]) if cached else None, int(completion[1]) if completion else 0)


def _message_input(data: bytes, at: int) -> tuple[int, int | None] | None:
    """Return the tokens of a message's prompt, and how many came from the cache."""
    if at < 0 or (rest := _INPUT.search(data, at)) is None:
        return None
    read, created = _CACHE_READ.search(data, at), _CACHE_CREATION.search(data, at)
    cached = int(read[1]) if read else None
    return int(rest[1]) + (cached or 0) + (int(created[1]) if created else 0), cached
