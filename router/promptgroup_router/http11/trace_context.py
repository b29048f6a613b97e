"""The header `traceparent`: the trace that a request belongs to (W3C Trace Context, section 3.2)."""

import re
from typing import NamedTuple

HEADER = b"traceparent"
SAMPLED = 0x01
"""The flag by which a caller says that it records the trace."""

_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_FLAGS = 53
"""Where the flags begin, two characters."""


class TraceContext(NamedTuple):
    """A span within a trace."""

    trace: int
    """128 bits."""
    span: int
    """64 bits."""
    flags: int
    """8 bits."""

    @property
    def sampled(self) -> bool:
        """True if the sender of this span records the trace."""
        return bool(self.flags & SAMPLED)

    def header(self) -> bytes:
        """Return the header's value."""
        return b"00-%032x-%016x-%02x" % (self.trace, self.span, self.flags)


def parse(value: bytes) -> TraceContext | None:
    """Return what a header says; None for one of another form, by which the request begins a trace of its own."""
    result = _FORM.fullmatch(value)
    if result is None or result[1] == b"ff" or (result[1] == b"00" and result[5] is not None):
        return None
    trace, span = int(result[2], 16), int(result[3], 16)
    return TraceContext(trace, span, int(result[4], 16)) if trace and span else None


def sampled_trace(value: bytes) -> int:
    """Return the trace that a header names, if its caller records it; else 0."""
    if value[_FLAGS : _FLAGS + 2] == b"00":  # most of those that are not recorded, at next to no cost
        return 0
    trace_context = parse(value)
    return trace_context.trace if trace_context is not None and trace_context.sampled else 0


def trace_id(value: bytes) -> str:
    """Return the id of the trace that a header names; empty for a header of another form."""
    trace_context = parse(value)
    return f"{trace_context.trace:032x}" if trace_context is not None else ""
