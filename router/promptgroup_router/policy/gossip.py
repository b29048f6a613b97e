"""Defines what routers send each other: placements of sessions and prefixes, and each router's load on each replica."""

from typing import NamedTuple

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.rings.ids import MemberHash, PrefixKey

REPEATS = 3
"""Ticks in which peers are told that a replica is idle: two datagrams in a row may be lost."""
REPORT_SECONDS = 5.0
"""Seconds for which a report of requests counts that is not renewed: it is in each tick, so that many were lost."""

LAST_TURN = 65535
"""The largest number of a turn that a report holds: of a session that was never silent for half an hour meanwhile."""


class PlacementReport(NamedTuple):
    """A turn of a session that was placed or has ended. Idempotent; an older turn never overrides a newer one."""

    session: SessionKey
    member: MemberHash
    prefix: PrefixKey
    """The Tier-1 prefix that the member has cached with it."""
    turn: int
    """Orders the placements of one session: the messages of the request, or one more than that of the placement that
    the sender knew before, where this is more. Clients that compact their history send fewer messages from then on.
    At most `LAST_TURN`; of several placements with the same number, the one that is heard last counts."""
    tokens: int
    """Tokens of the session that the member has cached: the prompt when it was placed, with the answer once it
    ended."""
    shared: int = 0
    """Those of them that other sessions had computed there, Tier 1 included."""


class PrefixReport(NamedTuple):
    """A prefix that a request was sent somewhere with. Idempotent, and in any order."""

    prefix: PrefixKey
    member: MemberHash
    tokens: int
    """Tokens beyond the next shorter prefix of the same prompt."""


class LoadReport(NamedTuple):
    """The load that one router has put on one replica.

    It holds ages instead of times and a counter instead of increments, so that a lost report does no harm. It is
    renewed in each tick as long as there are requests, and told `REPEATS` times once there are none.
    """

    member: MemberHash
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
    unplaced: int = 0
    """Tokens of their own of sessions that were sent there and of which no placement is told yet: their first token is
    still to come."""
    waiting: int = 0
    """Requests whose first token is still to come."""
