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

_JSON = b"application/json"
_TEXT = b"text/plain; charset=utf-8"
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"


class Admin:
    """The handler of the admin port."""

    def __init__(self, state: RouterState, connections: Callable[[], int], clock: Callable[[], float]) -> None:
        self._state = state
        self._connections = connections
        self._clock = clock

    def __call__(self, client: ClientConnection, request: HttpRequest) -> None:
        """Answer a request."""
        path, allowed = request.head.path, b"POST" if request.head.path == EXPLAIN_PATH else b"GET"
        if request.head.method not in ((b"GET", b"HEAD") if allowed == b"GET" else (allowed,)):
            message = f"this path only allows {allowed.decode()}: use it"
            client.refuse(ApiError(405, message, code="method_not_allowed", allow=allowed.decode()))
            return
        match path:
            case b"/healthz":
                client.answer(200, [(b"content-type", _TEXT)], b"ok\n")
            case b"/readyz":
                problem = self._not_ready()
                client.answer(503 if problem else 200, [(b"content-type", _TEXT)], problem or b"ok\n")
            case b"/metrics":
                text = self._state.exposition(self._clock(), self._connections())
                client.answer(200, [(b"content-type", _METRICS)], text.encode())
            case b"/table":
                client.answer(200, [(b"content-type", _JSON)], self._table())
            case b"/unmatched":
                client.answer(200, [(b"content-type", _JSON)], self._unmatched())
            case b"/explain":
                self._explain(client, request.body)
            case _:
                paths = "/healthz, /readyz, /metrics, /table, /unmatched, /explain"
                client.refuse(ApiError(404, f"there is nothing at this path: use one of {paths}", code="not_found"))

    def _explain(self, client: ClientConnection, question: bytes) -> None:
        try:
            answer = explain(self._state, parse_explain_request(question), self._clock())
        except ApiError as error:
            client.refuse(error)
            return
        client.answer(200, [(b"content-type", _JSON)], answer)

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
