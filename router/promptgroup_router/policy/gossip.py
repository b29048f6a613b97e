"""Defines what routers send each other: placements of sessions, and each router's load on each replica."""

from typing import NamedTuple


class PlacementReport(NamedTuple):
    """A turn of a session that was placed or has ended. Idempotent; an older turn never overrides a newer one."""

    session: int
    """Session key, 64 bits, unique across groups."""
    member: int
    """Hash of the member's id, 64 bits."""
    prefix: int
    """Names the Tier-1 prefix that the member has cached with it, 64 bits."""
    turn: int
    """Messages of the request, which order the placements of one session; at most 65535."""
    tokens: int
    """Tokens of the session that the member has cached: the prompt when it was placed, with the answer once it
    ended."""


class LoadReport(NamedTuple):
    """The load that one router has put on one replica.

    It holds ages instead of times and a counter instead of increments, so that a lost report does no harm.
    """

    member: int
    """Hash of the member's id, 64 bits."""
    in_flight: int
    """Requests that run or wait there."""
    context: int
    """Tokens of these requests."""
    pending: float
    """Seconds of predicted prefill whose first token is still to come."""
    age: float
    """Seconds since the last sign of progress: a first token, or the moment when the replica became busy."""
    written: int
    """Tokens newly written into its cache since the sender started; never decreases."""
