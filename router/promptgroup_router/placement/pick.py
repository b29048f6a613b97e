"""A request that is counted on a member: what was expected when it was sent, and what has happened to it since."""

from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.replica_load import PendingPrefill, ReplicaLoad
from promptgroup_router.policy.session_locations import Placement
from promptgroup_router.rings.index import Member


class Pick:
    """A request that is counted on a member until it ends."""

    __slots__ = (
        "ahead", "alone", "before", "cached", "computed", "copied", "counted", "demand", "first", "guessed", "known",
        "member", "moved", "own", "placement", "replica", "sent", "shared", "since", "step", "turn", "written",
    )  # fmt: skip

    def __init__(self, member: Member, replica: ReplicaLoad, demand: Demand, now: float) -> None:
        self.member = member
        self.replica = replica
        self.demand = demand
        self.since = now
        self.counted = True
        self.before: Placement | None = None
        """The placement of the session's previous turn, as it was recorded when the request was sent."""
        self.moved = False
        """True if another member served the session before."""
        self.cached = 0.0
        """Tokens of the prompt that are expected to be cached there."""
        self.copied = 0.0
        """Tokens of the prompt that are expected to be copied from a KV tier which all replicas share."""
        self.shared = 0
        """Tokens of the prompt that other sessions have computed there."""
        self.known = 0
        """Number of prefixes of the prompt that were cached there when the request was sent."""
        self.computed = False
        """True once the prefill is done, because the answer has begun."""
        self.guessed = False
        """True if `cached` is assumed from the ring alone, because no record of the session exists."""
        self.step = replica.step
        """Predicted seconds of one engine step there."""
        self.ahead = replica.wait(now) > 0
        """True if the replica had to compute the prompts of other requests first."""
        self.alone = not replica.in_flight and not replica.peer_in_flight
        """True if no other request ran there between sending the request and its first token."""
        self.first: float | None = None
        """Time at which the first token arrived."""
        self.written = 0.0
        """Tokens that had been written into the replica's cache when the request was sent."""
        self.placement: Placement | None = None
        """The placement of a session that had none, which is recorded once the first token has arrived."""
        self.own = 0
        """Unshared tokens that the session needs in the replica's cache."""
        self.turn = 0
        """Number of the turn in the recorded placement, once there is one."""
        self.sent: PendingPrefill
