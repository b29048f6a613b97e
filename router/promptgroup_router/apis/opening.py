"""Finds the first visible token of a streamed answer. Does no I/O and reads no clock.

Engines open a stream with events that show the user nothing: the role of the message, the empty response, a comment
that keeps the connection alive. As long as none of them has been sent to the client, the whole answer can still be
requested from another engine. Unknown events count as visible, so that no content is held back.
"""

from typing import Any

import orjson

from promptgroup_router.http11.framing import Chunked

MOST_HELD = 16384
"""Most bytes that are held back: openings have some hundreds, the first event of a response some thousands."""

_EMPTY_TYPES = frozenset(
    (
        "message_start",
        "ping",
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.content_part.added",
        "response.reasoning_part.added",
        "response.reasoning_summary_part.added",
    )
)
"""Events of Anthropic's Messages API and OpenAI's Responses API that precede any text."""
_OPENED = {"content_block_start": "content_block", "response.output_item.added": "item"}
"""Events that open a part of the answer, and their field that has it."""
_EMPTY_PARTS = frozenset(("text", "thinking", "message", "reasoning"))
"""Parts that are empty when they are opened; that of a tool has the tool's name, which is a part of the answer."""


class Opening:
    """The beginning of a stream, until it has a visible token."""

    __slots__ = ("_content", "_decoder", "_held")

    def __init__(self, *, chunked: bool) -> None:
        """Start a stream whose body is in chunks, or as it is."""
        self._held = bytearray()
        """The body as received."""
        self._content = bytearray()
        """The end of it, decoded, from which no event was taken yet."""
        self._decoder = Chunked() if chunked else None

    def take(self, data: bytes) -> bytes:
        """Add received bytes of the body. Return all that was held once a token is visible, nothing before."""
        self._held += data
        if self._decoder is None:
            self._content += data
        else:
            self._decoder.feed(data, self._content)
        if len(self._held) > MOST_HELD or self._has_token():
            return self.held()
        return b""

    def held(self) -> bytes:
        """Return all bytes that are held, and hold none of them any longer."""
        held, self._held = bytes(self._held), bytearray()
        return held

    def _has_token(self) -> bool:
        content = bytes(self._content).replace(b"\r\n", b"\n")
        *events, rest = content.split(b"\n\n")
        self._content = bytearray(rest)
        return any(_is_visible(event) for event in events)


def _is_visible(event: bytes) -> bool:
    data = b"\n".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:"))
    if not data.strip():
        return False  # a comment, or the name of an event alone
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return True
    if not isinstance(value, dict):
        return True
    kind = value.get("type")
    if kind in _OPENED:
        return not _is_empty_part(value.get(_OPENED[kind]))
    if isinstance(kind, str):
        return kind not in _EMPTY_TYPES
    choices = value.get("choices")
    return not (isinstance(choices, list) and choices and all(map(_is_empty_choice, choices)))


def _is_empty_part(part: Any) -> bool:
    if not isinstance(part, dict) or part.get("type") not in _EMPTY_PARTS:
        return False
    return not any(part.get(name) for name in ("text", "thinking", "content", "summary"))


def _is_empty_choice(choice: Any) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason") is not None:
        return False
    delta = choice.get("delta")
    if delta is None:
        return choice.get("text") == ""
    return isinstance(delta, dict) and not any(value for name, value in delta.items() if name != "role")
