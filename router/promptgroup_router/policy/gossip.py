"""What routers tell each other: where sessions were placed, and the load that each has put on each replica. Pure."""

from typing import NamedTuple


class PlacementReport(NamedTuple):
    """A session's turn was placed, or has ended. Idempotent; an older turn never overrides a newer one."""

    session: int
    """Session key, 64 bits, unique over groups."""
    member: int
    """Hash of the member's id, 64 bits."""
    prefix: int
    """Names the Tier-1 prefix that the member has cached with it, 64 bits."""
    turn: int
    """Messages of the request: what orders notes of one session. At most 65535."""
    tokens: int
    """Tokens of the session that the member has cached: the prompt when placed, and the answer once ended."""


class LoadReport(NamedTuple):
    """What one router has put on one replica.

    Ages instead of clocks, a counter instead of increments: loss does no harm.
    """

    member: int
    """Hash of the member's id, 64 bits."""
    in_flight: int
    """Requests that run or wait there."""
    context: int
    """Tokens of these requests."""
    pending: float
    """Seconds of predicted prefill sent there whose first token is still to come."""
    age: float
    """Seconds since the last sign of progress on it: a first token, or the moment when it became busy."""
    written: int
    """Tokens newly written into its cache since the sender began; grows only."""
