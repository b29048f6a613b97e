"""The life of one request, from the choice of a replica to the end of its answer, for the router and the picker.

A driver (the router's relay, the picker's call) reports what happened and performs the effect that it gets back.
Only the driver does I/O.

| event                     | in the states   | effect                                                        |
|---------------------------|-----------------|---------------------------------------------------------------|
| begin                     | new             | Send, Refuse, or WAIT in the admission queue                  |
| no replica can have it    | new, sent       | Refuse, or WAIT where a feature holds it                      |
| the feature lets it go on | held            | Send, Refuse, or WAIT in the admission queue                  |
| capacity is free          | waiting         | Send or Refuse, by `Driver.perform`                           |
| waited for too long       | waiting         | Refuse, by `Driver.perform`                                   |
| head of an answer         | sent            | RELAY it, Send to another replica, or WAIT                    |
| the replica failed        | sent            | Send to another replica, WAIT, or Refuse                      |
| the replica failed        | relaying        | CUT; for an answer that can go on, Send to another, or WAIT   |
| the replica must leave    | relaying        | none; for an answer that can go on, Send to another           |
| deadline                  | any             | Refuse, or CUT once relaying                                  |
| first byte to the client  | sent            | none: relaying; no other replica is tried from here on        |
| end of the answer         | relaying        | none: its end is recorded, and others that wait are admitted  |
| the client left           | any             | none: its end is recorded, and others that wait are admitted  |

`Exchange` decides which replica is next, `RequestRecord` counts; a driver uses neither by itself.
"""

from collections.abc import Sequence
from typing import Protocol

from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.decision.actions import Action, Answered, Begun, Failed, Refuse, Send
from promptgroup_router.decision.exchange import Exchange
from promptgroup_router.decision.record import RequestRecord
from promptgroup_router.placement.pick import Pick
from promptgroup_router.rings.index import Candidates, Member
from promptgroup_router.routing.admission_queue import WAIT_SECONDS
from promptgroup_router.routing.points import ERRORS, Answering, RequestEnd, RequestFeature, Rest, hold, rest_of
from promptgroup_router.routing.route import Route, share_of
from promptgroup_router.routing.state import RouterState


class Driver(Protocol):
    """The carrier of a request's bytes."""

    def perform(self, effect: Failed, /) -> None:
        """Perform an effect that no event of the driver has caused."""


