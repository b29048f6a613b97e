"""The test mode of the Inference Extension's conformance tests: a request names its own endpoint.

It does what the reference picker does in the same tests, so that they can be run with this one in its place. Requests
are not routed by any table, but to the ready pods of an InferencePool.
"""

import ipaddress
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from promptgroup_picker.extproc import messages
from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus
from promptgroup_picker.http2.stream import Stream

SELECTION = b"test-epp-endpoint-selection"
"""Header with addresses, with or without a port, that the choice is limited to."""
ECHO = "X-Echo-Set-Header"
"""Header with a header field that the tests' engine adds to its answer."""
SERVED = "x-conformance-test-served-endpoint"


class PoolError(Exception):
    """An InferencePool, or a list of pods, that is none."""


class PooledPod(NamedTuple):
    """An endpoint of the pool."""

    host: str
    address: str
    """Host and port."""


@dataclass(slots=True)
class Pool:
    """The pool under test, whose requests are sent in turn to the endpoints that may serve them."""

    members: tuple[PooledPod, ...] = ()
    endpoints: int = 1
    """Most endpoints that are named for a request."""
    turns: Iterator[int] = field(default_factory=itertools.count)

    def pick(self, selection: bytes, allowed: frozenset[str] | None) -> list[str]:
        """Return the endpoints for a request; see `choose`."""
        result = choose(self.members, selection, allowed)
        first = next(self.turns) % (len(result) or 1)
        return (result[first:] + result[:first])[: self.endpoints]


class ConformanceCall:
    """A request and its answer."""

    def __init__(self, stream: Stream, pool: Pool) -> None:
        self._stream = stream
        self._pool = pool
        self._endpoints = ""
        self._waits: list[bytes] | None = None
        """The body so far; None once the request was answered."""

    def begun(self, size: int) -> None:
        """Take it: there are tests alone."""

    def message(self, data: bytes) -> None:
        """Take a message of the gateway.

        Raises:
            GrpcError: it is none of the protocol.
        """
        message = messages.read(data)
        kind = message.WhichOneof("request")
        if kind == "request_headers":
            fields = messages.fields(message.request_headers.headers)
            self._endpoints = ",".join(
                self._pool.pick(fields.get(SELECTION, b""), messages.subset(message.metadata_context))
            )
            self._waits = []
            if message.request_headers.end_of_stream:
                self._answer(has_body=False)
        elif kind == "request_body" and self._waits is not None:
            self._waits.append(message.request_body.body)
            if message.request_body.end_of_stream:
                self._answer(has_body=True)
        elif kind == "response_headers":
            served = messages.served(message)
            self._stream.send(messages.response_headers(((SERVED, served),) if served else ()))
        elif kind == "response_body":
            part = message.response_body
            for item in messages.response_body(part.body, end=part.end_of_stream):
                self._stream.send(item)
        elif kind in ("request_trailers", "response_trailers"):
            self._stream.send(messages.UNCHANGED[kind])
        elif kind is None:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "a message has none of the parts of a request or an answer")

    def half_closed(self) -> None:
        """End the call."""
        self._stream.finish()

    def lost(self) -> None:
        """Do nothing: nothing is counted."""

    def _answer(self, *, has_body: bool) -> None:
        body, self._waits = b"".join(self._waits or ()), None
        if not self._endpoints:
            text = b"no ready endpoint of the pool is both named by the request and allowed by the gateway\n"
            self._stream.send(messages.immediate(503, [(b"content-type", b"text/plain")], text))
            return
        echo = (ECHO, f"{SERVED}:{self._endpoints.partition(',')[0]}".encode())
        self._stream.send(messages.picked(self._endpoints, (), (echo,)))
        if has_body:
            for part in messages.request_body(body, end=True):
                self._stream.send(part)


def choose(pool: tuple[PooledPod, ...], selection: bytes, allowed: frozenset[str] | None) -> list[str]:
    """Return the endpoints of the pool that a request may be sent to.

    Args:
        pool: its endpoints.
        selection: the test header; empty for any.
        allowed: the endpoints of the gateway; None for any.
    """
    named = {part for item in selection.decode("latin-1").split(",") if (part := item.strip())}
    limits = [limit for limit in (named or None, allowed) if limit is not None]
    return [
        pooled_pod.address
        for pooled_pod in pool
        if all(pooled_pod.host in limit or pooled_pod.address in limit for limit in limits)
    ]


def labels(pool: object) -> str:
    """Return the selector of an InferencePool, as the API server takes it.

    Raises:
        PoolError: it has none.
    """
    match pool:
        case {"spec": {"selector": {"matchLabels": dict(wanted)}}} if wanted:
            return ",".join(f"{key}={value}" for key, value in wanted.items())
        case _:
            raise PoolError("the InferencePool has no spec.selector.matchLabels")


def members(pool: object, pods: object) -> tuple[PooledPod, ...]:
    """Return the endpoints of an InferencePool: each target port of each pod that is ready and does not leave.

    Raises:
        PoolError: it is no InferencePool, or they are no pods.
    """
    match pool, pods:
        case {"spec": {"targetPorts": list(targets)}}, {"items": list(items)}:
            ports = [
                target["number"]
                for target in targets
                if isinstance(target, dict) and isinstance(target.get("number"), int)
            ]
            hosts = sorted(host for item in items if (host := _ready_host(item)))
            return tuple(PooledPod(host, _address(host, port)) for host in hosts for port in ports)
        case _:
            raise PoolError("the InferencePool has no spec.targetPorts, or what the API server lists are no pods")


def _ready_host(pod: object) -> str:
    """Return the address of a pod that is ready and does not leave, else nothing."""
    match pod:
        case {"metadata": {"deletionTimestamp": _}}:
            return ""
        case {"status": {"podIP": str(host), "conditions": list(conditions)}}:
            ready = any(
                isinstance(condition, dict) and condition.get("type") == "Ready" and condition.get("status") == "True"
                for condition in conditions
            )
            return host if ready and _is_address(host) else ""
        case _:
            return ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
