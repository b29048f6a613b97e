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

from collections.abc import Sequence
from typing import Literal

from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import NO_REPLICA_SECONDS, NO_ROOM_SECONDS, ApiError, Failure
from promptgroup_router.decision.actions import Action, Answered, Begun, Failed, Refuse, Send
from promptgroup_router.decision.attempts import Attempts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.index import Candidates, Member
from promptgroup_router.routing.points import ERRORS
from promptgroup_router.routing.state import RouterState

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


class Exchange:
    """The state of one request from its first pick to its end."""

    __slots__ = ("_candidates", "_deadline", "_demand", "_leaving", "_refused", "_relays", "_state", "attempts")

    def __init__(self, state: RouterState, candidates: Candidates, demand: Demand, deadline: float) -> None:
        self._state = state
        self._candidates = candidates
        """Those that the request began with."""
        self._demand = demand
        self._deadline = deadline
        self.attempts = Attempts(state, candidates, demand)
        """The members that the request was sent to."""
        self._relays = False
        self._refused = False
        """True if the answer is an error, which does not count as the engine's work."""
        self._leaving: Member | None = None
        """The member that must leave and has handed its answer on, until another one answers."""

    def anew(self, candidates: Candidates, deadline: float) -> None:
        """Begin again with other candidates, for a request that no engine has seen and that has waited for these."""
        self._candidates = candidates
        self._deadline = deadline
        self.attempts.restart(candidates)

    def begin(self, now: float) -> Begun:
        """Return the first action for a request, or for one that waits."""
        action = self.attempts.next(now)
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
        refusing = self.attempts.picked
        self.attempts.refused()
        self._eject(refusing.member, now, retry_after)
        if now >= self._deadline or (action := self.attempts.next(now)) is None:
            return Action.RELAY
        self._state.balancer.placed.release(refusing, now)
        self._state.metrics.retries.add(Failure.STATUS.value)
        return action

    def relaying(self, now: float, status: int = 200) -> None:
        """Record that the first byte goes to the client; from here on no other slot is tried."""
        self.attempts.leave_budget()
        self._leaving = None
        if status not in UNAVAILABLE:  # else it is ejected already
            self._judge(self.attempts.member, now, works=status < SERVER_ERRORS)
        self._refused = status >= ERRORS
        if not self._refused:
            self._state.balancer.placed.first_token(self.attempts.picked, now)
        self._relays = True

    def served_by(self, address: str, passed_over: Sequence[Member], now: float) -> None:
        """Record that a gateway had the request served at an address, which may be a fallback's.

        Args:
            address: `host:port` of the engine that answered.
            passed_over: the fallbacks that the gateway was given, in order.
            now: monotonic seconds.
        """
        picked = self.attempts.member
        if address == picked.address:
            return
        self._give_up(Failure.REFUSED, now)
        for member in passed_over:
            if member.address == address:
                self.attempts.choose_only(member, now)
                self.attempts.add_tried(member)
                return
            self._eject(member, now)

    def not_sent(self, now: float) -> None:
        """Record that a gateway reached none of the members that it was given."""
        self.attempts.leave_budget()
        self._give_up(Failure.REFUSED, now)

    def failed(self, failure: Failure, now: float) -> Failed:
        """Return the action for a failure of the slot that has the request."""
        self.attempts.failed(failure, now)
        if failure is Failure.STALE:
            return Send(self.attempts.member, fresh=True)
        end = self._give_up(failure, now)
        if isinstance(end, Refuse) and now < self._deadline and (action := self.attempts.next(now)) is not None:
            self._state.metrics.retries.add(failure.value)
            return action
        self.attempts.leave_budget()
        if isinstance(end, Refuse) and self._leaving is not None:
            return self._back(self._leaving, now) or end
        return end

    def go_on(self, now: float) -> Send | Literal[Action.WAIT] | None:
        """Return the action for the rest of an answer whose slot has failed; None if there is no slot to try."""
        self._relays = False
        self._deadline = max(self._deadline, now + REST_SECONDS)
        return self.attempts.next(now)

    def hand_on(self, now: float) -> Send | None:
        """Return the action for the rest of an answer whose slot must leave; None while no other slot takes it."""
        leaving = self.attempts.picked
        action = self.attempts.next(now)
        if not isinstance(action, Send):
            self.attempts.leave_budget()
            return None
        self._state.balancer.placed.release(leaving, now)
        self._leaving = leaving.member
        self._relays = False
        self._deadline = max(self._deadline, now + REST_SECONDS)
        return action

    def _back(self, leaving: Member, now: float) -> Send | None:
        """Return the action that requests the rest from a member that must leave, since no other member can give it."""
        self._leaving = None
        pick = self.attempts.choose_only(leaving, now)
        return Send(pick.member) if pick is not None else None

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
        member = self.attempts.member
        suspected = not self._state.health.available(member.slot_id, member.incarnation, now)
        return Failure.NO_TOKEN if streamed or suspected else None

    def expired(self, now: float) -> Refuse | Literal[Action.CUT]:
        """Return the action for a request whose deadline has passed."""
        self.attempts.leave_budget()
        if self.attempts.pick is None or not self.attempts.pick.counted:
            return self.time_out()
        return self._give_up(Failure.DEADLINE, now)

    def time_out(self) -> Refuse:
        """Return the action for a request that has waited for capacity, or for a retry, for too long."""
        why = f"{self.attempts.tries} replicas did not answer, the others" if self.attempts.tries else "its replicas"
        message = f"{self._candidates.id} is overloaded: {why} have no room for another session; retry later"
        return Refuse(ApiError(503, message, code="overloaded", retry_after=NO_ROOM_SECONDS))

    def ended(self, now: float, usage: Usage | None = None) -> None:
        """Release the load of a request whose answer is whole."""
        self.attempts.leave_budget()
        if self._refused:
            self._state.balancer.placed.release(self.attempts.picked, now)
        else:
            self._state.balancer.placed.end(self.attempts.picked, usage, now)

    def abandoned(self, now: float) -> None:
        """Release the load of a request whose client has left."""
        self.attempts.leave_budget()
        if self.attempts.pick is not None:
            self._state.balancer.placed.release(self.attempts.pick, now)

    def _give_up(self, failure: Failure, now: float) -> Refuse | Literal[Action.CUT]:
        """Release the load of a slot that failed. Return the action if no other slot is tried."""
        self._state.balancer.placed.release(self.attempts.picked, now)
        # the next request detects an engine that died during an answer; one that hangs would accept all requests
        gone = failure in (Failure.STALLED, Failure.ABORTED) if self._relays else failure in _NOT_THERE
        if gone:
            self._eject(self.attempts.member, now)
        if self._relays:
            return Action.CUT
        late = failure in (Failure.DEADLINE, Failure.CONNECT_TIMEOUT, Failure.NO_TOKEN)
        message = f"no replica answered, {self.attempts.tries} tried, the last: {failure.value}; retry"
        return Refuse(ApiError(504 if late else 502, message, code="timeout" if late else "no_answer"))

    def _judge(self, member: Member, now: float, *, works: bool) -> None:
        if works:
            self._state.health.succeeded(member.slot_id)
        elif self._state.health.erred(member.slot_id, member.incarnation, now):
            self._state.metrics.ejections.add()

    def _eject(self, member: Member, now: float, least: float = 0.0) -> None:
        if self._state.health.failed(member.slot_id, member.incarnation, now, least):
            self._state.metrics.ejections.add()
