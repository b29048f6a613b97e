"""Answers the port for requests, by path and method."""

import logging
from collections.abc import Callable

from promptgroup_router.apis import structure
from promptgroup_router.apis.endpoints import BY_PATH_ALONE, ENDPOINTS, Endpoint
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.logs import fields
from promptgroup_router.contract import names
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection
from promptgroup_router.proxy.relay import Relay
from promptgroup_router.proxy.request_ids import RequestIds
from promptgroup_router.proxy.response import REQUEST_ID
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.routing.model_list import MODELS_PATH, model_card, model_list
from promptgroup_router.routing.route import Route, refuse_empty, route
from promptgroup_router.routing.state import RouterState
from promptgroup_router.routing.stored_response import StoredResponsePath, parse_path, route_by_response
from promptgroup_router.routing.unmatched import UNMATCHED

log = logging.getLogger("promptgroup.router")

ANTHROPIC_VERSION = b"anthropic-version"
"""The field that requests of Anthropic's API have."""

_NAMESPACE = names.HEADER_NAMESPACE.encode()

_SERVED = ", ".join(
    [f"POST {path.decode()}" for path in ENDPOINTS]
    + ["GET and DELETE /v1/responses/{id}", "POST /v1/responses/{id}/cancel", "GET /v1/responses/{id}/input_items"]
    + ["GET /v1/models", "GET /v1/models/{id}"]
)


class ApiHandler:
    """The handler of the port for requests."""

    def __init__(
        self, state: RouterState, connections: EngineConnections, clock: Callable[[], float], timeout: float
    ) -> None:
        self._state = state
        self._connections = connections
        self._ids = RequestIds()
        self._clock = clock
        self._timeout = timeout

    def __call__(self, client: ClientConnection, request: HttpRequest) -> ActiveRequest | None:
        """Answer a request, or return the relay that will."""
        head = request.head
        endpoint = ENDPOINTS.get(head.path)
        if endpoint is not None and head.method == b"POST":
            return self._start(endpoint, client, request)
        try:
            stored = parse_path(head.path) if endpoint is None else None
            if stored is not None and head.method in stored.methods:
                return self._start_stored(stored, client, request)
            if stored is not None or endpoint is not None:
                raise _no_such_method(head.method, stored.methods if stored is not None else (b"POST",))
            self._list_models(client, request)
        except ApiError as error:
            self._refuse(endpoint or BY_PATH_ALONE, error, client, request)
        return None

    def _list_models(self, client: ClientConnection, request: HttpRequest) -> None:
        """Answer a request for the models that are served.

        Raises:
            ApiError: 404 or 405: the request asks for something else.
        """
        head, index = request.head, self._state.index
        anthropic = ANTHROPIC_VERSION in head.fields
        body = model_list(index, anthropic=anthropic) if head.path == MODELS_PATH else None
        if body is None:
            body = model_card(index, head.path, anthropic=anthropic)
        if body is None:
            raise _no_such_path()
        if head.method not in (b"GET", b"HEAD"):
            raise _no_such_method(head.method, (b"GET",))
        client.answer(200, [(b"content-type", b"application/json")], body)

    def _start(self, endpoint: Endpoint, client: ClientConnection, request: HttpRequest) -> Relay | None:
        """Perform steps 1 to 4 of a request's life: read, match, session, revision. `Relay` performs the others."""
        state = self._state
        try:
            structure.check(request.body, endpoint.values)
            ask = endpoint.parse(request.body)
            found = route(
                state.index,
                ask,
                request.head.fields,
                locations=state.balancer.locations,
                tokens=state.tokens,
                now=self._clock(),
                cached=endpoint.cached,
            )
            self._note(found)
            refuse_empty(found)
        except ApiError as error:
            self._refuse(endpoint, error, client, request)
            return None
        return self._relay(found, endpoint, client, request)

    def _start_stored(self, stored: StoredResponsePath, client: ClientConnection, request: HttpRequest) -> Relay:
        """Start a request about a response that an engine has stored.

        Raises:
            ApiError: 404, no replica holds it.
        """
        state = self._state
        namespace = request.head.fields.get(_NAMESPACE, b"").decode("latin-1")
        found = route_by_response(state.index, state.balancer, stored.response_id, request.body, namespace)
        return self._relay(found, BY_PATH_ALONE, client, request)

    def _relay(self, found: Route, endpoint: Endpoint, client: ClientConnection, request: HttpRequest) -> Relay:
        relay = Relay(
            client,
            request,
            found,
            endpoint=endpoint,
            state=self._state,
            connections=self._connections,
            ids=self._ids,
            clock=self._clock,
            timeout=self._timeout,
        )
        relay.begin()
        return relay

    def _refuse(self, endpoint: Endpoint, error: ApiError, client: ClientConnection, request: HttpRequest) -> None:
        status, body = endpoint.refuse(error)
        self._state.metrics.requests.add(UNMATCHED, str(status))
        log.debug("refused", extra=fields(status=error.status, code=error.code, param=error.param))
        client.answer(status, [*error.headers(), (REQUEST_ID, self._ids.of(request))], body)

    def _note(self, found: Route) -> None:
        """Count a request that no group declares, whether or not a replica may serve it."""
        state = self._state
        if found.leading is not None:
            state.metrics.unmatched.add(found.model)
            state.unmatched.add(found.model, found.leading.hash, found.leading.length)
        if found.near_miss is not None:
            state.metrics.near_miss.add(found.near_miss.group)
            state.near_misses.add(found.near_miss)


def _no_such_path() -> ApiError:
    return ApiError(404, f"there is nothing at this path: use one of {_SERVED}", code="not_found")


def _no_such_method(method: bytes, allowed: tuple[bytes, ...]) -> ApiError:
    listed = ", ".join(each.decode() for each in allowed)
    return ApiError(
        405,
        f"the method {method.decode('latin-1')[:32]} is not allowed at this path: use {listed}",
        code="method_not_allowed",
        allow=listed,
    )
