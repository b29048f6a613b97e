"""The members that one request was sent to, and the choice of the next one.

An attempt is refused once the request has cost too many engines, or was sent to too many members; a further one waits
while too many others are tried again, and after two engines were lost at one time.
"""

from contextlib import suppress
from itertools import islice
from typing import Literal

from promptgroup_contract.table import RoutingTable
from promptgroup_router.base.errors import Failure
from promptgroup_router.decision.actions import Action, Send
from promptgroup_router.placement.balancer import NoMemberLeftError
from promptgroup_router.placement.pick import Pick
from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.ids import NO_MEMBER, MemberId
from promptgroup_router.rings.index import Candidates, Member
from promptgroup_router.rings.renewal import renewed
from promptgroup_router.routing.state import RouterState

MAX_TRIES = 3
"""Most engines that get one request, and most slots that are tried where all that are left are ejected."""
MAX_SLOTS = 32
"""Most slots that are tried for one request: twice as many as the replicas that are lost with a node of 16 GPUs."""
MAX_LOST = 2
"""Most times that engines may close their connection while they have one request: the request may have crashed them."""
TOGETHER_SECONDS = 1.0
"""Engines that are lost within such a time are lost at one time: a failed node or device loses all its engines."""
SETTLE_SECONDS = 0.5
"""Wait before a request that has lost two engines at one time is tried again: by then other engines that fail with them
have failed."""

_LOST = (Failure.RESET, Failure.NO_TOKEN, Failure.ABORTED)
"""Failures by which an engine is lost with the request."""
_NEVER_SENT = frozenset(
    (Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.UNTRUSTED, Failure.NO_TLS, Failure.NO_CREDENTIAL)
)
"""Failures of slots whose engine did not get the request."""


