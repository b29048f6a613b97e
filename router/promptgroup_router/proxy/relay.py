"""Relays one request to an engine and the answer to the client: steps 5 to 7 of a request's life.

`exchange` decides which engine gets the request, `response` writes the head of the answer, `record` counts. This module
performs their decisions on the two connections. A chunk of an answer costs one call from the engine's connection, one
to keep the end of the body, and one to the client's transport.
"""

import os
from collections.abc import Callable

from promptgroup_router.apis.endpoints import Endpoint
from promptgroup_router.apis.errors import NOT_FOUND, lacks_path, not_served_by_engine
from promptgroup_router.apis.opening import Opening
from promptgroup_router.apis.responses import with_id
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.contract import names
from promptgroup_router.http11 import http1
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Framing, ResponseHead
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ClientConnection
from promptgroup_router.proxy.exchange import Action, Exchange, Failed, Refuse, Send
from promptgroup_router.proxy.record import RequestRecord
from promptgroup_router.proxy.request_ids import RequestIds
from promptgroup_router.proxy.response import REQUEST_ID, interim_head, is_event_stream, relayed_head
from promptgroup_router.proxy.upstream import EngineConnection, EngineConnections
from promptgroup_router.rings.ids import MemberId, member_hash
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.response_id import RANDOM_BYTES, ResponseId, encode, process_hash
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState
from promptgroup_router.routing.unmatched import UNMATCHED

CONTINUE = 100
OK = 200
HELD_SECONDS = 15.0
"""Time for which the events before the first token are held back, unless the group's limit is longer: below the 30 to
60 seconds after which clients and load balancers take a silent connection for dead."""

_NOT_FORWARDED = frozenset(
    (
        b"host",
        b"content-length",
        b"expect",
        REQUEST_ID,
        names.HEADER_GROUP.encode(),
        names.HEADER_NAMESPACE.encode(),
        names.HEADER_WARMUP.encode(),
    )
)
"""Fields that are set anew for each engine, that concern the router, or that only the operator may set."""


