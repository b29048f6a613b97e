"""Serves the admin port: health, metrics, the table in use, explanations. No answer contains text of a prompt."""

from collections.abc import Callable

import orjson

from promptgroup_router.base.errors import ApiError
from promptgroup_router.contract.encoding import encode_group
from promptgroup_router.explain import explain, parse_explain_request
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ClientConnection
from promptgroup_router.routing.state import RouterState

EXPLAIN_PATH = b"/explain"

PATHS = (b"/healthz", b"/readyz", b"/metrics", b"/table", b"/unmatched", EXPLAIN_PATH)
JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
METRICS = b"text/plain; version=0.0.4; charset=utf-8"


def check_request(request: HttpRequest) -> None:
    """Check that a request is for one of the paths.

    Raises:
        ApiError: 404, there is no such path; 405, it does not allow the method.
    """
    path, method = request.head.path, request.head.method
    if path not in PATHS:
        listed = ", ".join(each.decode() for each in PATHS)
        raise ApiError(404, f"there is nothing at this path: use one of {listed}", code="not_found")
    allowed = (b"POST",) if path == EXPLAIN_PATH else (b"GET", b"HEAD")
    if method not in allowed:
        name = allowed[0].decode()
        raise ApiError(405, f"this path only allows {name}: use it", code="method_not_allowed", allow=name)


class Admin:
    """The handler of the admin port."""

    def __init__(self, state: RouterState, connections: Callable[[], int], clock: Callable[[], float]) -> None:
        self._state = state
        self._connections = connections
        self._clock = clock

    def __call__(self, client: ClientConnection, request: HttpRequest) -> None:
        """Answer a request."""
        try:
            check_request(request)
        except ApiError as error:
            client.refuse(error)
            return
        match request.head.path:
            case b"/healthz":
                client.answer(200, [(b"content-type", TEXT)], b"ok\n")
            case b"/readyz":
                problem = self._not_ready()
                client.answer(503 if problem else 200, [(b"content-type", TEXT)], problem or b"ok\n")
            case b"/metrics":
                text = self._state.exposition(self._clock(), self._connections())
                client.answer(200, [(b"content-type", METRICS)], text.encode())
            case b"/table":
                client.answer(200, [(b"content-type", JSON)], self._table())
            case b"/unmatched":
                client.answer(200, [(b"content-type", JSON)], self._unmatched())
            case _:
                self._explain(client, request.body)

    def _explain(self, client: ClientConnection, question: bytes) -> None:
        try:
            answer = explain(self._state, parse_explain_request(question), self._clock())
        except ApiError as error:
            client.refuse(error)
            return
        client.answer(200, [(b"content-type", JSON)], answer)

    def _not_ready(self) -> bytes:
        if self._state.draining:
            return b"draining\n"
        return b"" if self._state.loaded else b"no routing table has been read yet\n"

    def _table(self) -> bytes:
        view, replicas = self._state.index, self._state.balancer.replicas
        groups = [
            {"namespace": group.namespace, "name": group.name, **encode_group(group)} for group in view.table.groups
        ]
        now = self._clock()
        shown = {
            id_: {
                "inFlight": replica.in_flight,
                "inFlightOfPeers": replica.peer_in_flight,
                "waitSeconds": round(replica.wait(now) + replica.late(now), 3),
                "stepSeconds": round(replica.step, 4),
                "liveSessions": len(replica.live),
                "liveTokens": round(replica.live.tokens),
                "kvTokens": replica.costs.kv_tokens,
                "prefillTokensPerSecond": round(replica.costs.rate),
            }
            for id_, replica in replicas.items()
        }
        return orjson.dumps(
            {"version": view.table.version, "groups": groups, "conflicts": view.conflicts, "replicas": shown},
            option=orjson.OPT_INDENT_2,
        )

    def _unmatched(self) -> bytes:
        found = [
            {
                "model": each.model,
                "hash": f"{each.hash:016x}",
                "systemBytes": each.length,
                "requests": each.count,
                "atMostTooHighBy": each.error,
            }
            for each in self._state.unmatched.heaviest()
        ]
        return orjson.dumps({"unmatched": found}, option=orjson.OPT_INDENT_2)
