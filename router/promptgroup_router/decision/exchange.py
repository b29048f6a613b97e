"""The state of one request: the slot that has it, the slots that had it, and the action for each event. Does no I/O.

Events are method calls, which return actions:

| event                                    | action                                                                  |
|------------------------------------------|-------------------------------------------------------------------------|
| begin                                    | Send to the pick, WAIT where none has capacity, or Refuse (503)          |
| capacity is free                         | the same again                                                           |
| waited too long                          | Refuse (503)                                                             |
| failed, pooled connection was stale      | Send to the same slot on a fresh connection; not counted as a failure    |
| failed, nothing was passed on yet        | the slot is ejected; Send to the next best, WAIT, or Refuse (502, 504);  |
|                                          | on a fresh connection if an engine was lost with the request             |
| the same, of two engines at one time     | WAIT, until failures with the same cause have shown                      |
| the same, too many others are tried again| WAIT                                                                     |
| answered 429, 502, 503, 504              | the slot is ejected; Send to the next best, or WAIT; RELAY when all that |
|                                          | may be tried have refused                                                |
| answered anything else                   | RELAY, once the body's first byte is here, or a stream's first token     |
| failed, after that                       | CUT: the client must see that the answer is not whole                    |
| goes on, after a failure or before one   | Send to another slot for the rest of the answer, WAIT, or nothing        |
| ended by the engine before its time      | as failed                                                                |
| ended, abandoned                         | the load is released, once                                               |
"""

import enum
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from promptgroup_contract.table import RoutingTable
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import NO_REPLICA_SECONDS, NO_ROOM_SECONDS, ApiError, Failure
from promptgroup_router.policy.balancer import NoMemberLeftError, Pick
from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.ids import NO_MEMBER, MemberId
from promptgroup_router.rings.index import Candidates, Member
from promptgroup_router.rings.renewal import renewed
from promptgroup_router.routing.points import ERRORS
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

REST_SECONDS = 60.0
"""Least time in which replicas are tried for the rest of an answer, which may be older than requests may wait."""

UNAVAILABLE = frozenset((429, 502, 503, 504))
"""Statuses by which an engine reports that it did not process the request. They arrive at once: without a back-off the
engine would appear to be the fastest of all, and get most requests."""
SERVER_ERRORS = 500
"""From this status on an error may be the engine's fault; several in a row are."""

_NOT_THERE = (
    Failure.REFUSED,
    Failure.CONNECT_TIMEOUT,
    Failure.UNTRUSTED,
    Failure.NO_TLS,
    Failure.RESET,
    Failure.DEADLINE,
    Failure.NO_TOKEN,
    Failure.ABORTED,
)
"""Failures that eject a slot; of an engine that answers, the status decides."""
_NEVER_SENT = frozenset(
    (Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.UNTRUSTED, Failure.NO_TLS, Failure.NO_CREDENTIAL)
)
"""Failures of slots whose engine did not get the request."""


@dataclass(slots=True)
class Send:
    """Send the request to this member."""

    member: Member
    fresh: bool = False
    """True to open a new connection instead of using a pooled one."""


@dataclass(slots=True)
class Refuse:
    """Answer the client with an error."""

    error: ApiError


class Action(enum.Enum):
    """Actions without a value."""

    WAIT = "wait in the admission queue until a replica has room for the session"
    RELAY = "relay the answer to the client"
    CUT = "end the client's answer, which is not whole"


Begun = Send | Refuse | Literal[Action.WAIT]
"""Actions for a request that no replica has."""
Answered = Send | Literal[Action.WAIT, Action.RELAY]
"""Actions for the head of an answer."""
Failed = Begun | Literal[Action.CUT]
"""Actions for a try that failed."""


