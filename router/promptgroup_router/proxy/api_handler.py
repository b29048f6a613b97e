"""Answers the port for requests, by path and method."""

import logging
import re
from collections.abc import Callable
from typing import Protocol

from promptgroup_router.apis.endpoints import BY_PATH_ALONE, ENDPOINTS, form_of
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.apis.structure import LARGE_BYTES
from promptgroup_router.base.errors import ApiError, KeysAwaitedError, internal_error
from promptgroup_router.base.logs import fault, fields
from promptgroup_router.decision.arrival import (
    CODING,
    ModelsAnswer,
    arrive,
    check_head,
    check_sender,
    endpoint_of,
    large_body,
)
from promptgroup_router.decision.record import refused_at_once
from promptgroup_router.http11.content_coding import coding_of, decoded, too_large
from promptgroup_router.http11.cross_origin import ORIGIN, CrossOrigin
from promptgroup_router.http11.http1 import Headers, RequestHead
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.client_answer import NO_NOTES, AnswerTaker
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection
from promptgroup_router.proxy.key_waits import KeyWaits
from promptgroup_router.proxy.large_request import LargeBodyReader, LargeRequest
from promptgroup_router.proxy.relay import Relay, RelayContext
from promptgroup_router.proxy.request_ids import RequestIds
from promptgroup_router.proxy.response import id_fields
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState

log = logging.getLogger("promptgroup.router")


HEALTH_PATH = b"/health"
"""Health check on the port for requests: load balancers probe the port that they send to."""
_SLASHES = re.compile(rb"//+")
_TEXT = [(b"content-type", b"text/plain; charset=utf-8")]

Begin = Callable[[AnswerTaker, HttpRequest, Route, Headers], ActiveRequest]
"""Sends a request to an engine, on a route; the header fields are added to the answer."""


class AnswerSharing(Protocol):
    """The response cache."""

    def start(
        self,
        client: ClientConnection,
        request: HttpRequest,
        route: Route,
        begin: Begin,
        *,
        from_peer: bool,
    ) -> ActiveRequest | None:
        """Answer a request of a group with a response cache, or return the object that will; None for any other.

        Args:
            client: the connection.
            request: the request.
            route: where it may go.
            begin: sends the request to an engine.
            from_peer: whether another router has sent the request to this one, as the key's home router.

        Raises:
            ApiError: the request is refused.
        """

    def pass_by(self, request: HttpRequest, route: Route, parsed_request: ParsedRequest) -> Headers:
        """Let a request bypass the cache if only a digest of its body is available.

        Returns:
            Header fields about the cache for its answer.

        Raises:
            ApiError: the request is refused.
        """


