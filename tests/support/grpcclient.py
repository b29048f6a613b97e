"""The gateway's side of HTTP/2 and of the endpoint-picker protocol, in memory: frames in, messages out."""

from collections.abc import Mapping

from hpack import Decoder, Encoder

from promptgroup_picker.extproc.gateway_call import PickerState
from promptgroup_picker.extproc.processing import Processing
from promptgroup_picker.http2 import frames
from promptgroup_picker.http2.connection import ServerConnection
from promptgroup_picker.http2.frames import FrameReader, FrameType
from promptgroup_picker.http2.grpc_messages import MessageReader, framed
from promptgroup_picker.http2.stream import Call, Stream
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest, ProcessingResponse
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.routing.state import RouterState

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


class Noted:
    """A call that remembers what happened to it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.messages: list[bytes] = []
        self.events: list[str] = []

    def begun(self, size: int) -> None:
        self.events.append(f"{size} bytes begun")

    def message(self, data: bytes) -> None:
        self.messages.append(data)

    def half_closed(self) -> None:
        self.events.append("half closed")

    def lost(self) -> None:
        self.events.append("lost")


class Client:
    """A client of one connection."""

    def __init__(self, opener=None, most: int = 2**22) -> None:
        self.calls: list[Call] = []
        self.wakes = 0
        self.faults: list[Exception] = []
        """The picker's own faults."""
        self.server = ServerConnection(opener or self._open, most, self._wake, self.faults.append)
        self._encoder = Encoder()
        self._decoder = Decoder()
        self._reader = FrameReader()
        self._reader.begun = True
        self.frames: list[frames.Frame] = []
        """All that the server has sent."""
        self.server.receive(frames.PREFACE + frames.settings({}))
        self.hear()

    def _wake(self) -> None:
        self.wakes += 1

    def _open(self, path: str, stream: Stream) -> Call | None:
        if not path.startswith("/"):
            return None
        call = Noted(stream)
        self.calls.append(call)
        return call

    def hear(self) -> list[frames.Frame]:
        """Read what the server sends."""
        new = list(self._reader.feed(b"".join(self.server.take())))
        self.frames += new
        return new

    def send(self, *data: bytes) -> list[frames.Frame]:
        self.server.receive(b"".join(data))
        return self.hear()

    def head(self, number: int, path: str = PROCESS, flags: int = frames.END_HEADERS) -> bytes:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), ("te", "trailers")]
        return frames.frame(FrameType.HEADERS, flags, number, self._encoder.encode(fields))

    def data(self, number: int, message: bytes, flags: int = 0) -> bytes:
        return frames.frame(FrameType.DATA, flags, number, framed(message))

    def fields(self, frame: frames.Frame) -> dict[str, str]:
        return dict(self._decoder.decode(frame.payload))

    def messages(self, number: int) -> list[bytes]:
        """Return the messages that the server sent on a stream."""
        reader, found = MessageReader(2**30), []
        for each in self.frames:
            if each.stream == number and each.type == FrameType.DATA:
                found += reader.feed(each.payload)
        return found


CALLS = 200


def kinds(found):
    return [FrameType(each.type).name for each in found]


def waiting(size=100):
    """A client with many calls whose answers wait for the connection's window."""
    client = Client()
    client.send(*(client.head(1 + 2 * number) for number in range(CALLS)))
    client.server._sender._window = 0
    for call in client.calls:
        call.stream.send(b"x" * size)
    client.hear()
    return client


def echoing(window):
    """A client with one call that gives back what it gets; `window` is what the client lets it send."""
    client = Client()
    client.send(frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: window}), client.head(1))
    (call,) = client.calls
    call.message = call.stream.send
    return client


def header_map(message: ProcessingRequest, part: str, values: Mapping[str, str], *, end: bool) -> ProcessingRequest:
    head = getattr(message, part)
    for name, value in values.items():
        head.headers.headers.add(key=name, raw_value=value.encode())
    head.end_of_stream = end
    return message


class OneRequest:
    """A request that a test shows to a picker, message by message."""

    def __init__(self, state: RouterState, opener=None, *, now: float = 100.0, **limits: int) -> None:
        self.now = now
        self.picker = PickerState(state, BodyBudget(2**24), lambda: self.now, **limits)
        self._client = Client(opener or (lambda _, stream: Processing(self.picker, stream)))
        self._number = -1
        self._seen = 0
        self.begin()

    def begin(self) -> None:
        """Open another stream; what is shown from here on is of a new request."""
        self._number += 2
        self._seen = 0
        self._client.send(self._client.head(self._number))

    def show(self, message: ProcessingRequest) -> list[ProcessingResponse]:
        self._client.send(self._client.data(self._number, message.SerializeToString()))
        return self.heard()

    def begin_message(self, size: int) -> list[ProcessingResponse]:
        """Send the beginning of a message of so many bytes."""
        self._client.send(frames.frame(FrameType.DATA, 0, self._number, b"\0" + size.to_bytes(4, "big")))
        return self.heard()

    def heard(self) -> list[ProcessingResponse]:
        """Return what the picker has said since the last call."""
        self._client.hear()
        found = self._client.messages(self._number)[self._seen :]
        self._seen += len(found)
        return [ProcessingResponse.FromString(each) for each in found]

    def head(self, *, end: bool = False, mode: int = 4, answer: int = 4, subset=None, **values: str):
        fields = {":method": "POST", ":path": "/v1/chat/completions"}
        fields |= {name.replace("_", "-") if name[0] != "_" else f":{name[1:]}": each for name, each in values.items()}
        message = header_map(ProcessingRequest(), "request_headers", fields, end=end)
        message.protocol_config.request_body_mode = mode
        message.protocol_config.response_body_mode = answer
        if subset is not None:
            hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
            hint["x-gateway-destination-endpoint-subset"] = subset
        return self.show(message)

    def body(self, data: bytes, *, end: bool = True):
        message = ProcessingRequest()
        message.request_body.body = data
        message.request_body.end_of_stream = end
        return self.show(message)

    def trailers(self, part: str = "request_trailers"):
        message = ProcessingRequest()
        getattr(message, part).SetInParent()
        return self.show(message)

    def answer_head(self, status: int = 200, *, end: bool = False, served: str = "", upstream: str = "", stream=False):
        kind = "text/event-stream" if stream else "application/json"
        fields = {":status": str(status), "content-type": kind}
        message = header_map(ProcessingRequest(), "response_headers", fields, end=end)
        if served:
            message.metadata_context.filter_metadata["envoy.lb"]["x-gateway-destination-endpoint-served"] = served
        if upstream:
            message.attributes["envoy.filters.http.ext_proc"]["upstream.address"] = upstream
        return self.show(message)

    def answer_body(self, data: bytes, *, end: bool = True):
        message = ProcessingRequest()
        message.response_body.body = data
        message.response_body.end_of_stream = end
        return self.show(message)

    def reset(self) -> None:
        """End the stream as Envoy does."""
        self._client.send(frames.reset(self._number, frames.ErrorCode.INTERNAL_ERROR))

    def close(self) -> list[frames.Frame]:
        """End the gateway's side of the stream."""
        return self._client.send(frames.frame(FrameType.DATA, frames.END_STREAM, self._number))


def endpoints_of(response: ProcessingResponse) -> str:
    """Return what a picker named, in header and metadata alike."""
    found = {
        each.header.key: each.header.raw_value.decode()
        for each in response.request_headers.response.header_mutation.set_headers
    }
    named = found["x-gateway-destination-endpoint"]
    assert response.dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint"] == named
    return named
