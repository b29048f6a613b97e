"""A collector of spans: takes OTLP over HTTP, and decodes it with OpenTelemetry's own messages."""

import contextlib
import threading
from collections.abc import AsyncIterator, Sequence

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from support.fakeengine import Behaviour, Call, FakeEngine, engines


class Collector:
    """Everything that was sent."""

    def __init__(self) -> None:
        self.exports: list[ExportTraceServiceRequest] = []
        self.tries = 0
        self.server: FakeEngine

    async def take(self, call: Call) -> None:
        self.tries += 1
        assert call.request.head.path == b"/v1/traces"
        self.exports.append(ExportTraceServiceRequest.FromString(bytes(call.request.body)))
        call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")

    @property
    def spans(self) -> list[Span]:
        return spans(self.exports)

    @property
    def resource(self) -> dict[str, object]:
        return resource(self.exports)


def spans(exports: Sequence[ExportTraceServiceRequest]) -> list[Span]:
    """All spans that were sent."""
    return [
        span
        for export in exports
        for resource in export.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def resource(exports: Sequence[ExportTraceServiceRequest]) -> dict[str, object]:
    """Who sent them."""
    return told(exports[0].resource_spans[0].resource.attributes)


def told(attributes) -> dict[str, object]:
    """Attributes, as plain values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def wait_for_threads() -> None:
    """Wait until the SDK's threads have ended: one that still sends would be in the next test's way."""
    for each in threading.enumerate():
        if each.name.startswith(("OtelBatch", "last-spans")):
            each.join(20)
            assert not each.is_alive(), each


@contextlib.asynccontextmanager
async def collecting(
    monkeypatch: pytest.MonkeyPatch, behave: Behaviour | None = None, **variables: str
) -> AsyncIterator[Collector]:
    """A collector that OpenTelemetry's variables name, which takes what comes or behaves as it is told."""
    found = Collector()
    async with engines(1, behave or found.take) as [found.server]:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{found.server.address}",
            "OTEL_TRACES_SAMPLER": "parentbased_always_on",
            "OTEL_BSP_SCHEDULE_DELAY": "20",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            **variables,
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield found
