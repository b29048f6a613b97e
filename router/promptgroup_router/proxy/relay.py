"""Relays one request to an engine and the answer to the client: steps 5 to 7 of a request's life.

`exchange` decides which engine gets the request, `response` writes the head of the answer, `record` counts. This module
performs their decisions on the two connections. A chunk of an answer costs one call from the engine's connection, one
to store the end of the body, and one to the client's transport.
"""

import os
from collections.abc import Callable

from promptgroup_contract.names import UNMATCHED
from promptgroup_router.apis.endpoints import Endpoint
from promptgroup_router.apis.errors import NO_PATH_BYTES, OPENAI, lacks_path, may_lack_path, not_served_by_engine
from promptgroup_router.apis.opening import Opening
from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.base.errors import ApiError, Failure, cut_short, refused_late
from promptgroup_router.decision.actions import Action, Failed, Refuse, Send
from promptgroup_router.decision.engine_query import engine_target
from promptgroup_router.decision.engine_request import engine_body, engine_fields, lacks_credential
from promptgroup_router.decision.event_guard import EventGuard, body_suspicious, broken_body, suspicious, words_of
from promptgroup_router.decision.exchange import UNAVAILABLE
from promptgroup_router.decision.life import RequestLife
from promptgroup_router.http11 import http1
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Framing, Headers, ResponseHead
from promptgroup_router.http11.reader import MAX_INTERIM, HttpRequest
from promptgroup_router.http11.trace_context import HEADER as TRACEPARENT
from promptgroup_router.proxy.client_body import AnswerTaker, ClientBody
from promptgroup_router.proxy.request_ids import RequestIds
from promptgroup_router.proxy.response import (
    REQUEST_ID,
    early_head,
    id_fields,
    interim_head,
    is_compressed,
    is_event_stream,
    is_json,
    relayed_head,
    retry_after,
)
from promptgroup_router.proxy.upstream import EngineConnection, EngineConnections, verification_of
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.points import MOST_HELD, error_for, tail_of
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState

NO_NOTES: Headers = []
CONTINUE = 100
OK = 200
HELD_SECONDS = 15.0
"""Time for which the events before the first token are held back, unless the group's limit is longer: below the 30 to
60 seconds after which clients and load balancers take a silent connection for dead. A stream that is held until its
group has a replica gets a keep-alive as often."""
MOST_LEARNED = 65_536
"""Most bytes of an engine's answer to the query that precedes the request for the rest of a stream."""

_VIA_AND_HOST = (b"via: 1.0 promptgroup\r\nhost: ", b"via: 1.1 promptgroup\r\nhost: ")
"""By the minor version of the client's HTTP (RFC 9110 section 7.6.3)."""
_TRACEPARENT = TRACEPARENT + b": "


