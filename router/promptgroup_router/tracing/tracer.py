"""Records the requests that are sampled as spans; of the others it makes only what their engines are told.

Does no I/O and reads no clock: random bits come from a function, and spans that have ended go to another one, which
must not wait.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from promptgroup_router.tracing.sampling import Sampling
from promptgroup_router.tracing.trace_context import SAMPLED, TraceContext, parse

TRACE_BITS, SPAN_BITS = 128, 64
_TRACE, _SPAN = TRACE_BITS // 8, SPAN_BITS // 8
_LOW = _TRACE - 8
"""The bytes of a trace's id that decide whether it is recorded."""
MOST_SPAN = (1 << SPAN_BITS) - 1
MOST_EVENTS = 32
"""Most events of a span: a request is tried on three replicas at most, and each try has three events."""

Value = str | bool | int | float
Attributes = Mapping[str, Value]


class SpanEvent(NamedTuple):
    """Something that happened to a request."""

    name: str
    at: int
    """Nanoseconds since 1970."""
    attributes: Attributes


class EndedSpan(NamedTuple):
    """A request that has ended, as it is told to a collector."""

    context: TraceContext
    parent: TraceContext | None
    name: str
    began: int
    """Nanoseconds since 1970."""
    ended: int
    attributes: Attributes
    events: list[SpanEvent]
    error: str
    """The kind of the error; empty for none."""


class RequestSpan:
    """The span of a request that is recorded and runs."""

    __slots__ = ("began", "context", "epoch", "events", "parent")

    def __init__(self, context: TraceContext, parent: TraceContext | None, began: float, epoch: float) -> None:
        self.context = context
        self.parent = parent
        self.began = began
        self.epoch = epoch
        """Seconds since 1970 at which the monotonic clock was 0."""
        self.events: list[SpanEvent] = []

    def note(self, name: str, now: float, attributes: Attributes) -> None:
        """Add an event."""
        if len(self.events) < MOST_EVENTS:
            self.events.append(SpanEvent(name, self.time(now), attributes))

    def time(self, now: float) -> int:
        """Return a time as nanoseconds since 1970."""
        return int((self.epoch + now) * 1e9)


class Tracer:
    """Begins and ends the spans of requests."""

    def __init__(
        self, sampling: Sampling, random: Callable[[int], int], export: Callable[[EndedSpan], None], epoch: float = 0.0
    ) -> None:
        """Begin with none.

        Args:
            sampling: which requests are recorded.
            random: returns a number of so many random bits.
            export: takes spans that have ended.
            epoch: seconds since 1970 at which the monotonic clock was 0.
        """
        self._sampling = sampling
        self._bound = sampling.bound
        self._random = random
        self._export = export
        self.epoch = epoch

    def begin(self, traceparent: bytes, now: float) -> tuple[bytes, RequestSpan | None]:
        """Begin the span of a request, if it is sampled.

        Args:
            traceparent: the client's header; empty for none.
            now: monotonic seconds.

        Returns:
            The header `traceparent` for engines, empty where they get the client's as it is; and the span, if any.
        """
        parent = parse(traceparent) if traceparent else None
        drawn = self._random(TRACE_BITS + SPAN_BITS)
        if parent is None:
            # most requests: decided, and told to the engine, before anything else is made
            ids = drawn.to_bytes(_TRACE + _SPAN, "big")
            if ids[_LOW:_TRACE] >= self._bound:
                return f"00-{ids.hex('-', -_TRACE)}-00".encode(), None
            context = TraceContext(drawn >> SPAN_BITS or 1, drawn & MOST_SPAN or 1, SAMPLED)
            return context.header(), RequestSpan(context, None, now, self.epoch)
        trace, span = parent.trace, drawn & MOST_SPAN or 1
        if self._sampling.samples(trace, parent):
            context = TraceContext(trace, span, parent.flags | SAMPLED)
            return context.header(), RequestSpan(context, parent, now, self.epoch)
        # a client that does not record is told so by its own header already
        return (TraceContext(trace, span, parent.flags & ~SAMPLED).header() if parent.sampled else b""), None

    def end(self, span: RequestSpan, name: str, attributes: Attributes, now: float, error: str = "") -> None:
        """End a span."""
        began, ended = span.time(span.began), span.time(now)
        self._export(EndedSpan(span.context, span.parent, name, began, ended, attributes, span.events, error))
