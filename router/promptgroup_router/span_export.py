"""Sends spans to a collector by OTLP, with OpenTelemetry's SDK in a thread of its own.

OpenTelemetry's variables (OTEL_*) turn it on and configure it; without an endpoint nothing of the SDK is imported. The
event loop only puts a span into the SDK's queue: one that is full, because the collector is slow or away, drops spans.
"""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from promptgroup_router.base.logs import fields
from promptgroup_router.contract.otel import NOT_INSTALLED, spans_wanted
from promptgroup_router.tracing.sampling import Sampling, sampling
from promptgroup_router.tracing.trace_context import TraceContext
from promptgroup_router.tracing.tracer import EndedSpan, Tracer

log = logging.getLogger("promptgroup.router")

CLOSE_SECONDS = 5.0
"""Time for the last spans to be sent when the process ends."""


class SpanExport:
    """The SDK, and the tracer that feeds it."""

    def __init__(self, chosen: Sampling, service: str) -> None:
        """Start the thread.

        Raises:
            ImportError: the SDK is not installed.
        """
        self._send, self._shut_down = _sdk(service)
        self.tracer = Tracer(chosen, random.getrandbits, self._send)

    async def close(self) -> None:
        """Send the spans that are left, unless that takes too long."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def run() -> None:
            self._shut_down()
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(ended.set)

        # a daemon: a collector that hangs must not keep the process
        threading.Thread(target=run, name="last-spans", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await ended.wait()


def span_export(environment: Mapping[str, str], service: str) -> SpanExport | None:
    """Return what exports spans; None where the variables do not ask for it, or for what is not there.

    Args:
        environment: the variables of the process.
        service: its name, unless OTEL_SERVICE_NAME has another.
    """
    try:
        if not spans_wanted(environment):
            return None
    except ValueError as error:
        log.warning("no spans are exported", extra=fields(problem=error))
        return None
    try:
        chosen = sampling(environment)
    except ValueError as error:
        chosen = sampling({})
        log.warning("one of a hundred requests is sampled", extra=fields(problem=error))
    try:
        export = SpanExport(chosen, service)
    except ImportError as error:
        log.warning(NOT_INSTALLED, extra=fields(problem=error))
        return None
    log.info("spans are exported", extra=fields(ratio=chosen.ratio, callers_decide=chosen.parent_based))
    return export


class _Send(Protocol):
    def __call__(self, ended: EndedSpan, /) -> None: ...


def _sdk(service: str) -> tuple[_Send, Callable[[], None]]:
    """Return what gives a span to the SDK, and what shuts it down."""
    # half a second and 20 MiB, for those alone who export spans
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.id_generator import IdGenerator  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON  # noqa: PLC0415
    from opentelemetry.trace import (  # noqa: PLC0415
        NonRecordingSpan,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        set_span_in_context,
    )

    class GivenIds(IdGenerator):
        """Returns the ids that a request has already: its engine was told of them."""

        given = TraceContext(0, 0, 0)

        def generate_trace_id(self) -> int:
            return self.given.trace

        def generate_span_id(self) -> int:
            return self.given.span

    ids = GivenIds()
    named = Resource({SERVICE_NAME: service}).merge(OTELResourceDetector().detect())
    resource = Resource.create(named.attributes)
    provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=ids)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("promptgroup")

    def send(ended: EndedSpan, /) -> None:
        ids.given = ended.context
        around = Context()
        if ended.parent is not None:
            parent = SpanContext(ended.parent.trace, ended.parent.span, True, TraceFlags(ended.parent.flags))
            around = set_span_in_context(NonRecordingSpan(parent), around)
        span = tracer.start_span(
            ended.name, around, SpanKind.SERVER, attributes=ended.attributes, start_time=ended.began
        )
        for event in ended.events:
            span.add_event(event.name, event.attributes, event.at)
        if ended.error:
            span.set_status(Status(StatusCode.ERROR, ended.error))
        span.end(ended.ended)

    return send, provider.shutdown