class Attempts:
    """The members that a request was sent to."""

    __slots__ = ("_candidates", "_demand", "_got", "_lost", "_lost_at", "_present", "_renewed_by", "_retries",
                 "_settled", "_stale", "_state", "_tried", "pick")  # fmt: skip

    def __init__(self, state: RouterState, candidates: Candidates, demand: Demand) -> None:
        self._state = state
        self._candidates = candidates
        """Those that the request began with."""
        self._present = candidates
        """Those of them that were in the table when a member was last chosen."""
        self._renewed_by: RoutingTable | None = None
        """That table; None while they are those that the request began with."""
        self._demand = demand
        self.pick: Pick | None = None
        """The member that has the request, with what was expected of it; None before one was picked."""
        self._stale = False
        """True if a pooled connection of this member was closed on the request."""
        self._tried: tuple[MemberId, ...] = ()
        self._got = 0
        """Number of engines that got the request and failed or refused it."""
        self._lost = 0
        """Number of times that engines closed their connection on the request, or never began to answer it."""
        self._lost_at = self._settled = 0.0
        """The first loss of the last such time, and the time until which the request waits."""
        self._retries = False
        """True if the request is counted in the retry budget."""

    @property
    def tries(self) -> int:
        """Number of slots that the request was sent to."""
        return len(self._tried)

    @property
    def new(self) -> bool:
        """True if the request begins a session."""
        return not self._demand.history

    @property
    def moved_from(self) -> MemberId:
        """Id of the member that served its session before, where that is another one; else NO_MEMBER."""
        before = self.picked.before
        return before.member if self.picked.moved and before is not None else NO_MEMBER

    @property
    def untouched(self) -> bool:
        """True if no engine has seen anything of the request."""
        return not self._got and not self._lost

    @property
    def picked(self) -> Pick:
        """The same, for a request that has a member.

        Raises:
            RuntimeError: none was picked yet.
        """
        if self.pick is None:
            raise RuntimeError("no member was picked yet: call begin first")
        return self.pick

    @property
    def member(self) -> Member:
        """The member that has the request."""
        return self.picked.member

    @property
    def leaves(self) -> bool:
        """True if the table does not have the process of this member any more, or has it drain."""
        member = self.member
        present = self._state.index.ready.get(member.id)
        return present is None or present.incarnation != member.incarnation

    # --- The next member -----------------------------------------------------------------------------------------

    def restart(self, candidates: Candidates) -> None:
        """Begin again with other candidates, for a request that no engine has seen."""
        self._candidates = self._present = candidates
        self._tried = ()
        self._stale = False

    def next(self, now: float) -> Send | Literal[Action.WAIT] | None:
        """Pick another member, or wait; None if there is no member to try."""
        if self._got >= MAX_TRIES or self._lost >= MAX_LOST or len(self._tried) >= MAX_SLOTS:
            return None
        if self._candidates.validity.ended and self._renewed_by is not self._state.index.table:
            # from those that it began with: a slot that was away may be back
            self._renewed_by = self._state.index.table
            self._present = renewed(self._candidates, self._state.index)
        if self._tried:
            if not self._others(now):
                self.leave_budget()
                return None
            if now < self._settled:
                self.leave_budget()
                return Action.WAIT
            if not self._enter_budget():
                return Action.WAIT
        try:
            pick = self._state.balancer.pick(self._present, self._demand, now, self._tried)
        except NoMemberLeftError:
            self.leave_budget()
            return None
        if pick is None:
            self.leave_budget()
            return Action.WAIT
        self.pick = pick
        self._stale = False
        self._tried += (pick.member.id,)
        # a pooled connection may have ended with the same node, which would look as if the request had crashed this
        # engine
        return Send(pick.member, fresh=self._lost > 0)

    def choose_only(self, member: Member, now: float) -> Pick | None:
        """Pick a member, whatever the others are; None if it has left the table, where no load is counted."""
        alone = renewed(self._candidates.only(member), self._state.index)
        with suppress(NoMemberLeftError):
            if (pick := self._state.balancer.pick(alone, self._demand, now)) is not None:
                self.pick = pick
                return pick
        return None

    def add_tried(self, member: Member) -> None:
        """Record that the request was sent to a member that a gateway chose."""
        self._tried += (member.id,)

    def fallbacks(self, most: int, now: float) -> list[Member]:
        """Return the members that a gateway may try if the one that has the request does not answer, best first.

        They are those that the ring prefers, since the sessions of a removed member are placed there; of engines with
        data-parallel ranks those of the same rank, which the request names for any engine.
        """
        health, has_it = self._state.health, self.member
        order = self._present.order(self._demand.session)
        alike = (member for member in order if member.id != has_it.id and member.rank == has_it.rank)
        able = (item for item in alike if health.available(item.slot_id, item.incarnation, now))
        return list(islice(able, most))

    # --- What came of a member -----------------------------------------------------------------------------------

    def failed(self, failure: Failure, now: float) -> None:
        """Count a failure of the member that has the request."""
        if failure is Failure.STALE:
            self._stale = True
        elif failure in _LOST or (self._stale and failure is Failure.REFUSED):
            self._lose(now)
        elif failure not in _NEVER_SENT:
            self._got += 1

    def refused(self) -> None:
        """Count an engine that answered that it did not process the request."""
        self._got += 1

    def leave_budget(self) -> None:
        """Stop counting the request as one that is tried again."""
        if self._retries:
            self._retries = False
            self._state.retry_budget.give_back(self._candidates.id)

    def _lose(self, now: float) -> None:
        """Count an engine that was lost with the request."""
        self._got += 1
        if self._lost and now - self._lost_at < TOGETHER_SECONDS:
            self._settled = now + SETTLE_SECONDS
        else:
            self._lost += 1
            self._lost_at = now

    def _others(self, now: float) -> bool:
        """Return True if there is a member that the request was not sent to; after MAX_TRIES, one that may answer."""
        fallback = self._present.last_resort
        members = (*self._present.members, *(fallback.members if fallback is not None else ()))
        untried = (member for member in members if member.id not in self._tried)
        if len(self._tried) < MAX_TRIES:
            return any(True for _ in untried)
        health = self._state.health
        return any(health.available(member.slot_id, member.incarnation, now) for member in untried)

    def _enter_budget(self) -> bool:
        """Count the request as one that is tried again. Return False if there are too many."""
        if not self._retries:
            live = self._state.balancer.placed.live(self._candidates)
            self._retries = self._state.retry_budget.take(self._candidates.id, live)
            if not self._retries:
                self._state.metrics.retries_held.add()
        return self._retries