class RequestLife:
    """The state of one request and its account."""

    __slots__ = (
        "_driver", "_exchange", "_holder", "_record", "_route", "_state", "_status", "_ticket", "_timeout", "rest",
    )  # fmt: skip

    def __init__(
        self,
        state: RouterState,
        route: Route,
        driver: Driver,
        *,
        request_id: bytes,
        path: bytes,
        traceparent: bytes,
        began: float,
        deadline: float,
    ) -> None:
        """Begin the life of a request.

        Args:
            state: of the router or picker.
            route: where the request may go.
            driver: carries its bytes.
            request_id: its id.
            path: the path of its API.
            traceparent: the client's header of that name; empty for none.
            began: when it was whole, in monotonic seconds.
            deadline: until when a replica may be tried, in monotonic seconds.
        """
        self._state = state
        self._route = route
        self._driver: Driver | None = driver
        """None once the request is over, so that no reference cycle keeps the request in memory."""
        self._exchange = Exchange(state, route.candidates, route.demand, deadline)
        self._record = RequestRecord(
            state, route, self._exchange.attempts, request_id, began, path=path, traceparent=traceparent
        )
        self._ticket: int | None = None
        """Place in the admission queue."""
        self._holder: RequestFeature | None = None
        """The feature that has the request wait for a replica."""
        self._timeout = deadline - began
        self._status = 0
        """Status of the answer, once the client gets it."""
        self.rest: Rest | None = None
        """The rest of the answer, from the loss of its replica until another one has begun with it."""

    @property
    def waits(self) -> bool:
        """True while the request is in the admission queue, or a feature has it wait for a replica."""
        return self._ticket is not None or self._holder is not None

    @property
    def held(self) -> bool:
        """True while a feature has the request wait for a replica."""
        return self._holder is not None

    @property
    def member(self) -> Member:
        """The replica that has the request."""
        return self._exchange.attempts.member

    @property
    def pick(self) -> Pick | None:
        """The replica that has the request, with what was expected of it; None before one was picked."""
        return self._exchange.attempts.pick

    # --- Before an answer ----------------------------------------------------------------------------------------

    def begin(self, now: float) -> Begun:
        """Choose a replica, or wait behind the requests that are queued already."""
        exchange, queue = self._exchange, self._state.admission_queue
        for feature in self._route.features:
            feature.arrives(now)
        if self._route.caller.name and exchange.attempts.new and queue.waits(self._route.group):
            self._enter_queue(now)
            self._state.admit_waiting(now)
            return Action.WAIT
        effect = exchange.begin(now)
        if effect is Action.WAIT:
            self._enter_queue(now)
        return self._or_hold(effect, now) if isinstance(effect, Refuse) else effect

    def sent(self, now: float) -> bytes:
        """Record that the request goes to the replica.

        Returns:
            The header `traceparent` for the engine; empty where it gets the client's unchanged.
        """
        return self._record.sent(now)

    def answered(self, status: int, now: float, retry_after: float = 0.0) -> Answered:
        """Return the action for an answer whose head has arrived; `retry_after` is 0 if the engine names no seconds."""
        effect = self._exchange.answered(status, now, retry_after)
        if effect is Action.WAIT:
            self._enter_queue(now)
        return effect

    def failed(self, failure: Failure, now: float) -> Failed:
        """Return what follows from a failure of the replica that has the request."""
        self._record.engine_failed(failure, now)
        effect = self._exchange.failed(failure, now)
        if effect is Action.CUT and (rest := rest_of(self._route.features, failure)) is not None:
            self.rest = rest
            effect = self._exchange.go_on(now) or Action.CUT
        effect = self._or_cut(effect)
        if effect is Action.WAIT:
            self._enter_queue(now)
        # its replica may have left as the group fell asleep
        return self._or_hold(effect, now) if isinstance(effect, Refuse) else effect

    def late(self, waited: float, now: float) -> Failure | None:
        """Return the failure of a replica that lets the client wait for longer than the group's limits."""
        return self._exchange.late(waited, now)

    def expired(self, now: float) -> Failed:
        """Return what follows from a deadline that has passed."""
        self._leave_queue()
        return self._or_cut(self._exchange.expired(now))

    def hand_on(self, now: float) -> Send | None:
        """Return what follows from a replica that must leave while it answers; None to leave the answer with it."""
        if not self._status or not self._route.features or self.rest is not None or not self._exchange.attempts.leaves:
            return None
        if (rest := rest_of(self._route.features, Failure.LEAVING)) is None:
            return None
        if (effect := self._exchange.hand_on(now)) is not None:
            self.rest = rest
        return effect

    def refused(self, error: ApiError, status: int, now: float) -> None:
        """Close the books of a request that the router answers with an error, with the status of its API."""
        self._record.refused(error, status, now)
        self._driver = None
        for feature in self._route.features:
            feature.answered(status)
        self._tell_end(None, now, worked=False, metered=False)

    # --- An answer -----------------------------------------------------------------------------------------------

    def head(
        self, status: int, *, streamed: bool, compressed: bool, now: float, usage: Usage | None = None
    ) -> Answering:
        """Return the head of an answer with what features add to it; the arguments are those of `Answering`."""
        answer = Answering(
            self._exchange.attempts.pick, status, streamed=streamed, compressed=compressed, now=now, usage=usage
        )
        for feature in self._route.features:
            feature.answering(answer)
        return answer

    def relaying(self, status: int, now: float) -> None:
        """Record the first byte that goes to the client: from here on no other replica is tried."""
        self._status = status
        self._exchange.relaying(now, status)
        self._record.answer_began(status, now)
        for feature in self._route.features:
            feature.answered(status)

    def goes_on(self, now: float) -> bytes:
        """Record that another replica begins with the rest of the answer; return the event that tells the client."""
        rest, self.rest = self.rest, None
        self._exchange.relaying(now)
        return rest.begins() if rest is not None else b""

    def ended(self, usage: Usage | None, now: float) -> None:
        """Record the end of a whole answer, and admit requests that wait for its capacity."""
        whole = self._status < ERRORS
        self._exchange.ended(now, usage)
        self._record.served(usage, now)
        self._tell_end(usage, now, worked=whole, metered=whole)
        self._close(now)

    def replaced(self, engine_status: int, now: float) -> None:
        """Close the books of an answer in whose place the client gets an error of the router's own."""
        self.relaying(engine_status, now)
        self.ended(None, now)

    def unseen(self, now: float) -> None:
        """Close the books of a request whose answer a gateway does not show."""
        self._exchange.ended(now)
        self._record.unseen(now)
        self._tell_end(None, now, worked=True, metered=True, shown=False)
        self._close(now)

    def cut(self, now: float) -> None:
        """Close the books of an answer that the engine did not finish."""
        self._record.cut(now)
        self._tell_end(None, now, worked=True, metered=True)
        self._close(now)

    def client_left(self, now: float) -> None:
        """Close the books of a request whose client has left."""
        self._leave_queue()
        self._exchange.abandoned(now)
        self._record.client_left(now)
        self._tell_end(None, now, worked=self._exchange.attempts.tries > 0, metered=self._status < ERRORS)
        self._close(now)

    def _tell_end(self, usage: Usage | None, now: float, *, worked: bool, metered: bool, shown: bool = True) -> None:
        if self._route.features:
            end = RequestEnd(usage, now, worked=worked, metered=metered, shown=shown)
            for feature in self._route.features:
                feature.ended(end)

    def _close(self, now: float) -> None:
        self._driver = None
        self._state.admit_waiting(now)

    # --- A gateway, which sends the request itself ---------------------------------------------------------------

    @property
    def traced(self) -> bool:
        """True if the request is recorded in a span."""
        return self._record.sampled

    def fallbacks(self, most: int, now: float) -> list[Member]:
        """Return the replicas that a gateway may try if the one that has the request does not answer, best first."""
        return self._exchange.attempts.fallbacks(most, now)

    def served_by(self, address: str, fallbacks: Sequence[Member], now: float) -> None:
        """Record that a gateway had the request served at an address, which may be a fallback's."""
        self._exchange.served_by(address, fallbacks, now)

    def not_sent(self, status: int, now: float) -> None:
        """Close the books of a request whose gateway reached none of its replicas and answers with a status itself."""
        self._exchange.not_sent(now)
        self.refused(ApiError(status, "the gateway reached no engine", code="no_answer"), status, now)

    # --- The admission queue -------------------------------------------------------------------------------------

    @property
    def revision(self) -> tuple[str, str]:
        """The group and the revision that the request waits for."""
        return self._route.group, self._route.revision

    def try_admit(self, now: float) -> bool:
        """Send the request if a replica has capacity. Return True if one has."""
        effect = self._exchange.begin(now)
        if effect is Action.WAIT:
            return False
        self._ticket = None
        self._record.admitted(now)
        self._perform(effect)
        return True

    def _or_hold(self, refused: Refuse, now: float) -> Begun:
        """Return WAIT instead of a refusal if a feature holds the request, which no engine has had; else why not."""
        if not self._route.features or not self._exchange.attempts.untouched:
            return refused
        held = hold(self._route.features, self, self._route.candidates, now)
        if held is None:
            return refused
        if isinstance(held, ApiError):
            return Refuse(held)
        self._holder = held
        self._record.waits(now)
        return Action.WAIT

    def go_on(self, candidates: Candidates | None, now: float, *, wait: float) -> None:
        """Choose a replica for a request that a feature has held, or have it wait in the admission queue.

        Args:
            candidates: the replicas to choose from; None for those that the request began with.
            now: monotonic seconds.
            wait: seconds for which it may wait in the queue at least.
        """
        self._holder = None
        if candidates is not None:
            self._route.candidates = candidates
            self._exchange.anew(candidates, now + self._timeout)
        effect = self._exchange.begin(now)
        if effect is Action.WAIT:
            left, share = max(WAIT_SECONDS, wait), share_of(self._route)
            self._ticket = self._state.admission_queue.put(self, now, new=False, share=share, seconds=left)
            return
        self._record.admitted(now)
        self._perform(effect)

    def give_up(self, error: ApiError | None, now: float) -> None:
        """Refuse a request that waits; None for the error of one that has waited for capacity for too long."""
        self._ticket = self._holder = None
        self._record.admitted(now)
        self._perform(self._exchange.time_out() if error is None else Refuse(error))

    def time_out(self, now: float) -> None:
        """Refuse the request, which has waited for capacity for too long."""
        self.give_up(None, now)

    def _enter_queue(self, now: float) -> None:
        self._ticket = self._state.admission_queue.put(
            self, now, new=self._exchange.attempts.new, share=share_of(self._route)
        )
        self._record.waits(now)

    def _leave_queue(self) -> None:
        if self._ticket is not None:
            self._state.admission_queue.withdraw(self._ticket)
            self._ticket = None
        if self._holder is not None:
            self._holder.let_go()
            self._holder = None

    def _perform(self, effect: Failed) -> None:
        if self._driver is not None:
            self._driver.perform(self._or_cut(effect))

    def _or_cut(self, effect: Failed) -> Failed:
        """Return the effect for a client that may have a part of the answer, and cannot get an error instead."""
        return Action.CUT if self._status and isinstance(effect, Refuse) else effect
