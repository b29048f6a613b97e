"""What a gateway does, over gRPC."""

import json
import os
import queue
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

grpc = pytest.importorskip("grpc", reason="NO GRPC HERE: install grpcio and xds-protos")
external = pytest.importorskip("envoy.service.ext_proc.v3.external_processor_pb2")

DESTINATION = "x-gateway-destination-endpoint"
METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
FULL_DUPLEX = 4
SECONDS = float(os.environ.get("EPP_SECONDS", "5"))


def pytest_configure(config: pytest.Config) -> None:
    """Name the suite's marker."""
    config.addinivalue_line("markers", "optional: the protocol leaves it to the picker")


@dataclass
class Subject:
    """The picker under test, and what it serves."""

    address: str
    path: str
    body: bytes
    endpoints: frozenset[str]
    channel: object = field(repr=False)


@pytest.fixture(scope="session")
def subject() -> Iterator[Subject]:
    """Connect to the picker."""
    address = os.environ.get("EPP_ADDRESS")
    if not address:
        pytest.skip("EPP_ADDRESS is not set: give the host:port of a picker (lab/epp-core/README.md)")
    asked = json.loads(Path(os.environ["EPP_REQUESTS"]).read_text())
    options = [("grpc.use_local_subchannel_pool", 1)]
    if os.environ.get("EPP_TLS") == "1":
        host, _, port = address.rpartition(":")
        pem = ssl.get_server_certificate((host, int(port)))
        credentials = grpc.ssl_channel_credentials(pem.encode())
        channel = grpc.secure_channel(
            address, credentials, [*options, ("grpc.ssl_target_name_override", "promptgroup-picker")]
        )
    else:
        channel = grpc.insecure_channel(address, options)
    body = json.dumps(asked["body"]).encode()
    yield Subject(address, asked.get("path", "/v1/chat/completions"), body, frozenset(asked["endpoints"]), channel)
    channel.close()


class Request:
    """One request of a client, as a gateway shows it to the picker."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._subset = None
        self._out: queue.Queue = queue.Queue()
        self._in: queue.Queue = queue.Queue()
        process = subject.channel.stream_stream(
            METHOD,
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=external.ProcessingResponse.FromString,
        )
        self.call = process(iter(self._out.get, None))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for message in self.call:
                self._in.put(message)
            self._in.put(None)
        except grpc.RpcError as error:
            self._in.put(error)

    # --- what the gateway says ---

    def send(self, message) -> None:
        """Send any message, or any bytes in the place of one."""
        self._out.put(message)

    def head(
        self,
        *,
        end: bool = False,
        subset=None,
        path: str = "",
        method: str = "POST",
        mode: int = FULL_DUPLEX,
        **more: str,
    ):
        """Send the head of the request."""
        message = external.ProcessingRequest()
        fields = {
            ":method": method,
            ":path": path or self.subject.path,
            ":authority": "epp-core",
            "content-type": "application/json",
        }
        for name, value in (fields | {key.replace("_", "-"): value for key, value in more.items()}).items():
            message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
        message.request_headers.end_of_stream = end
        message.protocol_config.request_body_mode = mode
        message.protocol_config.response_body_mode = mode
        self._subset = subset
        self._hint(message)
        self.send(message)

    def _hint(self, message) -> None:
        """Name the subset: Envoy has the filters' metadata on every message."""
        if self._subset is not None:
            message.metadata_context.filter_metadata["envoy.lb.subset_hint"][f"{DESTINATION}-subset"] = self._subset

    def body(self, data: bytes, *, end: bool = True) -> None:
        """Send a part of the body."""
        message = external.ProcessingRequest()
        message.request_body.body, message.request_body.end_of_stream = data, end
        self._hint(message)
        self.send(message)

    def trailers(self, part: str = "request_trailers") -> None:
        """Send trailers."""
        message = external.ProcessingRequest()
        getattr(message, part).trailers.headers.add(key="x-trailer", raw_value=b"1")
        self.send(message)

    def answer_head(
        self,
        status: int = 200,
        *,
        end: bool = False,
        served: str = "",
        kind: str = "application/json",
        first: bool = False,
    ) -> None:
        """Send the head of an answer; the first message of a stream says how bodies are shown."""
        message = external.ProcessingRequest()
        if first:
            message.protocol_config.request_body_mode = message.protocol_config.response_body_mode = FULL_DUPLEX
        for name, value in ((":status", str(status)), ("content-type", kind)):
            message.response_headers.headers.headers.add(key=name, raw_value=value.encode())
        message.response_headers.end_of_stream = end
        if served:
            message.metadata_context.filter_metadata["envoy.lb"][f"{DESTINATION}-served"] = served
        self.send(message)

    def answer_body(self, data: bytes, *, end: bool = True) -> None:
        """Send a part of the engine's answer."""
        message = external.ProcessingRequest()
        message.response_body.body, message.response_body.end_of_stream = data, end
        self.send(message)

    def whole(self, body: bytes | None = None, **how):
        """Send a head and a body."""
        self.head(**how)
        self.body(self.subject.body if body is None else body)

    def close(self) -> None:
        """Say nothing more."""
        self._out.put(None)

    # --- what the picker says ---

    def next(self):
        """Return the next message; None at the end of the stream, the error if it fails."""
        try:
            return self._in.get(timeout=SECONDS)
        except queue.Empty:
            raise AssertionError(f"the picker said nothing within {SECONDS:g} s") from None

    def silent(self, seconds: float = 0.3) -> bool:
        """Return True if the picker says nothing for a while."""
        try:
            self._in.put(self._in.get(timeout=seconds))
        except queue.Empty:
            return True
        return False

    def parts(self, kind: str) -> list:
        """Return the parts of a body, up to the one that ends it."""
        found = []
        while not found or not found[-1].end_of_stream:
            message = self.next()
            assert message is not None, f"the stream ended within {kind}"
            assert message.WhichOneof("response") == kind, message
            mutation = getattr(message, kind).response.body_mutation
            assert mutation.WhichOneof("mutation") == "streamed_response", "full duplex needs streamed_response"
            found.append(mutation.streamed_response)
        return found


@pytest.fixture
def request_(subject: Subject) -> Iterator[Request]:
    """Open a stream."""
    found = Request(subject)
    yield found
    found.call.cancel()


@pytest.fixture
def requests(subject: Subject) -> Iterator[object]:
    """Open streams, as many as are asked for."""
    opened: list[Request] = []

    def another() -> Request:
        opened.append(Request(subject))
        return opened[-1]

    yield another
    for each in opened:
        each.call.cancel()


def named(message) -> list[str]:
    """Return the endpoints that a message names, after a look at its form."""
    assert message is not None
    assert not isinstance(message, grpc.RpcError), message
    assert message.WhichOneof("response") == "request_headers", message
    options = message.request_headers.response.header_mutation.set_headers
    values = [
        each.header.raw_value.decode() or each.header.value
        for each in options
        if each.header.key.lower() == DESTINATION
    ]
    assert len(values) == 1, f"{DESTINATION} is set {len(values)} times"
    return [each.strip() for each in values[0].split(",")]
