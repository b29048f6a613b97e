"""Answers the port for requests, by path and method."""

import logging
from collections.abc import Callable

import orjson

from promptgroup_router.apis.endpoints import ENDPOINTS, Endpoint
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.logs import fields
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection
from promptgroup_router.proxy.relay import Relay, request_id
from promptgroup_router.proxy.response import REQUEST_ID
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.rings.index import GroupEntry, RoutingIndex
from promptgroup_router.routing.route import UNMATCHED, Route, refuse_empty, route
from promptgroup_router.routing.state import RouterState

log = logging.getLogger("promptgroup.router")

MODELS_PATH = b"/v1/models"

_METHODS = dict.fromkeys(ENDPOINTS, b"POST") | {MODELS_PATH: b"GET"}


class ApiHandler:
    """The handler of the port for requests."""

    def __init__(
        self, state: RouterState, connections: EngineConnections, clock: Callable[[], float], timeout: float
    ) -> None:
        self._state = state
        self._connections = connections
        self._clock = clock
        self._timeout = timeout

    def __call__(self, client: ClientConnection, request: HttpRequest) -> ActiveRequest | None:
        """Answer a request, or return the relay that will."""
        path, method = request.head.path, request.head.method
        allowed = _METHODS.get(path)
        if method == allowed:
            endpoint = ENDPOINTS.get(path)
            if endpoint is None:
                client.answer(200, [(b"content-type", b"application/json")], models(self._state.index))
                return None
            return self._start(endpoint, client, request)
        self._state.metrics.requests.add(UNMATCHED, "404" if allowed is None else "405")
        client.refuse(_no_such_path() if allowed is None else _no_such_method(method, allowed))
        return None

    def _start(self, endpoint: Endpoint, client: ClientConnection, request: HttpRequest) -> Relay | None:
        """Perform steps 1 to 4 of a request's life: read, match, session, revision. `Relay` performs the others."""
        state = self._state
        try:
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
            status, body = endpoint.refuse(error)
            state.metrics.requests.add(UNMATCHED, str(status))
            log.debug("refused", extra=fields(status=error.status, code=error.code, param=error.param))
            client.answer(status, [*error.headers(), (REQUEST_ID, request_id(request))], body)
            return None
        relay = Relay(
            client,
            request,
            found,
            endpoint=endpoint,
            state=state,
            connections=self._connections,
            clock=self._clock,
            timeout=self._timeout,
        )
        relay.begin()
        return relay

    def _note(self, found: Route) -> None:
        """Count a request that no group declares, whether or not a replica may serve it."""
        state = self._state
        if found.leading is not None:
            state.metrics.unmatched.add(found.model)
            state.unmatched.add(found.model, found.leading.hash, found.leading.length)
        if found.near_miss is not None:
            state.metrics.near_miss.add(found.near_miss.group)
            state.near_misses.add(found.near_miss)


def models(view: RoutingIndex) -> bytes:
    """Return models and groups in the form of OpenAI's list of models."""
    served = [{"id": model, "object": "model", "created": 0, "owned_by": "engine"} for model in view.models]
    groups = [
        {"id": _shortest_name(view, group), "object": "model", "created": 0, "owned_by": group.group.namespace}
        for group in view.groups
    ]
    return orjson.dumps({"object": "list", "data": served + groups})


def _shortest_name(view: RoutingIndex, group: GroupEntry) -> str:
    short = group.group.name
    return short if view.names.get(short) is group and short not in view.models else group.label


def _no_such_path() -> ApiError:
    served = ", ".join(f"{method.decode()} {path.decode()}" for path, method in _METHODS.items())
    return ApiError(404, f"there is nothing at this path: use one of {served}", code="not_found")


def _no_such_method(method: bytes, allowed: bytes) -> ApiError:
    return ApiError(
        405,
        f"{method.decode('latin-1')[:32]} is not allowed at this path: use {allowed.decode()}",
        code="method_not_allowed",
        allow=allowed.decode(),
    )
