"""One request on its way: steps 5 to 7 of a request's life, between a client and the engines that are tried.

Decisions are `route`'s and `exchange`'s; this performs them. A chunk of an answer costs one call from the engine's
connection, one to count what is kept of its end, one to the client's transport.
"""

import logging
import os
from collections.abc import Callable

from promptgroup_router.apis.usage import Tail
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.base.logs import fields
from promptgroup_router.contract import names
from promptgroup_router.http11 import http1
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import CHUNKED, UNTIL_CLOSE, ResponseHead
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import STATUS_LINES, ClientConnection
from promptgroup_router.proxy.exchange import Action, Exchange, Refuse, Send
from promptgroup_router.proxy.upstream import EngineConnection, EngineConnections
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.route import UNMATCHED, Route
from promptgroup_router.routing.state import State

log = logging.getLogger("promptgroup.router")

_NOT_FORWARDED = frozenset(
    (b"host", b"content-length", b"expect", names.HEADER_GROUP.encode(), names.HEADER_WARMUP.encode())
)
"""Set anew for each engine, settled here, or not for clients to say (what is a warm-up, the operator says)."""
_NOT_RELAYED = frozenset((names.HEADER_SERVED_BY.encode(),))
ERRORS, UPSTREAM_ERRORS = 400, 500
"""Statuses from which an answer's time says nothing of the engine's work, and from which it is the engine's fault."""
REQUEST_ID = b"x-request-id"
_SERVED_BY = names.HEADER_SERVED_BY.encode()


