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

`Exchange` decides which replica is next, `RequestRecord` counts, and `RequestWait` is there for requests that wait; a
driver uses none of them by itself, but for what only gateways know of an exchange.
"""

from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.decision.actions import Action, Answered, Begun, Failed, Refuse, Send
from promptgroup_router.decision.exchange import Exchange
from promptgroup_router.decision.record import RequestRecord
from promptgroup_router.decision.request_wait import Driver, RequestWait
from promptgroup_router.routing.points import ERRORS, NOTHING_ADDED, Answering, RequestEnd, Rest, rest_of
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState


class RequestLife:
    """The state of one request and its account."""

    __slots__ = ("_driver", "_record", "_route", "_state", "_status", "_timeout", "_wait", "exchange", "rest")

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
        self.exchange = Exchange(state, route.candidates, route.demand, deadline)
        """The replicas that it was sent to, and which is next."""
        self._record = RequestRecord(
            state, route, self.exchange.attempts, request_id, began, path=path, traceparent=traceparent
        )
        self._wait: RequestWait | None = None
        """Its wait for a replica; None for a request that has not waited, or is over."""
        self._timeout = deadline - began
        self._status = 0
        """Status of the answer, once the client gets it."""
        self.rest: Rest | None = None
        """The rest of the answer, from the loss of its replica until another one has begun with it."""

    @property
    def waits(self) -> bool:
        """True while the request is in the admission queue, or a feature has it wait for a replica."""
        return self._wait is not None and self._wait.waits

    @property
    def held(self) -> bool:
        """True while a feature has the request wait for a replica."""
        return self._wait is not None and self._wait.held

    @property
    def traced(self) -> bool:
        """True if the request is recorded in a span."""
        return self._record.sampled

    # --- Before an answer ----------------------------------------------------------------------------------------

    def begin(self, now: float) -> Begun:
        """Choose a replica, or wait behind the requests that are queued already."""
        exchange, queue = self.exchange, self._state.admission_queue
        for feature in self._route.features:
            feature.arrives(now)
        if self._route.caller.name and exchange.attempts.new and queue.waits(self._route.group):
            self._waiting().enter_queue(now)
            self._state.admit_waiting(now)
            return Action.WAIT
        effect = exchange.begin(now)
        if effect is Action.WAIT:
            self._waiting().enter_queue(now)
        return self._or_hold(effect, now) if isinstance(effect, Refuse) else effect

    def sent(self, now: float) -> bytes:
        """Record that the request goes to the replica.

        Returns:
            The header `traceparent` for the engine; empty where it gets the client's unchanged.
        """
        return self._record.sent(now)

    def answered(self, status: int, now: float, retry_after: float = 0.0) -> Answered:
        """Return the action for an answer whose head has arrived; `retry_after` is 0 if the engine names no seconds."""
        effect = self.exchange.answered(status, now, retry_after)
        if effect is Action.WAIT:
            self._waiting().enter_queue(now)
        return effect

    def failed(self, failure: Failure, now: float) -> Failed:
        """Return what follows from a failure of the replica that has the request."""
        self._record.engine_failed(failure, now)
        effect = self.exchange.failed(failure, now)
        if effect is Action.CUT and (rest := rest_of(self._route.features, failure)) is not None:
            self.rest = rest
            effect = self.exchange.go_on(now) or Action.CUT
        effect = self._or_cut(effect)
        if effect is Action.WAIT:
            self._waiting().enter_queue(now)
        # its replica may have left as the group fell asleep
        return self._or_hold(effect, now) if isinstance(effect, Refuse) else effect

    def expired(self, now: float) -> Failed:
        """Return what follows from a deadline that has passed."""
        if self._wait is not None:
            self._wait.leave()
        return self._or_cut(self.exchange.expired(now))

    def hand_on(self, now: float) -> Send | None:
        """Return what follows from a replica that must leave while it answers; None to leave the answer with it."""
        if not self._status or not self._route.features or self.rest is not None or not self.exchange.attempts.leaves:
            return None
        if (rest := rest_of(self._route.features, Failure.LEAVING)) is None:
            return None
        if (effect := self.exchange.hand_on(now)) is not None:
            self.rest = rest
        return effect

    def refused(self, error: ApiError, status: int, now: float) -> None:
        """Close the books of a request that the router answers with an error, with the status of its API."""
        self._record.refused(error, status, now)
        self._driver = self._wait = None
        for feature in self._route.features:
            feature.answered(status)
        self._tell_end(None, now, worked=False, metered=False)

    # --- An answer -----------------------------------------------------------------------------------------------

    def head(
        self, status: int, *, streamed: bool, compressed: bool, now: float, usage: Usage | None = None
    ) -> Answering:
        """Return the head of an answer with what features add to it; the arguments are those of `Answering`."""
        if not self._route.features:
            return NOTHING_ADDED
        answer = Answering(
            self.exchange.attempts.pick, status, streamed=streamed, compressed=compressed, now=now, usage=usage
        )
        for feature in self._route.features:
            feature.answering(answer)
        return answer

    def relaying(self, status: int, now: float) -> None:
        """Record the first byte that goes to the client: from here on no other replica is tried."""
        self._status = status
        self.exchange.relaying(now, status)
        self._record.answer_began(status, now)
        for feature in self._route.features:
            feature.answered(status)

    def goes_on(self, now: float) -> bytes:
        """Record that another replica begins with the rest of the answer; return the event that tells the client."""
        rest, self.rest = self.rest, None
        self.exchange.relaying(now)
        return rest.begins() if rest is not None else b""

    def ended(self, usage: Usage | None, now: float) -> None:
        """Record the end of a whole answer, and admit requests that wait for its capacity."""
        whole = self._status < ERRORS
        self.exchange.ended(now, usage)
        self._record.served(usage, now)
        self._tell_end(usage, now, worked=whole, metered=whole)
        self._close(now)

    def replaced(self, engine_status: int, now: float) -> None:
        """Close the books of an answer in whose place the client gets an error of the router's own."""
        self.relaying(engine_status, now)
        self.ended(None, now)

    def unseen(self, now: float) -> None:
        """Close the books of a request whose answer a gateway does not show."""
        self.exchange.ended(now)
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
        if self._wait is not None:
            self._wait.leave()
        self.exchange.abandoned(now)
        self._record.client_left(now)
        self._tell_end(None, now, worked=self.exchange.attempts.tries > 0, metered=self._status < ERRORS)
        self._close(now)

    def _tell_end(self, usage: Usage | None, now: float, *, worked: bool, metered: bool, shown: bool = True) -> None:
        if self._route.features:
            end = RequestEnd(usage, now, worked=worked, metered=metered, shown=shown)
            for feature in self._route.features:
                feature.ended(end)

    def _close(self, now: float) -> None:
        self._driver = self._wait = None
        self._state.admit_waiting(now)

    # --- The wait for a replica ----------------------------------------------------------------------------------

    def perform(self, effect: Failed) -> None:
        """Have the driver perform what follows from the end of the wait."""
        if self._driver is not None:
            self._driver.perform(self._or_cut(effect))

    def _waiting(self) -> RequestWait:
        if self._wait is None:
            self._wait = RequestWait(self._state, self._route, self.exchange, self._record, self, timeout=self._timeout)
        return self._wait

    def _or_hold(self, refused: Refuse, now: float) -> Begun:
        """Return WAIT instead of a refusal if a feature holds the request, which no engine has had; else why not."""
        if not self._route.features or not self.exchange.attempts.untouched:
            return refused
        return self._waiting().hold(refused, now)

    def _or_cut(self, effect: Failed) -> Failed:
        """Return the effect for a client that may have a part of the answer, and cannot get an error instead."""
        return Action.CUT if self._status and isinstance(effect, Refuse) else effect
