"""The call of a gateway for one request: what it has shown, and what it is answered."""

from collections.abc import Callable
from typing import Protocol

from promptgroup_picker.extproc import messages
from promptgroup_picker.extproc.call_body import CallBody
from promptgroup_picker.extproc.call_head import CallHead
from promptgroup_picker.extproc.large_bodies import LargeBodies
from promptgroup_picker.extproc.messages import MODE_BUFFERED, MODE_FULL_DUPLEX, MODE_STREAMED
from promptgroup_picker.extproc.request_side import RequestSide
from promptgroup_picker.http2.grpc_messages import GrpcStatus
from promptgroup_picker.http2.stream import Stream
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.record import refused_at_once
from promptgroup_router.http11.http1 import Headers
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.routing.state import RouterState

OVERLOADED = "overloaded"
_SHED = 429


class OpenCall(Protocol):
    """A request that has not been decided, and may wait too long."""

    def is_late(self, now: float) -> bool:
        """Return True if the request takes too long to arrive, or to be parsed."""

    def time_out_reading(self) -> None:
        """Refuse a request that has not arrived whole, or was not parsed in time."""

    def look(self) -> None:
        """Decide the request, or wait on."""


class PickerState:
    """The things that all requests of a picker share."""

    def __init__(
        self,
        state: RouterState,
        bodies: BodyBudget,
        clock: Callable[[], float],
        *,
        max_body: int = 2**24,
        endpoints: int = 1,
        large_bodies: LargeBodies | None = None,
    ) -> None:
        self.state = state
        self.bodies = bodies
        self.clock = clock
        self.max_body = max_body
        self.endpoints = endpoints
        """Most endpoints that a gateway gets for one request."""
        self.large_bodies = large_bodies
        """Reads large bodies elsewhere; without it they are read here, and all others wait meanwhile."""
        self.open: dict[GatewayCall, OpenCall] = {}
        self.awaiting: dict[GatewayCall, ApiError] = {}
        """Requests that wait for the keys of an issuer, in the order of arrival."""
        state.features.on_keys.append(self._look)
        self.reports_served = False
        """True once a gateway has reported the endpoint that served a request: such a gateway reports it for each."""

    def record_served(self) -> None:
        """Record that gateways report the endpoint that served a request."""
        self.reports_served = True

    def tick(self, now: float) -> None:
        """Refuse requests whose body does not arrive; called every second."""
        for call in [item for item in self.open.values() if item.is_late(now)]:
            call.time_out_reading()

    def _look(self) -> None:
        """Decide requests whose sender can be identified now: keys were read, or could not be."""
        for call in list(self.awaiting):
            self.open[call].look()


class GatewayCall:
    """A call that is open until its answer has ended, or the gateway shows nothing more."""

    __slots__ = ("_picker", "_stream", "answer_mode", "body", "decided", "head", "over", "side")

    def __init__(self, picker: PickerState, stream: Stream) -> None:
        self._picker = picker
        self._stream = stream
        self.head = CallHead(stream.peer)
        self.body = CallBody(picker.bodies, picker.max_body)
        self.side = RequestSide()
        self.answer_mode = MODE_FULL_DUPLEX
        """The way in which the gateway shows the body of the answer."""
        self.decided = False
        """True once the picker has chosen the request's endpoints, or has refused it."""
        self.over = False
        """True once nothing of the request is left to account for."""

    def agree(self, message: ProcessingRequest) -> None:
        """Learn from the first message of a stream how the gateway shows bodies."""
        if message.HasField("protocol_config"):
            self.side.mode = message.protocol_config.request_body_mode
            self.answer_mode = message.protocol_config.response_body_mode

    def send(self, message: bytes) -> None:
        """Send a message to the gateway."""
        self._stream.send(message)

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the stream, behind all messages."""
        self._stream.finish(status, text)

    def decide(self) -> None:
        """Record that the request needs no decision any more."""
        self.decided = True

    def pass_on(self, kind: str, message: ProcessingRequest) -> None:
        """Leave a message of an answer as it is: the answer is the gateway's own."""
        if kind == "response_headers":
            self.send(messages.response_headers(()))
        elif kind == "response_trailers":
            self.send(messages.UNCHANGED[kind])
        else:
            self.send_body(message.response_body.body, end=message.response_body.end_of_stream)

    def send_body(self, data: bytes, *, end: bool) -> None:
        """Send a part of the answer's body, as far as the gateway lets the picker change it."""
        if self.answer_mode in (MODE_STREAMED, MODE_BUFFERED):
            self.send(messages.UNCHANGED["response_body"])
            return
        for part in messages.response_body(data, end=end):
            self.send(part)

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer the request in place of a replica."""
        self.decided = True
        self.send(messages.immediate(status, headers, body))
        self.close()

    def refuse(self, error: ApiError) -> None:
        """Answer a request that has no route with an error, and account for it."""
        head, error = self.head, shed(error)
        status, headers, body = head.refusal(error)
        refused_at_once(
            self._picker.state, error, status, request_id=head.request_id, path=head.endpoint.path,
            headers=head.fields, now=self._picker.clock(),
        )  # fmt: skip
        self.answer(status, headers, body)

    def close(self) -> None:
        """Release the memory: nothing of the request is left to account for."""
        self.over = True
        self.body.drop()
        self._picker.open.pop(self, None)
        self._picker.awaiting.pop(self, None)


def shed(error: ApiError) -> ApiError:
    """Return an error as gateways expect it: the status of an overload is 429."""
    if error.code != OVERLOADED:
        return error
    return ApiError(_SHED, str(error), param=error.param, code=error.code, retry_after=error.retry_after)