class Exchange:
    """The state of one request from its first pick to its end."""

    __slots__ = ("_candidates", "_deadline", "_demand", "_got", "_leaving", "_lost", "_lost_at", "_pick",
                 "_present", "_refused", "_relays", "_renewed_by", "_retries", "_settled", "_stale", "_state",
                 "_tried")  # fmt: skip

    def __init__(self, state: RouterState, candidates: Candidates, demand: Demand, deadline: float) -> None:
        self._state = state
        self._candidates = candidates
        """Those that the request began with."""
        self._present = candidates
        """Those of them that were in the table when a member was last chosen."""
        self._renewed_by: RoutingTable | None = None
        """That table; None while they are those that the request began with."""
        self._demand = demand
        self._deadline = deadline
        self._pick: Pick | None = None
        self._tried: tuple[MemberId, ...] = ()
        self._relays = False
        self._refused = False
        """True if the answer is an error, which does not count as the engine's work."""
        self._stale = False
        """True if a pooled connection of this slot was closed on the request."""
        self._got = 0
        """Number of engines that got the request and failed or refused it."""
        self._lost = 0
        """Number of times that engines closed their connection on the request, or never began to answer it."""
        self._lost_at = self._settled = 0.0
        """The first loss of the last such time, and the time until which the request waits."""
        self._retries = False
        """True if the request is counted in the retry budget."""
        self._leaving: Member | None = None
        """The member that must leave and has handed its answer on, until another one answers."""

    @property
    def member(self) -> Member:
        """The member that has the request."""
        return self._picked.member

    @property
    def pick(self) -> Pick | None:
        """The member that has the request, with what was expected of it; None before one was picked."""
        return self._pick

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
        before = self._picked.before
        return before.member if self._picked.moved and before is not None else NO_MEMBER

    @property
    def untouched(self) -> bool:
        """True if no engine has seen anything of the request."""
        return not self._got and not self._lost

    def anew(self, candidates: Candidates, deadline: float) -> None:
        """Begin again with other candidates, for a request that no engine has seen and that has waited for these."""
        self._candidates = self._present = candidates
        self._deadline = deadline
        self._tried = ()
        self._stale = False

    def begin(self, now: float) -> Begun:
        """Return the first action for a request, or for one that waits."""
        action = self._next(now)
        if action is not None:
            return action
        message = f"{self._candidates.id} has no replica that is ready: retry"
        return Refuse(ApiError(503, message, code="no_replica", retry_after=NO_REPLICA_SECONDS))

    def answered(self, status: int, now: float, retry_after: float = 0.0) -> Answered:
        """Return the action for the head of an answer, of which the client has nothing yet.

        Args:
            status: its status.
            now: monotonic seconds.
            retry_after: seconds for which the engine requests no further requests; 0 if it names none.
        """
        if status not in UNAVAILABLE:
            return Action.RELAY
        refusing = self._picked
        self._got += 1
        self._eject(refusing.member, now, retry_after)
        if now >= self._deadline or (action := self._next(now)) is None:
            return Action.RELAY
        self._state.balancer.release(refusing, now)
        self._state.metrics.retries.add(Failure.STATUS.value)
        return action

    def relaying(self, now: float, status: int = 200) -> None:
        """Record that the first byte goes to the client; from here on no other slot is tried."""
        self._leave_budget()
        self._leaving = None
        if status not in UNAVAILABLE:  # else it is ejected already
            self._judge(self.member, now, works=status < SERVER_ERRORS)
        self._refused = status >= ERRORS
        if not self._refused:
            self._state.balancer.first_token(self._picked, now)
        self._relays = True

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

    def served_by(self, address: str, passed_over: Sequence[Member], now: float) -> None:
        """Record that a gateway had the request served at an address, which may be a fallback's.

        Args:
            address: `host:port` of the engine that answered.
            passed_over: the fallbacks that the gateway was given, in order.
            now: monotonic seconds.
        """
        picked = self.member
        if address == picked.address:
            return
        self._give_up(Failure.REFUSED, now)
        for member in passed_over:
            if member.address == address:
                alone = renewed(self._candidates.only(member), self._state.index)
                with suppress(NoMemberLeftError):  # it has left the table, where no load is counted
                    self._pick = self._state.balancer.pick(alone, self._demand, now) or self._pick
                self._tried += (member.id,)
                return
            self._eject(member, now)

    def not_sent(self, now: float) -> None:
        """Record that a gateway reached none of the members that it was given."""
        self._leave_budget()
        self._give_up(Failure.REFUSED, now)

    def failed(self, failure: Failure, now: float) -> Failed:
        """Return the action for a failure of the slot that has the request."""
        if failure is Failure.STALE:
            self._stale = True
            return Send(self.member, fresh=True)
        if failure in (Failure.RESET, Failure.NO_TOKEN, Failure.ABORTED) or (
            self._stale and failure is Failure.REFUSED
        ):
            self._lose(now)
        elif failure not in _NEVER_SENT:
            self._got += 1
        end = self._give_up(failure, now)
        if isinstance(end, Refuse) and now < self._deadline and (action := self._next(now)) is not None:
            self._state.metrics.retries.add(failure.value)
            return action
        self._leave_budget()
        if isinstance(end, Refuse) and self._leaving is not None:
            return self._back(self._leaving, now) or end
        return end

    def go_on(self, now: float) -> Send | Literal[Action.WAIT] | None:
        """Return the action for the rest of an answer whose slot has failed; None if there is no slot to try."""
        self._relays = False
        self._deadline = max(self._deadline, now + REST_SECONDS)
        return self._next(now)

    @property
    def leaves(self) -> bool:
        """True if the table does not have the process that answers any more, or has it drain."""
        member = self.member
        present = self._state.index.ready.get(member.id)
        return present is None or present.incarnation != member.incarnation

    def hand_on(self, now: float) -> Send | None:
        """Return the action for the rest of an answer whose slot must leave; None while no other slot takes it."""
        leaving = self._picked
        action = self._next(now)
        if not isinstance(action, Send):
            self._leave_budget()
            return None
        self._state.balancer.release(leaving, now)
        self._leaving = leaving.member
        self._relays = False
        self._deadline = max(self._deadline, now + REST_SECONDS)
        return action

    def _back(self, leaving: Member, now: float) -> Send | None:
        """Return the action that requests the rest from a member that must leave, since no other member can give it."""
        self._leaving = None
        alone = renewed(self._candidates.only(leaving), self._state.index)
        with suppress(NoMemberLeftError):
            if (pick := self._state.balancer.pick(alone, self._demand, now)) is not None:
                self._pick = pick
                return Send(pick.member)
        return None

    def late(self, waited: float, now: float) -> Failure | None:
        """Return the failure of a slot that lets the client wait for longer than the group's limits; else None.

        Whole answers have no limit of their own: one that has not begun is late only on a slot that is ejected.

        Args:
            waited: seconds since the request was sent, or since the last bytes of an answer that has begun.
            now: monotonic seconds.
        """
        limits, streamed = self._candidates.time_limits, self._demand.streamed
        if self._relays:
            return Failure.STALLED if streamed and 0 < limits.idle <= waited else None
        if not 0 < limits.first_token <= waited:
            return None
        suspected = not self._state.health.available(self.member.slot_id, self.member.incarnation, now)
        return Failure.NO_TOKEN if streamed or suspected else None

    def expired(self, now: float) -> Refuse | Literal[Action.CUT]:
        """Return the action for a request whose deadline has passed."""
        self._leave_budget()
        if self._pick is None or not self._pick.counted:
            return self.time_out()
        return self._give_up(Failure.DEADLINE, now)

    def time_out(self) -> Refuse:
        """Return the action for a request that has waited for capacity, or for a retry, for too long."""
        why = f"{self.tries} replicas did not answer, the others" if self.tries else "its replicas"
        message = f"{self._candidates.id} is overloaded: {why} have no room for another session; retry later"
        return Refuse(ApiError(503, message, code="overloaded", retry_after=NO_ROOM_SECONDS))

    def ended(self, now: float, usage: Usage | None = None) -> None:
        """Release the load of a request whose answer is whole."""
        self._leave_budget()
        if self._refused:
            self._state.balancer.release(self._picked, now)
        else:
            self._state.balancer.end(self._picked, usage, now)

    def abandoned(self, now: float) -> None:
        """Release the load of a request whose client has left."""
        self._leave_budget()
        if self._pick is not None:
            self._state.balancer.release(self._pick, now)

    def _give_up(self, failure: Failure, now: float) -> Refuse | Literal[Action.CUT]:
        """Release the load of a slot that failed. Return the action if no other slot is tried."""
        self._state.balancer.release(self._picked, now)
        # the next request detects an engine that died during an answer; one that hangs would accept all requests
        gone = failure in (Failure.STALLED, Failure.ABORTED) if self._relays else failure in _NOT_THERE
        if gone:
            self._eject(self.member, now)
        if self._relays:
            return Action.CUT
        late = failure in (Failure.DEADLINE, Failure.CONNECT_TIMEOUT, Failure.NO_TOKEN)
        message = f"no replica answered, {self.tries} tried, the last: {failure.value}; retry"
        return Refuse(ApiError(504 if late else 502, message, code="timeout" if late else "no_answer"))

    def _lose(self, now: float) -> None:
        """Count an engine that was lost with the request."""
        self._got += 1
        if self._lost and now - self._lost_at < TOGETHER_SECONDS:
            self._settled = now + SETTLE_SECONDS
        else:
            self._lost += 1
            self._lost_at = now

    def _judge(self, member: Member, now: float, *, works: bool) -> None:
        if works:
            self._state.health.succeeded(member.slot_id)
        elif self._state.health.erred(member.slot_id, member.incarnation, now):
            self._state.metrics.ejections.add()

    def _eject(self, member: Member, now: float, least: float = 0.0) -> None:
        if self._state.health.failed(member.slot_id, member.incarnation, now, least):
            self._state.metrics.ejections.add()

    def _next(self, now: float) -> Send | Literal[Action.WAIT] | None:
        """Pick another slot, or wait; None if there is no slot to try."""
        if self._got >= MAX_TRIES or self._lost >= MAX_LOST or len(self._tried) >= MAX_SLOTS:
            return None
        if self._candidates.validity.ended and self._renewed_by is not self._state.index.table:
            # from those that it began with: a slot that was away may be back
            self._renewed_by = self._state.index.table
            self._present = renewed(self._candidates, self._state.index)
        if self._tried:
            if not self._others(now):
                self._leave_budget()
                return None
            if now < self._settled:
                self._leave_budget()
                return Action.WAIT
            if not self._enter_budget():
                return Action.WAIT
        try:
            pick = self._state.balancer.pick(self._present, self._demand, now, self._tried)
        except NoMemberLeftError:
            self._leave_budget()
            return None
        if pick is None:
            self._leave_budget()
            return Action.WAIT
        self._pick = pick
        self._stale = False
        self._tried += (pick.member.id,)
        # a pooled connection may have ended with the same node, which would look as if the request had crashed this
        # engine
        return Send(pick.member, fresh=self._lost > 0)

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
            live = self._state.balancer.live(self._candidates)
            self._retries = self._state.retry_budget.take(self._candidates.id, live)
            if not self._retries:
                self._state.metrics.retries_held.add()
        return self._retries

    def _leave_budget(self) -> None:
        if self._retries:
            self._retries = False
            self._state.retry_budget.give_back(self._candidates.id)

    @property
    def _picked(self) -> Pick:
        if self._pick is None:
            raise RuntimeError("no member was picked yet: call begin first")
        return self._pick
