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
        """True if the trace is recorded by whoever has this span."""
        return bool(self.flags & SAMPLED)

    def header(self) -> bytes:
        """Return the header's value."""
        return b"00-%032x-%016x-%02x" % (self.trace, self.span, self.flags)


def parse(value: bytes) -> TraceContext | None:
    """Return what a header says; None for one of another form, by which the request begins a trace of its own."""
    found = _FORM.fullmatch(value)
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5] is not None):
        return None
    trace, span = int(found[2], 16), int(found[3], 16)
    return TraceContext(trace, span, int(found[4], 16)) if trace and span else None


def sampled_trace(value: bytes) -> int:
    """Return the trace that a header names, if its caller records it; else 0."""
    if value[_FLAGS : _FLAGS + 2] == b"00":  # most of those that are not recorded, at next to no cost
        return 0
    found = parse(value)
    return found.trace if found is not None and found.sampled else 0


def trace_id(value: bytes) -> str:
    """Return the id of the trace that a header names; empty for a header of another form."""
    found = parse(value)
    return f"{found.trace:032x}" if found is not None else ""
