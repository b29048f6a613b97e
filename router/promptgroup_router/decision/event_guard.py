"""Filters an engine's stream for the client: whole events pass, up to one by which the engine aborts the answer.

Engines that stop, or lose one of their ranks, end running answers as if they were complete: `finish_reason` is `abort`,
and `[DONE]` follows under a status of 200. Each API marks it differently:

| API                    | broken off                                                   |
|------------------------|--------------------------------------------------------------|
| chat, text completions | `finish_reason` is `abort`, `aborted` or `error`             |
| Anthropic's Messages   | its last `stop_reason` is null                               |
| OpenAI's Responses     | the completed response has the status `cancelled` or `failed`|

Others report the error in an event of its own, which the client gets unchanged, and which ends the answer: nothing that
follows, such as `[DONE]`, makes it whole. Such an event is named `error`, has `{"error": ...}` or `{"object": "error"}`
as its data, or is of the type `error` or `response.failed`.

Only whole events are passed on, so that the router can append an error event wherever the answer ends. Does no I/O and
reads no clock.
"""

import re
from typing import Any

import orjson

from promptgroup_router.apis.endpoints import Endpoint
from promptgroup_router.apis.errors import ANTHROPIC
from promptgroup_router.apis.errors import RESPONSES as RESPONSES_FORM
from promptgroup_router.base.errors import Failure
from promptgroup_router.http11.whole_events import WholeEvents

_FAILED = ("abort", "aborted", "error")
_CANCELLED = ("cancelled", "failed")
_MESSAGE, _SPACED_MESSAGE = b'"type":"message"', b'"type": "message"'
_END = re.compile(rb"\n\r?\n")
_CHUNKED_ENDS = (b"\n\n\r\n", b"\n\r\n\r\n", b"\n\n\r\n0\r\n\r\n", b"\n\r\n\r\n0\r\n\r\n")
"""The ends of a chunk that ends with an event, and of the last one."""
_PLAIN_ENDS = (b"\n\n", b"\n\r\n")
_ERROR = b"error"
"""Part of each event that reports an error."""
_NAMED_ERROR = re.compile(rb"^event: ?error\s*$", re.MULTILINE)
_ERROR_TYPES = ("error", "response.failed")
CHAT = (b'"abort',)
MESSAGES = (b'"message_',)
RESPONSES = (b'"cancelled"', b'"failed"')
"""By the API: words beside `error` that are in each event which aborts the answer or has no content."""
_DATA, _LINE_DATA, _PING = b"data:", b"\ndata:", b'"ping"'
_SILENT = (b":", b"event:", b"id:", b"retry:")
"""The beginnings of lines that carry no content of a stream."""
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
MOST_LINES = 64
"""Lines of a part without data that are inspected; a part with more counts as part of an event."""


