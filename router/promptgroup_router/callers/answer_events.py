"""Counts the events of a stream whose caller has limits, since its end may never come, or come without usage.

A client that leaves `stream_options.include_usage` out, or hangs up before the last event, would otherwise pay for no
answer. An event has a token as a rule, and more where an engine sends several at once. Does no I/O and reads no clock.
"""

from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.callers.limiter import Charge

_EVENT = b'data: {"'
"""The beginning of an event, which no text has: quotes inside a JSON string are escaped."""


class AnswerEvents(Tail):
    """The end of a streamed answer, and the number of its events."""

    __slots__ = ("_charge", "_tail")

    def __init__(self, tail: Tail, charge: Charge) -> None:
        """Begin.

        Args:
            tail: of the API.
            charge: is told of the events.
        """
        super().__init__()
        self._tail = tail
        self._charge = charge
        charge.streamed = True

    def add(self, data: bytes) -> None:
        """Add bytes of the body, as received."""
        self._tail.add(data)
        self._charge.seen += data.count(_EVENT)

    def usage(self) -> Usage | None:
        """Return the last usage of the body, None if there is none."""
        return self._tail.usage()


def tail_of(tail: Tail, charge: Charge | None, *, streamed: bool) -> Tail:
    """Return what keeps the end of an answer, and counts its events where somebody is charged for them."""
    if not streamed:
        tail.scans = True
    return AnswerEvents(tail, charge) if charge is not None and streamed else tail
