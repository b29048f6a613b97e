"""The test mode of the Inference Extension's conformance tests: a request names its own endpoint.

It does what the reference picker does in the same tests, so that they can be run with this one in its place. Requests
are not routed by any table.
"""

from promptgroup_picker.extproc import messages
from promptgroup_picker.http2.connection import Stream
from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus

SELECTION = b"test-epp-endpoint-selection"
"""Header with addresses, with or without a port, that the choice is limited to."""
ECHO = "X-Echo-Set-Header"
"""Header by which the tests' engine is told a header of its answer."""
TOLD = "x-conformance-test-served-endpoint"
PORT = 3000
"""Port of the tests' engine, where neither request nor gateway names one."""


class ConformanceCall:
    """A request and its answer."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._endpoints = ""
        self._waits: list[bytes] | None = None
        """The body so far; None once the request was answered."""

    def message(self, data: bytes) -> None:
        """Take a message of the gateway.

        Raises:
            GrpcError: it is none of the protocol.
        """
        message = messages.read(data)
        kind = message.WhichOneof("request")
        if kind == "request_headers":
            found = messages.fields(message.request_headers.headers)
            self._endpoints = ",".join(choose(found.get(SELECTION, b""), messages.subset(message.metadata_context)))
            self._waits = []
            if message.request_headers.end_of_stream:
                self._answer(has_body=False)
        elif kind == "request_body" and self._waits is not None:
            self._waits.append(message.request_body.body)
            if message.request_body.end_of_stream:
                self._answer(has_body=True)
        elif kind == "response_headers":
            served = messages.served(message)
            self._stream.send(messages.response_headers(((TOLD, served),) if served else ()))
        elif kind == "response_body":
            part = message.response_body
            for each in messages.response_body(part.body, end=part.end_of_stream):
                self._stream.send(each)
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
            text = b"no endpoint is both named by the request and allowed by the gateway\n"
            self._stream.send(messages.immediate(503, [(b"content-type", b"text/plain")], text))
            return
        echo = (ECHO, f"{TOLD}:{self._endpoints.partition(',')[0]}")
        self._stream.send(messages.picked(self._endpoints, (), (echo,)))
        if has_body:
            for part in messages.request_body(body, end=True):
                self._stream.send(part)


def choose(selection: bytes, allowed: frozenset[str] | None) -> list[str]:
    """Return the endpoints, in order.

    Args:
        selection: the test header.
        allowed: the endpoints of the gateway; None for any.
    """
    named = [part for each in selection.decode("latin-1").split(",") if (part := each.strip())]
    if not named:
        return sorted(allowed or ())[:1]
    found = []
    for each in named:
        if allowed is None or each in allowed:
            found.append(each if _has_port(each) else f"{each}:{PORT}")
        else:
            found += sorted(one for one in allowed if one.rpartition(":")[0] == each)
    return found


def _has_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and (host.count(":") == 0 or host.endswith("]"))