class Relay:
    """A request and its answer."""

    __slots__ = (
        "_answer", "_began", "_client", "_clock", "_connections", "_deadline", "_decoder", "_engine", "_exchange",
        "_keep", "_paused", "_pending", "_request", "_request_id", "_route", "_state", "_status", "_tail", "_ticket",
    )  # fmt: skip

    def __init__(
        self,
        client: ClientConnection,
        request: HttpRequest,
        found: Route,
        *,
        state: State,
        connections: EngineConnections,
        clock: Callable[[], float],
        timeout: float,
    ) -> None:
        self._client = client
        self._request = request
        self._route = found
        self._state = state
        self._connections = connections
        self._clock = clock
        self._began = clock()
        self._deadline = self._began + timeout
        self._request_id = request_id(request)
        self._exchange = Exchange(state, found.pool, found.demand, self._deadline)
        self._engine: EngineConnection | None = None
        self._answer: ResponseHead | None = None
        self._pending = b""
        self._keep = False
        self._paused = False
        self._decoder: Chunked | None = None
        self._status = 0
        """Of the answer that is passed on."""
        self._tail = Tail()
        self._ticket: int | None = None
        """Of its place among those that wait for room."""

    def begin(self) -> None:
        """Choose a slot, and send."""
        self._do(self._exchange.begin(self._began))

    # --- What the engine's connection tells (step 6) ---------------------------------------------------------

    def answer_began(self, head: ResponseHead) -> None:
        """The head is here. It waits for the first byte of the body: an engine that dies before is not the end."""
        action = self._exchange.answered(head.status, self._clock())
        if isinstance(action, Send):
            self._drop_engine()
            self._do(action)
            return
        self._answer = head

    def answer_data(self, data: bytes) -> None:
        """Bytes of the body."""
        if self._answer is not None:
            self._pass_on(self._answer)
        self._tail.add(data)
        if self._decoder is not None:
            pieces: list[bytes] = []
            self._decoder.feed(data, pieces)
            data = b"".join(pieces)
        if self._pending:
            data, self._pending = self._pending + data, b""
        self._client.write(data)

    def answer_ended(self) -> None:
        """The answer is whole: step 7, close the books."""
        if self._answer is not None:
            self._pass_on(self._answer)
        if self._pending:
            self._client.write(self._pending)
        self._engine = None
        self._close_books()
        self._client.finish(keep=self._keep)

    def failed(self, failure: Failure) -> None:
        """There is no whole answer."""
        self._engine = None
        self._answer = None
        if log.isEnabledFor(logging.INFO) and failure is not Failure.STALE:
            log.info(
                "engine failed",
                extra=fields(slot=self._exchange.member.label, failure=failure.value, tries=self._exchange.tries),
            )
        self._do(self._exchange.failed(failure, self._clock()))

    # --- What the client's connection tells ------------------------------------------------------------------

    def client_left(self) -> None:
        """The client is gone: its engine shall not work for nobody."""
        self._drop_engine()
        self._wait_no_more()
        self._exchange.abandoned(self._clock())
        self._state.metrics.cut.add(self._route.group, "client")
        self._trace("client left")
        self._state.settle(self._clock())

    def pause(self) -> None:
        """The client does not keep up."""
        self._paused = True
        if self._engine is not None:
            self._engine.pause()

    def resume(self) -> None:
        """It does again."""
        self._paused = False
        if self._engine is not None:
            self._engine.resume()

    def tick(self, now: float) -> None:
        """Keep the deadline."""
        if now >= self._deadline:
            self._drop_engine()
            self._wait_no_more()
            self._do(self._exchange.expired(now))

    # --- What the queue for room asks and tells ----------------------------------------------------------------

    @property
    def revision(self) -> tuple[str, str]:
        """The group and the revision that it waits for."""
        return self._route.group, self._route.revision

    def room(self, now: float) -> bool:
        """Go on if a replica has room; whether one has."""
        action = self._exchange.begin(now)
        if action is Action.WAIT:
            return False
        self._ticket = None
        self._do(action)
        return True

    def overdue(self) -> None:
        """There was none for too long."""
        self._ticket = None
        self._do(self._exchange.overdue())

    def _wait_no_more(self) -> None:
        if self._ticket is not None:
            self._state.holding.withdraw(self._ticket)
            self._ticket = None

    # --- Actions -----------------------------------------------------------------------------------------------

    def _do(self, action: Send | Refuse | Action) -> None:
        match action:
            case Send(member, fresh):
                self._engine = self._connections.acquire(member.address, fresh=fresh)
                self._engine.send(self._engine_request(member), self)
            case Refuse(error):
                self._refuse(error)
            case Action.CUT:
                self._state.metrics.cut.add(self._route.group, "engine")
                self._count(failed=True)
                self._trace("cut")
                # where the connection's end is the answer's end, only a reset shows that it is not whole
                self._client.cut(visibly=self._decoder is not None or not self._keep)
            case Action.WAIT:
                self._ticket = self._state.holding.put(self, self._clock(), new=self._exchange.new)
                self._state.metrics.held.add(self._route.group)
            case Action.RELAY:
                raise AssertionError("follows an answer only")

    def _refuse(self, error: ApiError) -> None:
        self._state.metrics.requests.add(self._route.group, str(error.status))
        if self._exchange.tries:  # replicas had it; where none had room the revision is not at fault
            self._count(failed=True)
        self._trace("refused", status=error.status, code=error.code)
        headers = [*error.headers(), (REQUEST_ID, self._request_id)]
        self._client.answer(error.status, headers, error.body())

    def _engine_request(self, member: Member) -> bytes:
        head, body = self._request.head, self._route.body
        headers = http1.passed_on(head.headers, _NOT_FORWARDED)
        headers += [(b"host", member.address.encode()), (b"content-length", b"%d" % len(body))]
        if REQUEST_ID not in head.fields:
            headers.append((REQUEST_ID, self._request_id))
        return http1.encode(b"POST " + head.path + b" HTTP/1.1", headers) + body

    def _pass_on(self, answer: ResponseHead) -> None:
        """Put the head together: from here on nothing is tried again."""
        self._answer = None
        member, now, found, metrics = self._exchange.member, self._clock(), self._route, self._state.metrics
        self._exchange.relaying(now)
        metrics.requests.add(found.group, str(answer.status))
        metrics.first_byte.observe(found.group, value=now - self._began)
        self._status = answer.status
        if found.revision and answer.status < ERRORS:
            streamed = names.STREAMED if found.demand.streamed else names.WHOLE
            took = now - self._began
            metrics.revision_first_token.observe(found.group, found.revision, self._turn, streamed, value=took)
        if found.group != UNMATCHED and self._exchange.moved:
            metrics.sessions_moved.add(found.group)
        headers = http1.passed_on(answer.headers, _NOT_RELAYED)
        self._keep = self._client.keeps_alive and answer.framing != UNTIL_CLOSE
        if answer.framing == CHUNKED:
            if self._request.head.minor == 1:
                headers.append((b"transfer-encoding", b"chunked"))
            else:  # HTTP/1.0 knows no chunks: the end of the connection is the end of the answer
                self._decoder, self._keep = Chunked(), False
        headers.append((_SERVED_BY, (UNMATCHED if found.group == UNMATCHED else member.label).encode()))
        if not any(name == REQUEST_ID for name, _ in answer.headers):
            headers.append((REQUEST_ID, self._request_id))
        headers += self._client.connection_header(keep=self._keep)
        line = STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d " % answer.status
        self._pending = http1.encode(line, headers)
        if self._paused and self._engine is not None:
            self._engine.pause()

    def _close_books(self) -> None:
        now, metrics = self._clock(), self._state.metrics
        usage = self._tail.usage()
        self._exchange.ended(now, usage)
        metrics.duration.observe(self._route.group, value=now - self._began)
        self._count(failed=self._status >= UPSTREAM_ERRORS)
        if usage is not None:
            found = self._route
            if found.revision and usage.cached_tokens is not None and usage.prompt_tokens:
                share = usage.cached_tokens / usage.prompt_tokens
                metrics.revision_cached.observe(found.group, found.revision, self._turn, value=share)
            if found.revision:
                metrics.revision_prompt_tokens.add(found.group, found.revision, amount=usage.prompt_tokens)
            metrics.prompt_tokens.add(found.group, amount=usage.prompt_tokens)
            metrics.cached_tokens.add(found.group, amount=usage.cached_tokens or 0)
            self._state.tokens.learn(found.model, found.estimated, usage.prompt_tokens - found.counted)
        self._trace("served")
        self._state.settle(now)

    @property
    def _turn(self) -> str:
        """A canary has young sessions only, so that requests are compared by whether they begin one."""
        return names.TURN_FIRST if self._exchange.new else names.TURN_LATER

    def _count(self, *, failed: bool) -> None:
        """For the judgement of a release: how the request of a revision ended."""
        found = self._route
        if found.revision:
            outcome = names.OUTCOME_FAILED if failed else names.OUTCOME_OK
            self._state.metrics.revision_requests.add(found.group, found.revision, self._turn, found.how.value, outcome)

    def _drop_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.abort()

    def _trace(self, event: str, **more: object) -> None:
        """The decision, for those who ask for it: keys and places, never text."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        found, tries = self._route, self._exchange.tries
        log.debug(
            event,
            extra=fields(
                request=self._request_id.decode("latin-1")[:128],
                how=found.how.value,
                group=found.group,
                session=f"{found.demand.session:016x}",
                slot=self._exchange.member.label if tries else "",
                tries=tries,
                seconds=round(self._clock() - self._began, 6),
                **more,
            ),
        )


def request_id(request: HttpRequest) -> bytes:
    """What the client calls its request, or a new name."""
    return request.head.fields.get(REQUEST_ID) or b"req-" + os.urandom(16).hex().encode()
