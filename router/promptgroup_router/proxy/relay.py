"""Relays one request to an engine and the answer to the client: steps 5 to 7 of a request's life.

`exchange` decides which engine gets the request, `engine_request` writes it, `held_answer` decides what is held of the
answer, `client_answer` has what the client gets, `record` counts. This module performs their decisions on the two
connections. A chunk of an answer costs one call from the engine's connection, one
to store the end of the body, and one to the client's transport.
"""

import os
from collections.abc import Callable

from promptgroup_contract.names import UNMATCHED
from promptgroup_router.apis.endpoints import Endpoint
from promptgroup_router.apis.errors import may_lack_path
from promptgroup_router.apis.opening import Opening
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError, Failure, cut_short, refused_late
from promptgroup_router.decision.actions import Action, Failed, Refuse, Send
from promptgroup_router.decision.engine_request import engine_request, lacks_credential
from promptgroup_router.decision.event_guard import EventGuard, broken_body, suspicious, words_of
from promptgroup_router.decision.exchange import UNAVAILABLE
from promptgroup_router.decision.held_answer import OK, breaks_off, content_of, hold, own_error, reads_usage
from promptgroup_router.decision.life import RequestLife
from promptgroup_router.http11.http1 import Framing, Headers, ResponseHead
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.http11.trace_context import HEADER as TRACEPARENT
from promptgroup_router.proxy.client_answer import NO_NOTES, AnswerTaker, ClientAnswer
from promptgroup_router.proxy.request_ids import RequestIds
from promptgroup_router.proxy.response import (
    REQUEST_ID,
    is_compressed,
    is_event_stream,
    is_json,
    relayed_head,
    retry_after,
)
from promptgroup_router.proxy.upstream import EngineConnection, EngineConnections, verification_of
from promptgroup_router.routing.points import error_for, tail_of
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState

HELD_SECONDS = 15.0
"""Time for which the events before the first token are held back, unless the group's limit is longer: below the 30 to
60 seconds after which clients and load balancers take a silent connection for dead. A stream that is held until its
group has a replica gets a keep-alive as often."""
MOST_LEARNED = 65_536
"""Most bytes of an engine's answer to the query that precedes the request for the rest of a stream."""

_ID = REQUEST_ID + b": "


class RelayContext:
    """The parts that all requests of one handler share."""

    __slots__ = ("clock", "connections", "ids", "state", "timeout")

    def __init__(
        self,
        state: RouterState,
        connections: EngineConnections,
        ids: RequestIds,
        clock: Callable[[], float],
        timeout: float,
    ) -> None:
        """Share these.

        Args:
            state: of the router.
            connections: to engines.
            ids: makes the ids of requests.
            clock: monotonic seconds.
            timeout: seconds from a request to the end of its answer.
        """
        self.state = state
        self.connections = connections
        self.ids = ids
        self.clock = clock
        self.timeout = timeout