class EventGuard:
    """The events of one answer with status 200."""

    __slots__ = (
        "_ends",
        "_events",
        "_in_comment",
        "_last",
        "_unreasoned",
        "_words",
        "at_boundary",
        "broken",
        "chunked",
        "reported",
    )

    def __init__(self, *, chunked: bool, words: tuple[bytes, ...] = CHAT, marks: tuple[bytes, ...] = ()) -> None:
        """Start a stream.

        Args:
            chunked: whether it is received in the chunked transfer coding.
            words: byte strings of the API; an event without them and `error` passes without being parsed.
            marks: further ones, for a rewriter of the events.
        """
        self.chunked = chunked
        self._words = words + marks
        self._ends = _CHUNKED_ENDS if chunked else _PLAIN_ENDS
        self._events = WholeEvents()
        self._in_comment = False
        """True if the last line received is part of a comment."""
        self._last = b""
        """The part that went on last."""
        self._unreasoned = False
        """True if the `stop_reason` that a message has reported is null."""
        self.at_boundary = True
        """True if all that went on is whole events."""
        self.broken = False
        """True once the engine has aborted the answer."""
        self.reported = False
        """True if the engine has reported that itself, in an event that the client gets."""

    @property
    def failure(self) -> Failure:
        """The kind of failure of an engine that has aborted the answer."""
        return Failure.REPORTED if self.reported else Failure.ABORTED

    def moves(self, data: bytes) -> bool:
        """Return True if a part of the body, as received, contains more than keep-alives."""
        if _has(data, _LINE_DATA) or data.startswith(_DATA):
            self._in_comment = False
            return not _has(data, _PING) or data.count(_DATA) > data.count(_PING)
        lines = data.split(b"\n", MOST_LINES)
        if self._in_comment:
            lines[0] = b":" + lines[0]
        self._in_comment = lines[-1].startswith(b":")
        return len(lines) > MOST_LINES or not all(map(_is_silent, lines))

    def passes(self, data: bytes) -> bool:
        """Return True if a part of the body can be passed on as received.

        It ends with an event, contains more than keep-alives, aborts nothing, and has no mark.
        """
        if (
            self.at_boundary
            and data.endswith(self._ends)
            and _has(data, _LINE_DATA)
            and not _has(data, _PING)
            and not _has(data, _ERROR)
        ):
            for word in self._words:
                if _has(data, word):
                    return False
            self._last = data
            return True
        return False

    def feed(self, content: bytes) -> bytes:
        """Return the bytes that can be passed on now. The rest follows with the end of its event, or never."""
        if self.broken:
            return b""
        whole = self._events.feed(content)
        if suspicious(whole):
            start = 0
            for end in _END.finditer(whole):
                event = whole[start : end.end()]
                document = _document(event)
                if self._breaks_off(document):
                    self.broken = True
                    whole = whole[:start]
                    break
                if _tells_error(event, document):
                    self.broken = self.reported = True
                    whole = whole[: end.end()]
                    break
                start = end.end()
        if whole:
            self._last = whole
            self.at_boundary = whole.endswith(_PLAIN_ENDS)
        return whole

    @property
    def idle(self) -> bool:
        """True if nothing is held, and what went on is whole."""
        return self.at_boundary and self._events.empty

    def finish(self) -> bytes:
        """Return what is left at the end of the body."""
        return b"" if self.broken else self._events.finish()

    def next_number(self) -> int:
        """Return the number of the next event of a response, which numbers its events."""
        _, result, rest = self._last.rpartition(b'"sequence_number":')
        number = re.match(rb" ?(\d{1,9})", rest) if result else None
        return int(number[1]) + 1 if number is not None else 0

    def _breaks_off(self, document: dict[str, Any]) -> bool:
        delta = document.get("delta")
        if document.get("type") == "message_delta" and isinstance(delta, dict) and "stop_reason" in delta:
            self._unreasoned = delta["stop_reason"] is None
        if document.get("type") == "message_stop":
            return self._unreasoned
        return _is_broken(document)


def _is_silent(line: bytes) -> bool:
    return not line.strip() or line.startswith(_SILENT) or _SIZE.fullmatch(line.strip()) is not None


def words_of(endpoint: Endpoint) -> tuple[bytes, ...]:
    """Return the words of an API; each event that aborts the answer or has no content has one of them, or `error`."""
    if endpoint.form is ANTHROPIC:
        return MESSAGES
    return RESPONSES if endpoint.form is RESPONSES_FORM else CHAT


def suspicious(data: bytes | bytearray) -> bool:
    """Return True if events may be those of an answer that was broken off, so that most are not parsed."""
    return _has(data, _ERROR) or _has(data, b'"message_') or _ended_early(data)


def _ended_early(data: bytes | bytearray) -> bool:
    return _has(data, b'"abort') or _has(data, b'"cancelled"') or _has(data, b'"failed"')


def _has(data: bytes | bytearray, word: bytes) -> bool:
    # `in` takes the word for a number first, and raises and drops an error that costs ten times the search of an event
    return data.find(word) >= 0


def body_suspicious(data: bytes | bytearray) -> bool:
    """Return True if a whole body may be that of an answer that was broken off."""
    return _has(data, b'"error"') or _ended_early(data) or _has(data, _MESSAGE) or _has(data, _SPACED_MESSAGE)


def broken_body(content: bytes | bytearray) -> bool:
    """Return True if a whole answer with status 200 was broken off."""
    if not body_suspicious(content):
        return False
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(document, dict):
        return False
    if document.get("type") == "message":
        return document.get("stop_reason", "") is None
    if document.get("object") == "response":
        return document.get("status") in _CANCELLED
    return _is_broken(document)


def _is_broken(document: dict[str, Any]) -> bool:
    response = document.get("response")
    if document.get("type") == "response.completed" and isinstance(response, dict):
        return response.get("status") in _CANCELLED
    choices = document.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") in _FAILED for choice in choices
    )


def _tells_error(event: bytes, document: dict[str, Any]) -> bool:
    kind = document.get("type")
    error = document.get("error") if kind is None else kind in _ERROR_TYPES
    return bool(error) or document.get("object") == "error" or _NAMED_ERROR.search(event) is not None


def _document(event: bytes) -> dict[str, Any]:
    data = b"\n".join(line[5:] for line in event.splitlines() if line.startswith(_DATA))
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
