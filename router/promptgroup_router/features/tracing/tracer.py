"""Records the requests that are sampled as spans; of the others it makes only the header for their engines.

A request that is not sampled and belongs to no client's trace costs one look at 64 random bits, which are drawn for
many requests at once and become its ids: they are the low half of its trace's id, by which all samplers of a ratio
decide, and its span's id. The high half is the process's, as W3C Trace Context (section 7) has it for those who make
shorter ids. What is recorded has ids of its own bits.

Does no I/O and reads no clock: random bytes come from a function, and spans that have ended go to another one, which
must not wait.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from promptgroup_router.features.tracing.sampling import Sampling
from promptgroup_router.http11.trace_context import SAMPLED, TraceContext, parse
from promptgroup_router.routing.process_points import RequestTrace, RequestTracer, Value

ID_BYTES = 8
"""Bytes of a span's id, and of each half of a trace's id."""
_DIGITS = 2 * ID_BYTES
DRAWN_AT_ONCE = 128
"""Requests for which ids are drawn at once."""
MOST_EVENTS = 32
"""Most events of a span: three engines get a request at most, each try has three events, and slots may be dead."""

Attributes = Mapping[str, Value]


class SpanEvent(NamedTuple):
    """Something that happened to a request."""

    name: str
    at: int
    """Nanoseconds since 1970."""
    attributes: Attributes


class EndedSpan(NamedTuple):
    """A request that has ended, as it is exported to a collector."""

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


class RequestSpan(RequestTrace):
    """The span of a request that is recorded and runs."""

    __slots__ = ("_export", "began", "context", "epoch", "events", "parent")

    def __init__(
        self,
        context: TraceContext,
        parent: TraceContext | None,
        began: float,
        epoch: float,
        export: Callable[[EndedSpan], None],
    ) -> None:
        self._export = export
        self.context = context
        self.parent = parent
        self.began = began
        self.epoch = epoch
        """Seconds since 1970 at which the monotonic clock was 0."""
        self.events: list[SpanEvent] = []

    @property
    def trace_id(self) -> int:
        """128 bits."""
        return self.context.trace

    def note(self, name: str, now: float, attributes: Attributes) -> None:
        """Add an event."""
        if len(self.events) < MOST_EVENTS:
            self.events.append(SpanEvent(name, self._time(now), attributes))

    def end(self, name: str, attributes: Attributes, now: float, error: str = "") -> None:
        """End the span."""
        began, ended = self._time(self.began), self._time(now)
        self._export(EndedSpan(self.context, self.parent, name, began, ended, attributes, self.events, error))

    def _time(self, now: float) -> int:
        """Return a time as nanoseconds since 1970."""
        return int((self.epoch + now) * 1e9)


class Tracer(RequestTracer):
    """Begins and ends the spans of requests."""

    def __init__(
        self,
        sampling: Sampling,
        random: Callable[[int], bytes],
        export: Callable[[EndedSpan], None],
        epoch: float = 0.0,
    ) -> None:
        """Begin with none.

        Args:
            sampling: which requests are recorded.
            random: returns so many random bytes.
            export: takes spans that have ended.
            epoch: seconds since 1970 at which the monotonic clock was 0.
        """
        self._sampling = sampling
        bound = sampling.bound
        self._bound = f"{bound:016x}".encode() if bound >> 8 * ID_BYTES == 0 else b"g"
        """The digits below which the low half of a trace's id is recorded; those of all ids are below `g`."""
        self._random = random
        self._export = export
        self._opening = b"00-%b" % random(ID_BYTES).hex().encode()
        """The beginning of headers of requests that are not sampled, with the high half of their traces' ids."""
        self._drawn = b""
        """Hexadecimal digits for the ids of the next requests."""
        self._at = 0
        self.epoch = epoch

    def begin(self, traceparent: bytes, now: float) -> tuple[bytes, RequestSpan | None]:
        """Begin the span of a request, if it is sampled, as `RequestTracer.begin` says."""
        parent = parse(traceparent) if traceparent else None
        if parent is None:
            at = self._at
            if at == len(self._drawn):
                self._drawn, at = self._random(DRAWN_AT_ONCE * ID_BYTES).hex().encode(), 0
            self._at = at + _DIGITS
            low = self._drawn[at : at + _DIGITS]
            if low >= self._bound:
                return b"%b%b-%b-00" % (self._opening, low, low), None
            context = TraceContext(self._id() << 8 * ID_BYTES | int(low, 16), self._id(), SAMPLED)
            return context.header(), RequestSpan(context, None, now, self.epoch, self._export)
        sampled = self._sampling.samples(parent.trace, parent)
        if not sampled and not parent.sampled:
            return b"", None  # the client's own header says so
        flags = parent.flags | SAMPLED if sampled else parent.flags & ~SAMPLED
        context = TraceContext(parent.trace, self._id(), flags)
        return context.header(), RequestSpan(context, parent, now, self.epoch, self._export) if sampled else None

    def _id(self) -> int:
        """Return the id of a span, or half of a trace's id."""
        return int.from_bytes(self._random(ID_BYTES), "big") or 1
