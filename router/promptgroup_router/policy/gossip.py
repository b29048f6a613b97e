"""Defines the reports that routers exchange: placements of sessions, prefixes, and each router's load per replica."""

from typing import NamedTuple

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.rings.ids import MemberHash, PrefixKey

REPEATS = 3
"""Ticks in which the report that a replica is idle is sent to peers: two datagrams in a row may be lost."""
REPORT_SECONDS = 5.0
"""Seconds after which a report of requests that is not renewed expires: each tick sends one, so many were lost."""

URGENT_SECONDS = 1.0
"""Predicted seconds of prefill beyond which a request is reported at once and not in the next tick. Until then another
router may send as long a prompt to the same replica, and all requests that share a prefix with either would wait for
both. Shorter ones delay others by less, and are too many."""

LAST_TURN = 65535
"""The largest turn number that a report holds: that of a session which is never silent for half an hour meanwhile."""


class PlacementReport(NamedTuple):
    """A turn of a session that was placed or has ended. It is idempotent; an older turn never replaces a newer one."""

    session: SessionKey
    member: MemberHash
    prefix: PrefixKey
    """The Tier-1 prefix of the session, which the member has cached too."""
    turn: int
    """Orders the placements of one session: the messages of the request, or one more than that of the placement that
    the sender had recorded, if that is greater. Clients that compact their history send fewer messages from then on.
    At most `LAST_TURN`; of several placements with the same number, the one received last counts."""
    tokens: int
    """Tokens of the session that the member has cached: the prompt when it was placed, with the answer once it
    ended."""
    shared: int = 0
    """The part of `tokens` that other sessions had computed there, Tier 1 included."""


class PrefixReport(NamedTuple):
    """A prefix of a request that was sent to a member. Reports are idempotent and may arrive in any order."""

    prefix: PrefixKey
    member: MemberHash
    tokens: int
    """Tokens beyond the next shorter prefix of the same prompt."""


class LoadReport(NamedTuple):
    """The load that one router has put on one replica.

    It contains ages instead of times and a counter instead of increments, so that a lost report does no harm. It is
    sent in each tick while there are requests, and `REPEATS` times once there are none.
    """

    member: MemberHash
    in_flight: int
    """Requests that run or wait there."""
    context: int
    """Tokens of these requests."""
    pending: float
    """Seconds of predicted prefill that is not known to be computed."""
    age: float
    """Seconds since the last sign of progress: a first token, or the moment when the replica became busy."""
    written: int
    """Tokens newly written into its cache since the sender started; never decreases."""
    unplaced: int = 0
    """Unshared tokens of sessions that were sent there and whose placement is not reported yet, because their first
    token has not arrived."""
    waiting: int = 0
    """Streamed requests that wait for their first token."""
