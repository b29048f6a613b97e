"""Requests the usage of streams whose clients did not ask for it, and removes the event with it from the answer.

A stream of chat or text completions reports its usage only if `stream_options.include_usage` is set, which SDKs leave
out. So the router sets it: otherwise neither cache hits nor the tokens of a caller could be counted. The answer is one
more event, with no choices, before `[DONE]`.
"""

from typing import Any

import orjson

from promptgroup_router.apis.request import ApiKind, ParsedRequest, encoded
from promptgroup_router.documents import lax
from promptgroup_router.http11.whole_events import EVENT_ENDS, WholeEvents

OPTIONS, INCLUDE = "stream_options", "include_usage"

_ASKS = b'"stream_options":{"include_usage":true},'
NO_CHOICES = (b'"choices":[]', b'"choices": []')
"""One of them is in each event that is taken out."""


def is_unasked(request: ParsedRequest) -> bool:
    """Return True for a stream whose client has not requested its usage."""
    if not request.streamed or request.kind not in (ApiKind.CHAT, ApiKind.TEXT):
        return False
    options = request.doc.get(OPTIONS)
    # the engine refuses a value that is no object
    return options is None or (isinstance(options, dict) and lax.truth(options.get(INCLUDE)) is not True)


def options_of(doc: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a body that `is_unasked` reads."""
    if OPTIONS not in doc:
        return {}
    options = doc[OPTIONS]
    if options is None:
        return {OPTIONS: None}
    return {OPTIONS: {INCLUDE: lax.truth(options.get(INCLUDE)) is True} if isinstance(options, dict) else False}


def asking(request: ParsedRequest, body: bytes | bytearray) -> bytes:
    """Return the body for an engine, with the option that requests the usage.

    Args:
        request: the request, which has options of its own or none.
        body: the body as it would go without, a JSON object.
    """
    if OPTIONS not in request.doc:
        start = body.index(b"{") + 1
        return b"".join((body[:start], _ASKS, body[start:]))
    doc = orjson.loads(body)
    return encoded(doc | {OPTIONS: (doc[OPTIONS] or {}) | {INCLUDE: True}})


class UsageEvents:
    """The body of a stream for a client that gets no usage."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events = WholeEvents()

    def feed(self, content: bytes) -> bytes:
        """Return what of a part of the body can go to the client; an event that is not whole is held."""
        return _without_usage(self._events.feed(content))

    def finish(self) -> bytes:
        """Return what is left of the body."""
        return _without_usage(self._events.finish())


def _without_usage(events: bytes) -> bytes:
    """Return whole events without those that report only usage. For most parts of a stream this is one comparison."""
    if NO_CHOICES[0] not in events and NO_CHOICES[1] not in events:
        return events
    kept, start = [], 0
    while start < len(events):
        result = [at + len(end) for end in EVENT_ENDS if (at := events.find(end, start)) >= 0]
        end = min(result, default=len(events))
        event = events[start:end]
        if not _tells_usage_alone(event):
            kept.append(event)
        start = end
    return b"".join(kept)


def _tells_usage_alone(event: bytes) -> bool:
    if NO_CHOICES[0] not in event and NO_CHOICES[1] not in event:
        return False
    data = event.strip()
    if not data.startswith(b"data:") or b"\n" in data:
        return False
    try:
        doc = orjson.loads(data[len(b"data:") :])
    except orjson.JSONDecodeError:
        return False
    return isinstance(doc, dict) and doc.get("choices") == [] and isinstance(doc.get("usage"), dict)