class ApiHandler:
    """The handler of the port for requests, and of the one for other routers' requests."""

    def __init__(
        self,
        state: RouterState,
        connections: EngineConnections,
        reader: LargeBodyReader,
        clock: Callable[[], float],
        timeout: float,
        *,
        max_body: int = LARGE_BYTES,
        origins: tuple[str, ...] = (),
        sharing: AnswerSharing | None = None,
        from_peer: bool = False,
    ) -> None:
        """Handle requests.

        Args:
            state: of the router.
            connections: to engines.
            reader: parses large bodies.
            clock: monotonic seconds.
            timeout: seconds from a request to the end of its answer.
            max_body: most bytes of a body, decoded.
            origins: the origins whose web pages may send requests.
            sharing: the response cache; None for none.
            from_peer: whether the requests come from other routers.
        """
        self._state = state
        self._reader = reader
        self._ids = RequestIds()
        self._clock = clock
        self._context = RelayContext(state, connections, self._ids, clock, timeout)
        self._max_body = max_body
        self._origins = CrossOrigin(origins) if origins else None
        self._sharing = sharing
        self._from_peer = from_peer
        self._key_waits = KeyWaits(self)
        state.features.on_keys.append(self._key_waits.look)

    def __call__(self, client: ClientConnection, request: HttpRequest) -> ActiveRequest | None:
        """Answer a request, or return what will."""
        clock, head = self._clock(), request.head
        if head.path not in ENDPOINTS and (head.path.find(b"//") >= 0 or head.path.endswith(b"/")):
            plain = _plain(head.path)
            # by another method than POST such a path, with a slash behind it, would be that of a thing without a name
            head.path = plain if head.method == b"POST" or plain not in ENDPOINTS else head.path
        if self._origins is not None and ORIGIN in head.fields:
            client.add_fields(self._origins.answer_fields(head.fields))
            allowed = self._origins.preflight(head.method, head.fields)
            if allowed is not None:
                client.answer(200, allowed, b"")
                return None
        if head.path == HEALTH_PATH and head.method in (b"GET", b"HEAD"):
            problem = self._state.not_ready
            client.answer(503 if problem else 200, _TEXT, problem or b"ok\n")
            return None
        try:
            return self.handle(client, request, clock)
        except KeysAwaitedError as error:
            if not self._key_waits.full:
                return self._key_waits.add(client, request, clock, error)
            self.refuse(error, client, request)
            return None

    def handle(self, client: ClientConnection, request: HttpRequest, arrived: float) -> ActiveRequest | None:
        """Answer a request that arrived at a time, or return the object that will.

        Raises:
            KeysAwaitedError: the sender cannot be identified yet.
        """
        head = request.head
        try:
            if CODING in head.fields and (coding := coding_of(head.fields)):
                check_sender(self._state, head.fields, client.sender, arrived)
                request = HttpRequest(_without_coding(head), request.body)
                plain = decoded(coding, request.body, LARGE_BYTES)
                if plain is None:
                    return self._read_coded(client, request, coding)
                client.intake.hold_decoded(len(plain))
                request.body = plain
            large = large_body(self._state, head.method, head.path, request.body)
            if large is not None:
                check_head(self._state, head.fields, client.sender, arrived)
                return LargeRequest(self, self._reader, large, client=client, request=request, clock=self._clock)
            result = self.arrive(client, request, came=arrived)
            if self._sharing is not None and isinstance(result, Route) and result.candidates.responses is not None:
                shared = self._sharing.start(client, request, result, self._begin, from_peer=self._from_peer)
                if shared is not None:
                    return shared
        except KeysAwaitedError:
            raise
        except ApiError as error:
            self.refuse(error, client, request)
            return None
        if isinstance(result, ModelsAnswer):
            ids = id_fields(form_of(head.path, head.fields), self._ids.of(request))
            client.answer(200, [*result.fields, *ids], result.body)
            return None
        return self._begin(client, request, result, NO_NOTES)

    def _read_coded(self, client: ClientConnection, request: HttpRequest, coding: str) -> LargeRequest | None:
        """Have a body decoded and parsed by another process; raises ApiError where there is none."""
        endpoint = endpoint_of(request.head.path, self._state.pass_paths)
        if request.head.method != b"POST" or endpoint is BY_PATH_ALONE:
            raise too_large(LARGE_BYTES)
        return LargeRequest(
            self,
            self._reader,
            endpoint,
            client=client,
            request=request,
            clock=self._clock,
            coding=coding,
            most=self._max_body,
        )

    def _begin(self, client: AnswerTaker, request: HttpRequest, route: Route, notes: Headers) -> Relay:
        relay = self.relay(route, client, request, notes)
        relay.begin()
        return relay

    def declared_messages(self) -> int:
        """Return the most messages that a group of the table declares."""
        return self._state.index.most_messages

    def arrive(
        self,
        client: ClientConnection,
        request: HttpRequest,
        ask: ParsedRequest | None = None,
        came: float | None = None,
        size: int | None = None,
    ) -> Route | ModelsAnswer:
        """Decide what becomes of a request, by the digest of its body where that was read already; raises ApiError."""
        head = request.head
        try:
            return arrive(
                self._state,
                method=head.method,
                path=head.path,
                headers=head.fields,
                body=request.body,
                now=self._clock(),
                sender=client.sender,
                request=ask,
                size=size,
                came=came,
            )
        except ApiError:
            raise
        except Exception as error:  # noqa: BLE001 # a fault of the router, after which the client gets an answer
            log.error("a request could not be read", extra=fault(error))  # noqa: TRY400 # a traceback may repeat a prompt
            raise internal_error() from None

    def pass_cache(self, route: Route, request: HttpRequest, parsed_request: ParsedRequest) -> Headers:
        """Let a request bypass the response cache, by its body's digest; return the answer's header fields about it.

        Raises:
            ApiError: its client accepts a cached answer only, or its cache options are invalid.
        """
        if route.candidates.responses is None or self._sharing is None:
            return NO_NOTES
        return self._sharing.pass_by(request, route, parsed_request)

    def withdraw(self, route: Route) -> None:
        """Give back what the caller of a request was charged for: no engine will see it."""
        for feature in route.features:
            feature.withdrawn(self._clock())

    def relay(self, route: Route, client: AnswerTaker, request: HttpRequest, notes: Headers = NO_NOTES) -> Relay:
        """Return what relays a request."""
        return Relay(
            client,
            request,
            route,
            endpoint=endpoint_of(request.head.path, self._state.pass_paths),
            context=self._context,
            notes=notes,
        )

    def refuse(self, error: ApiError, client: ClientConnection, request: HttpRequest) -> None:
        """Answer with an error."""
        client.answer(*self.refusal(error, request.head))

    def refusal(self, error: ApiError, head: RequestHead | None) -> tuple[int, Headers, bytes]:
        """Record a request that is refused, with its head if that could be read. Return status, fields and body."""
        path, sent = (head.path, head.fields) if head is not None else (b"", {})
        form, request_id, now = form_of(path, sent), self._ids.among(sent), self._clock()
        status, body = form.refuse(error, request_id)
        refused_at_once(self._state, error, status, request_id=request_id, path=path, headers=sent, now=now)
        log.debug("refused", extra=fields(status=error.status, code=error.code, param=error.param))
        return status, [*error.headers(), *id_fields(form, request_id)], body


def _plain(path: bytes) -> bytes:
    """Return a path as it is served: clients that join a base URL and a path double a slash, or end with one."""
    return _SLASHES.sub(b"/", path).removesuffix(b"/") or b"/"


def _without_coding(head: RequestHead) -> RequestHead:
    """Return the head of a request whose body is decoded."""
    return RequestHead(
        method=head.method,
        path=head.path,
        query=head.query,
        headers=[field for field in head.headers if field.name != CODING],
        fields={name: value for name, value in head.fields.items() if name != CODING},
        options=head.options,
        framing=head.framing,
        length=head.length,
        minor=head.minor,
        keep_alive=head.keep_alive,
        expects_continue=head.expects_continue,
    )
