"""Decides which requests are recorded, by OpenTelemetry's variables. Does no I/O.

The samplers and their names are those of OpenTelemetry's specification (environment variables, general SDK
configuration). They are decided here and not by the SDK, since a request that is not recorded must cost next to
nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from promptgroup_router.http11.trace_context import TraceContext

SAMPLER, ARGUMENT = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
DEFAULT_RATIO = 0.01
"""OpenTelemetry's default records every request, which more than doubles what a request costs a router."""
_BITS = 64
"""Bits of a trace's id, the low ones, by which all samplers of a ratio decide alike."""
_LOW = (1 << _BITS) - 1
_RATIOS = {"always_on": 1.0, "always_off": 0.0}
_PARENT = "parentbased_"


class Sampling(NamedTuple):
    """A rule for which requests are recorded."""

    ratio: float
    """Share of those whose callers do not decide."""
    parent_based: bool
    """True if callers decide who send a trace with their request."""

    @property
    def bound(self) -> int:
        """The low bits of a trace's id below which it is recorded where no caller decides."""
        return round(self.ratio * (1 << _BITS))

    def samples(self, trace: int, parent: TraceContext | None) -> bool:
        """Return True if a request is recorded that belongs to this trace."""
        if self.parent_based and parent is not None:
            return parent.sampled
        return trace & _LOW < self.bound


def sampling(environment: Mapping[str, str]) -> Sampling:
    """Return what the variables say.

    Raises:
        ValueError: one has another value; the message names the variable, the value and what is expected.
    """
    name = environment.get(SAMPLER, "")
    if not name:
        return Sampling(DEFAULT_RATIO, parent_based=True)
    root = name.removeprefix(_PARENT)
    if root in _RATIOS:
        return Sampling(_RATIOS[root], name != root)
    if root != "traceidratio":
        expected = "always_on, always_off or traceidratio, each also with parentbased_ in front"
        raise ValueError(f"{SAMPLER} is {name!r}, expected {expected}")
    given = environment.get(ARGUMENT, "") or "1.0"
    try:
        ratio = float(given)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"{ARGUMENT} is {given!r}, expected 0 to 1")
    return Sampling(ratio, name != root)
