"""Finds token counts at the end of an answer, streamed or not, without parsing it. Does no I/O and reads no clock.

Engines put `usage` at the end of a body and into the last event of a stream. A name in quotes with a colon behind it
cannot be text of the model, since quotes inside a JSON string are escaped. Only the input of a tool in Anthropic's API
is JSON itself, and `usage` comes after it.
"""

from dataclasses import dataclass

TAIL_BYTES = 4096
"""Bytes of the end that are kept: `usage` and the fields that may follow it fit several times."""

HEAD_BYTES = 2048
"""Bytes of the beginning that are kept where the first event tells the prompt's length: it has that length alone."""


_DIGITS = 12
"""Most digits of a count."""
_ZERO, _NINE, _COMMA, _BRACE = b"09,}"
_BLANKS = b" \t\n\r\v\f"
_USAGE = b'"usage":'
_PROMPT = b'"prompt_tokens":'
_COMPLETION = b'"completion_tokens":'
_CACHED = b'"cached_tokens":'
_INPUT = b'"input_tokens":'
_OUTPUT = b'"output_tokens":'
_CACHE_READ = b'"cache_read_input_tokens":'
_CACHE_CREATION = b'"cache_creation_input_tokens":'


@dataclass(slots=True)
class Usage:
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
        return end, end.rfind(_USAGE)


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
        output = _count(end, at, _OUTPUT)
        read = _message_input(end, at) or _message_input(self._head, self._head.find(_USAGE))
        if read is None:
            return None
        return Usage(*read, output or 0)


class NoUsage(Tail):
    """The end of an answer whose tokens are not counted."""

    __slots__ = ()

    def add(self, data: bytes) -> None:
        """Keep nothing."""

    def usage(self) -> Usage | None:
        """Return None."""
        return None


def _read(end: bytes, at: int, prompt_tokens: bytes, answer_tokens: bytes) -> Usage | None:
    prompt = _count(end, at, prompt_tokens)
    if prompt is None:
        return None
    return Usage(prompt, _count(end, at, _CACHED), _count(end, at, answer_tokens) or 0)


def _message_input(data: bytes, at: int) -> tuple[int, int | None] | None:
    """Return the tokens of a message's prompt, and how many came from the cache."""
    if at < 0 or (rest := _count(data, at, _INPUT)) is None:
        return None
    cached = _count(data, at, _CACHE_READ)
    return rest + (cached or 0) + (_count(data, at, _CACHE_CREATION) or 0), cached


def _count(data: bytes, at: int, name: bytes) -> int | None:
    """Return the first member of this name, from a position on, that is a whole number; None if there is none."""
    while (at := data.find(name, at)) >= 0:
        at += len(name)
        if (number := _whole_number(data, at)) >= 0:
            return number
    return None


def _whole_number(data: bytes, at: int) -> int:
    """Return the whole number of at most 12 digits at a position, -1 if there is none.

    A comma or a brace must follow: `1.5` is no count, and the size of the next chunk, which may come between any two
    bytes, would end a number too early. A loop takes a tenth of the time of a pattern where it is compiled.
    """
    end = len(data)
    while at < end and data[at] in _BLANKS:
        at += 1
    number, begin = 0, at
    while at < end and _ZERO <= data[at] <= _NINE:
        number = 10 * number + data[at] - _ZERO
        at += 1
        if at - begin > _DIGITS:
            return -1
    if at == begin:
        return -1
    while at < end and data[at] in _BLANKS:
        at += 1
    return number if at < end and (data[at] == _COMMA or data[at] == _BRACE) else -1