class Relay:
    """A request and its answer."""

    __slots__ = (
        "_answer",
        "_body",
        "_client",
        "_clock",
        "_connections",
        "_deadline",
        "_endpoint",
        "_engine",
        "_held",
        "_ids",
        "_interims",
        "_life",
        "_notes",
        "_opening",
        "_paused",
        "_quiet_since",
        "_request",
        "_request_id",
        "_route",
        "_since",
        "_state",
        "_streams",
        "_timeout",
    )  # fmt: skip

    def __init__(
        self,
        client: AnswerTaker,
        request: HttpRequest,
        route: Route,
        *,
        endpoint: Endpoint,
        state: RouterState,
        connections: EngineConnections,
        ids: RequestIds,
        clock: Callable[[], float],
        timeout: float,
        notes: Headers = NO_NOTES,
    ) -> None:
        began = clock()
        self._client = client
        self._request = request
        self._route = route
        self._endpoint = endpoint
        self._state = state
        self._connections = connections
        self._clock = clock
        self._timeout = timeout
        self._deadline = began + timeout
        """The end of the request, or of a pause within a stream."""
        self._ids = ids
        self._request_id = ids.of(request)
        self._notes = notes
        if endpoint.form is not OPENAI:
            self._notes = [*notes, *id_fields(endpoint.form, self._request_id)[1:]]
        self._life = RequestLife(
            state,
            route,
            self,
            request_id=self._request_id,
            path=request.head.path,
            traceparent=request.head.fields.get(TRACEPARENT, b""),
            began=began,
            deadline=self._deadline,
        )
        self._engine: EngineConnection | None = None
        self._answer: ResponseHead | None = None
        """The engine's head, until the first byte of the body is here."""
        self._body = ClientBody(client, request.head.minor, self._new_tail(streamed=route.demand.streamed))
        self._paused = False
        self._interims = 0
        """Interim answers that the client got, from all engines: no more than one may send."""
        self._held: bytearray | None = None
        """The body of a whole answer, until its usage can be reported in the head."""
        self._streams = False
        """True if the body of the answer is a stream of events."""
        self._opening: Opening | None = None
        """The beginning of a streamed answer, until it has a visible token."""
        self._quiet_since = self._since = began
        """Time at which the request was sent; of an answer that has begun, when `tick` last detected progress."""

    def _new_tail(self, *, streamed: bool) -> Tail:
        return tail_of(self._route.features, self._endpoint.tail(), streamed=streamed)

    def silent_since(self, arrived: float) -> None:
        """Count the time until the first keep-alive from the arrival of the request, which has waited before this."""
        self._quiet_since = arrived

    def begin(self) -> None:
        """Choose a replica and send the request there."""
        self.perform(self._life.begin(self._clock()))

    # --- Events of the engine's connection (step 6) ------------------------------------------------------------

    def interim_answer(self, head: ResponseHead) -> None:
        """Relay an interim answer, which changes nothing of the request's state (RFC 9110 section 15.2)."""
        # the router does not wait for 100 before it sends a body, and no interim answer exists in HTTP/1.0
        if (
            head.status != CONTINUE
            and not self._body.committed
            and self._request.head.minor == 1
            and self._interims < MAX_INTERIM
        ):
            self._interims += 1
            self._client.write(interim_head(head, self._route.candidates.rules))

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
        if self._body.committed and (head.status != OK or not self._streams or is_compressed(head)):
            self._drop_engine()
            self._answer_for_engine(head.status, refused_late(head.status))
            return
        if self._streams is not self._route.demand.streamed:
            # an engine may stream although no stream was requested, or answer a request for a stream with an error
            self._body.tail = self._new_tail(streamed=self._streams)
        if head.status == OK:
            if self._streams:
                if self._route.demand.streamed and not is_compressed(head):  # no event of it could be seen
                    self._opening = Opening(chunked=head.framing is Framing.CHUNKED)
            elif self._reads_usage or (self._endpoint.cached and is_json(head)):
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
            if self._streams and suspicious(data) and self._breaks_off(self._answer, data):
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
        """Hold bytes of a whole answer, or return all of them where that is too long, or nothing of it is in doubt."""
        self._body.moved = True
        if self._life.rest is not None:
            held += data
            if len(held) > MOST_LEARNED:
                self._drop_engine()
                self.failed(Failure.MALFORMED)
            return b""
        if status == OK and not held and not self._reads_usage and self._has_ended and not body_suspicious(data):
            return data
        held += data
        return bytes(held) if len(held) > (MOST_HELD if status == OK else NO_PATH_BYTES) else b""

    @property
    def _reads_usage(self) -> bool:
        """True if a whole answer is buffered until its usage has been read."""
        return any(feature.reads_usage for feature in self._route.features)

    @property
    def _has_ended(self) -> bool:
        return self._engine is not None and self._engine.has_ended

    def _breaks_off(self, answer: ResponseHead, data: bytes) -> bool:
        """Return True if the engine breaks off in the beginning of a stream, of which the client has nothing yet."""
        if answer.status != OK or is_compressed(answer):
            return False
        content = bytearray(data)
        if answer.framing is Framing.CHUNKED:
            content.clear()
            Chunked().feed(data, content)
        guard = EventGuard(chunked=False)
        guard.feed(bytes(content))
        return guard.broken and not guard.told

    def _pass_on(self, data: bytes) -> None:
        engine = self._engine
        failure = self._body.pass_on(data, between_chunks=engine is None or engine.between_chunks)
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
        if (failure := self._body.finish()) is not None:
            self.failed(failure)
            return
        self._engine = None
        self._life.ended(self._body.usage(), self._clock())
        self._client.finish(keep=self._body.keep)

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
        if self._body.moved:
            self._quiet_since = now
            if self._body.streams:
                self._deadline = now + self._timeout
        held = self._life.held
        if held:
            self._deadline = now + self._timeout  # its group has a limit of its own for this wait
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
        """Send an event without content, and begin the answer with it if necessary."""
        body = self._body
        if not body.streams:
            over = self._engine is None and not self._life.waits
            if self._request.head.minor == 0 or over or not (self._route.demand.streamed and self._endpoint.cached):
                return
            if not body.committed:
                body.commit(early_head(self._notes, self._request_id, keep=self._client.keeps_alive))
        elif self._paused or not body.takes_events:
            return
        self._quiet_since = now
        body.add_event(self._endpoint.form.keep_alive)

    def _enforce_limits(self, now: float) -> None:
        """Abort the request to an engine that lets the client wait for too long."""
        if self._body.moved or self._paused:
            self._body.moved, self._since = False, now
        waited = now - self._since
        if (failure := self._life.late(waited, now)) is not None:
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
                if lacks_credential(self._state.features, member):
                    self.failed(Failure.NO_CREDENTIAL)
                    return
                self._engine = self._connections.acquire(
                    member.address, fresh=effect.fresh, verification=verification_of(member)
                )
                if self._paused:
                    self._engine.pause()
                head, body = self._engine_request(member, self._life.sent(now))
                self._engine.send(head, body, self)
            case Refuse():
                self._refuse(effect.error)
            case Action.CUT:
                self._life.cut(self._clock())
                # where the end of the connection ends the answer, only a reset shows that it is not whole, or an event
                result = self._tell(cut_short(failure))
                self._client.cut(visibly=not result and not self._body.cut_shows)
            case Action.WAIT:
                pass

    def _tell(self, error: ApiError) -> bool:
        """Report an error in an event of the stream that has begun. Return False if it cannot have one."""
        body = self._body
        if body.error_told:
            return True
        if not body.takes_events:
            return False
        body.add_event(self._endpoint.form.event(error, self._request_id, body.next_number()))
        return True

    def _own_error(self, status: int, body: bytes) -> ApiError | None:
        """Return the error that the client gets in place of the engine's, which has this body; None for the engine's.

        An engine that does not have the path names neither the model nor the API; one may repeat a secret prompt.
        """
        if lacks_path(status, body):
            head = self._request.head
            return not_served_by_engine(head.method, head.path, self._route.model)
        return error_for(self._route.features, status)

    def _answer_for_engine(self, engine_status: int, error: ApiError) -> None:
        """Answer with an error in place of the engine's."""
        self._answer = self._held = None
        self._life.replaced(engine_status, self._clock())
        self._answer_error(error, *self._endpoint.form.refuse(error, self._request_id))

    def _refuse(self, error: ApiError) -> None:
        status, body = self._endpoint.form.refuse(error, self._request_id)
        self._life.refused(error, status, self._clock())
        self._answer_error(error, status, body)

    def _answer_error(self, error: ApiError, status: int, body: bytes) -> None:
        if self._body.committed:
            self._body.add_event(self._endpoint.form.event(error, self._request_id, 0))
            self._client.cut(visibly=False)
            return
        ids = id_fields(self._endpoint.form, self._request_id)
        self._client.answer(status, [*error.headers(), *ids], body)

    def _engine_request(self, member: Member, traceparent: bytes) -> tuple[bytes, bytes | bytearray]:
        """Return head and body of the request for a member; `traceparent` is empty for the client's own."""
        head = self._request.head
        rest, method = self._life.rest, head.method
        if rest is None:
            target = engine_target(self._endpoint, head.path, head.query)
            body = engine_body(self._route, member, os.urandom)
        else:
            target, body = rest.request()
            method = b"POST" if body else b"GET"
        traced = traceparent != b""
        allowed, further = engine_fields(self._state.features, self._route, member, traced=traced)
        lines = http1.forwarded(head, allowed)
        lines += [b"%b: %b" % field for field in further]
        if traceparent:
            lines.append(_TRACEPARENT + traceparent)
        lines.append(_VIA_AND_HOST[head.minor] + member.address.encode())
        if body or method == b"POST":
            lines.append(b"content-length: %d" % len(body))
        # an id for each try: engines take it as their own, and one that clients choose could stand for two requests
        lines.append(b"%b: %b" % (REQUEST_ID, self._ids.new()))
        return http1.encode(method + b" " + target + b" HTTP/1.1", lines), body

    def _begin_answer(self, answer: ResponseHead, usage: Usage | None = None) -> None:
        """Write the client's head; from here on no other engine is tried."""
        self._answer = self._opening = self._held = None
        now = self._since = self._clock()
        if self._life.rest is not None:
            chunked = answer.framing is Framing.CHUNKED
            self._body.go_on(EventGuard(chunked=chunked, words=words_of(self._endpoint)))
            self._body.add_event(self._life.goes_on(now))
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
            keep=self._client.keeps_alive,
            served_by=UNMATCHED if self._route.group == UNMATCHED else self._life.member.label,
            revision=self._route.revision,
            request_id=self._request_id,
            rewritten=(rewriter is not None and not in_place) or closing is not None,
            further=[*self._notes, *added.fields],
            limits=added.limits,
            rules=rules,
        )
        self._body.begin(
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
        content = bytearray(held)
        if answer.framing is Framing.CHUNKED:
            content.clear()
            Chunked().feed(held, content)
        if (rest := self._life.rest) is not None:
            self._engine = self._answer = self._held = None
            if rest.learn(bytes(content)):
                self.perform(Send(self._life.member))
            else:
                self.failed(Failure.STATUS)
            return True
        if answer.status == OK and broken_body(bytes(content)):
            self.failed(Failure.ABORTED)
            return True
        usage: Usage | None = None
        if answer.status == OK and self._reads_usage:
            tail = self._endpoint.tail()
            tail.add(bytes(content))
            usage = tail.usage()
        elif answer.status != OK and (error := self._own_error(answer.status, bytes(content))) is not None:
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