class Relay:
    """A request and its answer."""

    __slots__ = (
        "_answer", "_client", "_clock", "_connections", "_deadline", "_decoder", "_endpoint", "_engine", "_exchange",
        "_ids", "_keep", "_moved", "_opening", "_paused", "_pending", "_record", "_request", "_request_id", "_route",
        "_since", "_state", "_tail", "_ticket",
    )  # fmt: skip

    def __init__(
        self,
        client: ClientConnection,
        request: HttpRequest,
        route: Route,
        *,
        endpoint: Endpoint,
        state: RouterState,
        connections: EngineConnections,
        ids: RequestIds,
        clock: Callable[[], float],
        timeout: float,
    ) -> None:
        began = clock()
        self._client = client
        self._request = request
        self._route = route
        self._endpoint = endpoint
        self._state = state
        self._connections = connections
        self._clock = clock
        self._deadline = began + timeout
        self._ids = ids
        self._request_id = ids.of(request)
        self._exchange = Exchange(state, route.candidates, route.demand, self._deadline)
        self._record = RequestRecord(state, route, self._exchange, self._request_id, began)
        self._engine: EngineConnection | None = None
        self._answer: ResponseHead | None = None
        """The engine's head, until the first byte of the body is here."""
        self._pending = b""
        """The client's head, until it is sent together with the first byte of the body."""
        self._keep = False
        self._opening: Opening | None = None
        """The beginning of a streamed answer, until it has a visible token."""
        self._since = began
        """When the request was sent; of an answer that has begun, when `tick` last found that it moves."""
        self._moved = False
        """True if bytes of the answer have come since `tick` looked."""
        self._paused = False
        self._decoder: Chunked | None = None
        self._tail = endpoint.tail()
        self._ticket: int | None = None
        """Place in the admission queue."""

    def begin(self) -> None:
        """Choose a replica and send the request there."""
        self._perform(self._exchange.begin(self._clock()))

    # --- Events of the engine's connection (step 6) ------------------------------------------------------------

    def interim_answer(self, head: ResponseHead) -> None:
        """Relay an interim answer, which changes nothing of the request's state (RFC 9110 section 15.2)."""
        # the router does not wait for 100 before it sends a body, and no interim answer exists in HTTP/1.0
        if head.status != CONTINUE and self._request.head.minor == 1:
            self._client.write(interim_head(head))

    def answer_began(self, head: ResponseHead) -> None:
        """Keep the head until the first byte of the body: another engine can still be tried if this one dies."""
        action = self._exchange.answered(head.status, self._clock())
        if isinstance(action, Send):
            self._drop_engine()
            self._perform(action)
            return
        self._answer = head
        if self._route.demand.streamed and head.status == OK and is_event_stream(head):
            self._opening = Opening(chunked=head.framing is Framing.CHUNKED)

    def answer_data(self, data: bytes) -> None:
        """Relay bytes of the body."""
        if self._answer is not None:
            if self._answer.status >= NOT_FOUND and lacks_path(self._answer.status, data):
                self._refuse_path(self._answer.status)
                return
            if self._opening is not None and not (data := self._opening.take(data)):
                return
            self._begin_answer(self._answer)
        self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        self._moved = True
        self._tail.add(data)
        if self._decoder is not None:
            content = bytearray()
            self._decoder.feed(data, content)
            data = bytes(content)
        if self._pending:
            data, self._pending = self._pending + data, b""
        self._client.write(data)

    def answer_ended(self) -> None:
        """Finish the client's answer and release the replica (step 7)."""
        if self._answer is not None:
            self._show_opening(self._answer)
        if self._pending:
            self._client.write(self._pending)
        self._engine = None
        now, usage = self._clock(), self._tail.usage()
        self._exchange.ended(now, usage)
        self._record.served(usage, now)
        self._state.admit_waiting(now)
        self._client.finish(keep=self._keep)

    def failed(self, failure: Failure) -> None:
        """Try another engine, refuse, or cut the answer."""
        self._engine = None
        self._answer = self._opening = None
        self._record.engine_failed(failure)
        self._perform(self._exchange.failed(failure, self._clock()))

    # --- Events of the client's connection -----------------------------------------------------------------------

    def client_left(self) -> None:
        """Abort the engine's work, which nobody waits for."""
        now = self._clock()
        self._drop_engine()
        self._leave_queue()
        self._exchange.abandoned(now)
        self._record.client_left(now)
        self._state.admit_waiting(now)

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
        """Give up once the deadline has passed."""
        if now >= self._deadline:
            self._drop_engine()
            self._leave_queue()
            self._perform(self._exchange.expired(now))
        elif self._engine is not None:
            self._enforce_limits(now)

    def _enforce_limits(self, now: float) -> None:
        """Give up an engine that keeps the client waiting for too long."""
        if self._moved or self._paused:
            self._moved, self._since = False, now
        waited = now - self._since
        if (failure := self._exchange.late(waited, now)) is not None:
            self._drop_engine()
            self.failed(failure)
        elif (
            self._answer is not None
            and self._opening is not None
            and waited >= max(HELD_SECONDS, self._route.candidates.time_limits.first_token)
        ):
            self._show_opening(self._answer)

    # --- Events of the admission queue ---------------------------------------------------------------------------

    @property
    def revision(self) -> tuple[str, str]:
        """The group and the revision that the request waits for."""
        return self._route.group, self._route.revision

    def try_admit(self, now: float) -> bool:
        """Send the request if a replica has room. Return True if one has."""
        action = self._exchange.begin(now)
        if action is Action.WAIT:
            return False
        self._ticket = None
        self._perform(action)
        return True

    def time_out(self) -> None:
        """Refuse the request, which has waited for too long."""
        self._ticket = None
        self._perform(self._exchange.time_out())

    def _leave_queue(self) -> None:
        if self._ticket is not None:
            self._state.admission_queue.withdraw(self._ticket)
            self._ticket = None

    # --- Actions -------------------------------------------------------------------------------------------------

    def _perform(self, action: Failed) -> None:
        match action:
            case Send(member, fresh):
                self._since = self._clock()
                self._engine = self._connections.acquire(member.address, fresh=fresh)
                if self._paused:
                    self._engine.pause()
                self._engine.send(*self._engine_request(member), self)
            case Refuse(error):
                self._refuse(error)
            case Action.CUT:
                self._record.cut(self._clock())
                # where the end of the connection ends the answer, only a reset shows that the answer is not whole
                self._client.cut(visibly=self._decoder is not None or not self._keep)
            case Action.WAIT:
                self._ticket = self._state.admission_queue.put(self, self._clock(), new=self._exchange.new)
                self._record.waits()

    def _refuse_path(self, engine_status: int) -> None:
        """Answer for an engine that does not have the path, whose own answer names neither the model nor the API."""
        self._answer = None
        self._drop_engine()
        now = self._clock()
        self._exchange.relaying(now)
        self._record.answer_began(engine_status, now)
        self._exchange.ended(now)
        self._record.served(None, now)
        self._state.admit_waiting(now)
        head = self._request.head
        status, body = self._endpoint.refuse(not_served_by_engine(head.method, head.path, self._route.model))
        self._client.answer(status, [(b"content-type", b"application/json"), (REQUEST_ID, self._request_id)], body)

    def _refuse(self, error: ApiError) -> None:
        status, body = self._endpoint.refuse(error)
        self._record.refused(error, status, self._clock())
        self._client.answer(status, [*error.headers(), (REQUEST_ID, self._request_id)], body)

    def _engine_request(self, member: Member) -> tuple[bytes, bytes]:
        """Return head and body of the request for a member."""
        head, body = self._request.head, self._route.body
        if self._route.stamped:
            body = with_id(body, new_id(member.id, member.incarnation, self._route.demand.session))
        headers = http1.forwarded(head.headers, _NOT_FORWARDED)
        headers.append((b"host", member.address.encode()))
        if body or head.method == b"POST":
            headers.append((b"content-length", b"%d" % len(body)))
        # an id for each try: engines take it as their own, and one that clients choose could stand for two requests
        headers.append((REQUEST_ID, self._ids.new()))
        target = head.path + b"?" + head.query if head.query else head.path
        return http1.encode(head.method + b" " + target + b" HTTP/1.1", headers), body

    def _begin_answer(self, answer: ResponseHead) -> None:
        """Write the client's head; from here on no other engine is tried."""
        self._answer = self._opening = None
        now = self._since = self._clock()
        self._exchange.relaying(now)
        self._record.answer_began(answer.status, now)
        relayed = relayed_head(
            answer,
            minor=self._request.head.minor,
            keep=self._client.keeps_alive,
            served_by=UNMATCHED if self._route.group == UNMATCHED else self._exchange.member.label,
            revision=self._route.revision,
            request_id=self._request_id,
        )
        self._pending, self._keep = relayed.head, relayed.keep
        if relayed.decode:
            self._decoder = Chunked()

    def _show_opening(self, answer: ResponseHead) -> None:
        """Begin an answer that shows nothing yet, with what is held of it."""
        held = self._opening.held() if self._opening is not None else b""
        self._begin_answer(answer)
        if held:
            self._pass_on(held)

    def _drop_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.abort()


def new_id(member: MemberId, incarnation: str, session: SessionKey) -> str:
    """Return an id for a response that a replica is asked for."""
    contents = ResponseId(member_hash(member), process_hash(incarnation), session)
    return encode(contents, os.urandom(RANDOM_BYTES))