class Relay:
    """A request and its answer."""

    __slots__ = (
        "_answer",
        "_client",
        "_clock",
        "_context",
        "_deadline",
        "_endpoint",
        "_engine",
        "_held",
        "_life",
        "_opening",
        "_paused",
        "_quiet_since",
        "_request",
        "_route",
        "_since",
        "_streams",
    )  # fmt: skip

    def __init__(
        self,
        client: AnswerTaker,
        request: HttpRequest,
        route: Route,
        *,
        endpoint: Endpoint,
        context: RelayContext,
        notes: Headers = NO_NOTES,
    ) -> None:
        self._clock = context.clock
        began = self._clock()
        self._request = request
        self._route = route
        self._endpoint = endpoint
        self._context = context
        self._deadline = began + context.timeout
        """The end of the request, or of a pause within a stream."""
        request_id = context.ids.of(request)
        self._life = RequestLife(
            context.state,
            route,
            self,
            request_id=request_id,
            path=request.head.path,
            traceparent=request.head.fields.get(TRACEPARENT, b""),
            began=began,
            deadline=self._deadline,
        )
        self._engine: EngineConnection | None = None
        self._answer: ResponseHead | None = None
        """The engine's head, until the first byte of the body is here."""
        self._client = ClientAnswer(
            client,
            request.head.minor,
            tail_of(route.features, endpoint.tail(), streamed=route.demand.streamed),
            form=endpoint.form,
            request_id=request_id,
            notes=notes,
        )
        self._paused = False
        self._held: bytearray | None = None
        """The body of a whole answer, until its usage can be reported in the head."""
        self._streams = False
        """True if the body of the answer is a stream of events."""
        self._opening: Opening | None = None
        """The beginning of a streamed answer, until it has a visible token."""
        self._quiet_since = self._since = began
        """Time at which the request was sent; of an answer that has begun, when `tick` last detected progress."""

    def silent_since(self, arrived: float) -> None:
        """Count the time until the first keep-alive from the arrival of the request, which has waited before this."""
        self._quiet_since = arrived

    def begin(self) -> None:
        """Choose a replica and send the request there."""
        self.perform(self._life.begin(self._clock()))

    # --- Events of the engine's connection (step 6) ------------------------------------------------------------

    def interim_answer(self, head: ResponseHead) -> None:
        """Relay an interim answer."""
        self._client.interim(head, self._route.candidates.rules)

    def answer_began(self, head: ResponseHead) -> None:
        """Hold the head until the first byte of the body: another engine can still be tried if this one dies."""
        action = self._life.answered(
            head.status, self._clock(), retry_after(head) if head.status in UNAVAILABLE else 0.0
        )
        if action is not Action.RELAY:
            self._drop_engine()
            self.perform(action)
            return
        if self._life.rest is not None:
            self._rest_began(head)
            return
        self._answer = head
        self._streams = is_event_stream(head)
        if self._client.committed and (head.status != OK or not self._streams or is_compressed(head)):
            self._drop_engine()
            self._answer_for_engine(head.status, refused_late(head.status))
            return
        if self._streams is not self._route.demand.streamed:
            # an engine may stream although no stream was requested, or answer a request for a stream with an error
            tail = tail_of(self._route.features, self._endpoint.tail(), streamed=self._streams)
            self._client.tail = tail
        if head.status == OK:
            if self._streams:
                if self._route.demand.streamed and not is_compressed(head):  # no event of it could be seen
                    self._opening = Opening(chunked=head.framing is Framing.CHUNKED)
            elif reads_usage(self._route.features) or (self._endpoint.cached and is_json(head)):
                self._held = bytearray()
        elif may_lack_path(head.status):
            self._held = bytearray()

    def _rest_began(self, head: ResponseHead) -> None:
        """Hold the head of the rest of a stream until its first token, or that of the query that precedes it."""
        asks = self._life.rest is not None and self._life.rest.asks
        if head.status != OK or is_event_stream(head) is asks or is_compressed(head):
            self._drop_engine()
            self.failed(Failure.STATUS)
            return
        self._answer = head
        if asks:
            self._held = bytearray()
        else:
            self._opening = Opening(chunked=head.framing is Framing.CHUNKED)

    def answer_data(self, data: bytes) -> None:
        """Relay bytes of the body."""
        if self._answer is not None:
            if self._opening is not None and not (data := self._opening.take(data)):
                return
            if self._held is not None and not (data := self._hold(self._held, data, self._answer.status)):
                return
            if (
                self._streams
                and suspicious(data)
                and not is_compressed(self._answer)
                and breaks_off(self._answer, data)
            ):
                self._drop_engine()
                self.failed(Failure.ABORTED)
                return
            status = self._answer.status
            if (error := error_for(self._route.features, status)) is not None:
                self._drop_engine()
                self._answer_for_engine(status, error)
                return
            self._begin_answer(self._answer)
        self._pass_on(data)

    def _hold(self, held: bytearray, data: bytes, status: int) -> bytes:
        """Hold bytes of a whole answer, or return those that it begins with."""
        self._client.moved = True
        if self._life.rest is not None:
            held += data
            if len(held) > MOST_LEARNED:
                self._drop_engine()
                self.failed(Failure.MALFORMED)
            return b""
        ended = self._engine is not None and self._engine.has_ended
        return hold(held, data, status, self._route.features, ended=ended)

    def _pass_on(self, data: bytes) -> None:
        engine = self._engine
        failure = self._client.pass_on(data, between_chunks=engine is None or engine.between_chunks)
        if failure is not None:
            self._drop_engine()
            self.failed(failure)

    def answer_ended(self) -> None:
        """Finish the client's answer and release the replica (step 7)."""
        if self._answer is not None:
            if self._held is not None:
                if self._show_held(self._answer, bytes(self._held)):
                    return
            else:
                self._show_opening(self._answer)
        if (failure := self._client.finish()) is not None:
            self.failed(failure)
            return
        self._engine = None
        self._life.ended(self._client.usage(), self._clock())
        self._client.connection.finish(keep=self._client.keep)

    def failed(self, failure: Failure) -> None:
        """Try another engine, refuse, or cut the answer."""
        self._engine = None
        self._answer = self._opening = self._held = None
        self.perform(self._life.failed(failure, self._clock()), failure)

    # --- Events of the client's connection -----------------------------------------------------------------------

    def client_left(self) -> None:
        """Abort the engine's work, since no client waits for it."""
        self._drop_engine()
        self._life.client_left(self._clock())

    def pause(self) -> None:
        """Stop reading from the engine: the client does not read as fast."""
        self._paused = True
        if self._engine is not None:
            self._engine.pause()

    def resume(self) -> None:
        """Resume reading from the engine."""
        self._paused = False
        if self._engine is not None:
            self._engine.resume()

    def tick(self, now: float) -> None:
        """Give up once the deadline has passed: a stream whose tokens flow has none."""
        if self._client.moved:
            self._quiet_since = now
            if self._client.streams:
                self._deadline = now + self._context.timeout
        held = self._life.held
        if held:
            self._deadline = now + self._context.timeout  # its group has a limit of its own for this wait
        elif now >= self._deadline:
            self._drop_engine()
            self.perform(self._life.expired(now), Failure.DEADLINE)
        elif self._engine is not None:
            if (effect := self._life.hand_on(now)) is not None:
                self._drop_engine()
                self.perform(effect)
            else:
                self._enforce_limits(now)
        interval = self._route.candidates.time_limits.keep_alive or (HELD_SECONDS if held else 0)
        if interval and now - self._quiet_since >= interval:
            self._keep_alive(now)

    def _keep_alive(self, now: float) -> None:
        """Send an event without content to a client that waits for events."""
        if self._client.streams:
            silent = self._paused
        else:
            over = self._engine is None and not self._life.waits
            streamed = self._route.demand.streamed and self._endpoint.cached
            silent = over or not streamed or self._request.head.minor == 0
        if not silent and self._client.keep_alive():
            self._quiet_since = now

    def _enforce_limits(self, now: float) -> None:
        """Abort the request to an engine that lets the client wait for too long."""
        if self._client.moved or self._paused:
            self._client.moved, self._since = False, now
        waited = now - self._since
        if (failure := self._life.exchange.late(waited, now)) is not None:
            self._drop_engine()
            self.failed(failure)
        elif (
            self._answer is not None
            and self._opening is not None
            and waited >= max(HELD_SECONDS, self._route.candidates.time_limits.first_token)
        ):
            self._show_opening(self._answer)

    # --- Actions -------------------------------------------------------------------------------------------------

    def perform(self, effect: Failed, failure: Failure = Failure.RESET) -> None:
        """Perform the effect of an event: of this request, or of another that has freed capacity for it."""
        match effect:
            case Send():
                self._since = now = self._clock()
                member = effect.member
                if lacks_credential(self._context.state.features, member):
                    self.failed(Failure.NO_CREDENTIAL)
                    return
                self._engine = self._context.connections.acquire(
                    member.address, fresh=effect.fresh, verification=verification_of(member)
                )
                if self._paused:
                    self._engine.pause()
                # an id for each try: engines take it as their own, and one that clients choose could stand for two
                head, body = engine_request(
                    self._context.state.features,
                    self._route,
                    member,
                    self._life.sent(now),
                    endpoint=self._endpoint,
                    head=self._request.head,
                    rest=self._life.rest,
                    random=os.urandom,
                    further_line=_ID + self._context.ids.new(),
                )
                self._engine.send(head, body, self)
            case Refuse():
                status, content = self._endpoint.form.refuse(effect.error, self._client.request_id)
                self._life.refused(effect.error, status, self._clock())
                self._client.refuse(effect.error, status, content)
            case Action.CUT:
                self._life.cut(self._clock())
                self._client.cut(cut_short(failure))
            case Action.WAIT:
                pass

    def _answer_for_engine(self, engine_status: int, error: ApiError) -> None:
        """Answer with an error in place of the engine's."""
        self._answer = self._held = None
        self._life.replaced(engine_status, self._clock())
        self._client.refuse(error, *self._endpoint.form.refuse(error, self._client.request_id))

    def _begin_answer(self, answer: ResponseHead, usage: Usage | None = None) -> None:
        """Write the client's head; from here on no other engine is tried."""
        self._answer = self._opening = self._held = None
        now, client = self._clock(), self._client
        self._since = now
        if self._life.rest is not None:
            chunked = answer.framing is Framing.CHUNKED
            client.go_on(EventGuard(chunked=chunked, words=words_of(self._endpoint)))
            client.add_event(self._life.goes_on(now))
            return
        self._life.relaying(answer.status, now)
        compressed = is_compressed(answer)
        added = self._life.head(answer.status, streamed=self._streams, compressed=compressed, now=now, usage=usage)
        read = self._streams and answer.status == OK and not compressed
        chunked, rules = answer.framing is Framing.CHUNKED, self._route.candidates.rules
        closing = added.closing if read else None
        rewriter, marks = added.rewriter, added.marks
        in_place = bool(marks) and read and chunked and self._request.head.minor == 1
        relayed = relayed_head(
            answer,
            minor=self._request.head.minor,
            keep=client.connection.keeps_alive,
            served_by=UNMATCHED if self._route.group == UNMATCHED else self._life.exchange.attempts.member.label,
            revision=self._route.revision,
            request_id=client.request_id,
            rewritten=(rewriter is not None and not in_place) or closing is not None,
            further=[*client.notes, *added.fields] if added.fields else client.notes,
            limits=added.limits,
            rules=rules,
        )
        client.begin(
            relayed,
            chunked=chunked,
            rewriter=rewriter,
            guard=EventGuard(chunked=chunked, words=words_of(self._endpoint), marks=marks) if read else None,
            closing=closing,
            in_place=in_place,
        )

    def _show_opening(self, answer: ResponseHead) -> None:
        """Begin an answer that shows nothing yet, with what is held of it."""
        held = self._opening.held() if self._opening is not None else b""
        self._begin_answer(answer)
        if held:
            self._pass_on(held)

    def _show_held(self, answer: ResponseHead, held: bytes) -> bool:
        """Begin and pass on a whole answer that was held, with what it used in its head.

        Returns:
            True if the client got an error of the router instead.
        """
        content = content_of(answer, held)
        if (rest := self._life.rest) is not None:
            self._engine = self._answer = self._held = None
            if rest.learn(content):
                self.perform(Send(self._life.exchange.attempts.member))
            else:
                self.failed(Failure.STATUS)
            return True
        if answer.status == OK and broken_body(content):
            self.failed(Failure.ABORTED)
            return True
        usage: Usage | None = None
        if answer.status == OK and reads_usage(self._route.features):
            tail = self._endpoint.tail()
            tail.add(content)
            usage = tail.usage()
        elif answer.status != OK:
            error = own_error(self._route, self._request.head, answer.status, content)
            if error is not None:
                self._engine = None
                self._answer_for_engine(answer.status, error)
                return True
        self._begin_answer(answer, usage)
        if held:
            self._pass_on(held)
        return False

    def _drop_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.abort()
