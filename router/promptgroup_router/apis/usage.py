"""Finds token counts at the end of an answer, streamed or not, without parsing it. Does no I/O and reads no clock.

Engines put `usage` at the end of a body and into the last event of a stream. A name in quotes with a colon behind it
cannot be text of the model, since quotes inside a JSON string are escaped. Only the input of a tool in Anthropic's API
is JSON itself, and `usage` comes after it.
"""

from dataclasses import dataclass

TAIL_BYTES = 4096
"""Bytes of the end that are kept."""
USAGE_BYTES = 1024
"""Bytes of a `usage` that are kept beside the end: what a client chooses may follow it, such as `user` of a response or
the `prompt_logprobs` of a chat, and would hide what it has used."""

MOST_PARTS = 64
"""Most parts that bytes are kept in: each takes 40 bytes more than it has."""
HEAD_BYTES = 2048
"""Bytes of the beginning that are kept where the first event tells the prompt's length: it has that length alone."""


_DIGITS = 8
"""Most digits of a count: engines that tell of more tokens than any prompt has are not believed."""
_ZERO, _NINE, _COMMA, _BRACE, _SPACE = ord("0"), ord("9"), ord(","), ord("}"), ord(" ")
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
    """The last bytes of a body. They are joined seldom, so that an event costs 0.1 µs."""

    __slots__ = ("_bytes", "_parts", "_passed", "scans")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """The bytes kept, as they were received."""
        self._bytes = 0
        """Their number."""
        self._passed = b""
        """The last usage that stands before the bytes kept, and what follows it; empty for none."""
        self.scans = False
        """True to find a usage wherever it stands, which takes a nanosecond for each byte: of whole answers. The last
        event of a stream is short, and ends it."""

    def add(self, data: bytes) -> None:
        """Add received bytes of the body."""
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes > 2 * TAIL_BYTES or len(self._parts) >= MOST_PARTS:
            self._join()

    def usage(self) -> Usage | None:
        """Return the last usage of the body, None if there is none."""
        return _read(self._last_usage(), _PROMPT, _COMPLETION)

    def _join(self) -> None:
        """Make the parts one, of the last bytes if they are too many."""
        kept = b"".join(self._parts)
        if len(kept) > 2 * TAIL_BYTES:
            if self.scans and (at := kept.rfind(_USAGE, 0, len(kept) - TAIL_BYTES + len(_USAGE) - 1)) >= 0:
                self._passed = kept[at + len(_USAGE) : at + USAGE_BYTES]
            kept = kept[-TAIL_BYTES:]
        self._parts, self._bytes = [kept], len(kept)

    def _last_usage(self) -> bytes:
        """Return what follows the name of the last usage; empty if there is none."""
        kept = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if not self.scans:
            kept = kept[-TAIL_BYTES:]
        _, found, usage = kept.rpartition(_USAGE)
        if not found:
            return self._passed
        return usage[:USAGE_BYTES] if self.scans else usage


class ResponsesTail(Tail):
    """The end of an answer of OpenAI's Responses API, which counts input and output.

    The last event of its streams has the whole answer.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.scans = True

    def usage(self) -> Usage | None:
        """Return the last usage in the tail; None when there is none."""
        return _read(self._last_usage(), _INPUT, _OUTPUT)


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
        usage = self._last_usage()
        output = _count(usage, _OUTPUT)
        read = _message_input(usage) or _message_input(self._head.partition(_USAGE)[2])
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


def _read(usage: bytes, prompt_tokens: bytes, answer_tokens: bytes) -> Usage | None:
    prompt = _count(usage, prompt_tokens)
    if prompt is None:
        return None
    return Usage(prompt, _count(usage, _CACHED), _count(usage, answer_tokens) or 0)


def _message_input(usage: bytes) -> tuple[int, int | None] | None:
    """Return the tokens of a message's prompt, and how many came from the cache."""
    rest = _count(usage, _INPUT)
    if rest is None:
        return None
    cached = _count(usage, _CACHE_READ)
    return rest + (cached or 0) + (_count(usage, _CACHE_CREATION) or 0), cached


def _count(data: bytes, name: bytes) -> int | None:
    """Return the first member of this name that is a whole number; None if there is none."""
    while True:
        _, found, data = data.partition(name)
        if not found:
            return None
        if (number := _whole_number(data)) >= 0:
            return number


def _whole_number(data: bytes) -> int:
    """Return the whole number of at most 8 digits at the beginning, -1 if there is none.

    A comma or a brace must follow: `1.5` is no count, and the size of the next chunk, which may come between any two
    bytes, would end a number too early. A loop takes a tenth of the time of a pattern where it is compiled.
    """
    at, end = 0, len(data)
    while at < end and data[at] <= _SPACE and data[at] in _BLANKS:
        at += 1
    number, begin = 0, at
    while at < end and _ZERO <= data[at] <= _NINE:
        number = 10 * number + data[at] - _ZERO
        at += 1
        if at - begin > _DIGITS:
            return -1
    if at == begin:
        return -1
    while at < end and data[at] <= _SPACE and data[at] in _BLANKS:
        at += 1
    return number if at < end and (data[at] == _COMMA or data[at] == _BRACE) else -1
