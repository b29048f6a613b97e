"""Counts the events of a stream whose caller is identified or has limits, since the stream may never reach its end.

If a client disconnects before the last event, or an engine reports no usage, the tokens of the answer could not be
counted otherwise. An event has a token as a rule, and more where an engine sends several at once.
"""

from promptgroup_router.apis.usage import OuterTail, Tail

_FIRST = b'data: {"'
_EVENT = b"\n" + _FIRST
"""The beginning of an event, which no text has: a line feed inside a JSON string is escaped."""

UNSEEN = -1
"""The number of events of an answer that is no stream, or whose events were not counted."""


class SeenEvents:
    """The number of events of one answer."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = UNSEEN


class AnswerEvents(OuterTail):
    """The end of a streamed answer, and the number of its events."""

    __slots__ = ("_seen",)

    def __init__(self, tail: Tail, seen: SeenEvents) -> None:
        """Begin.

        Args:
            tail: of the API.
            seen: counts the events.
        """
        super().__init__(tail)
        self._seen = seen
        seen.count = 0

    def add(self, data: bytes) -> None:
        """Add bytes of the body, as received."""
        self._tail.add(data)
        self._seen.count += data.count(_EVENT) + data.startswith(_FIRST)
