"""Sends spans to a collector by OTLP, with OpenTelemetry's SDK in a thread of its own.

OpenTelemetry's variables (OTEL_*) turn it on and configure it; without an endpoint nothing of the SDK is imported. The
event loop only puts a record into the SDK's queue: one that is full, because the collector is slow or away, drops it.
The thread that sends them makes the SDK's spans of the records. Names and values of these are bounded where they are
made, so that the SDK's limits, which would cost a span more than all else, are not applied.
"""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from promptgroup_contract.otel import NOT_INSTALLED, spans_wanted
from promptgroup_router.base.logs import fields
from promptgroup_router.features.tracing.sampling import Sampling, sampling
from promptgroup_router.features.tracing.tracer import EndedSpan, Tracer
from promptgroup_router.http11.trace_context import TraceContext

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
        self.tracer = Tracer(chosen, random.randbytes, self._send)

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
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import Event, ReadableSpan  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags  # noqa: PLC0415

    named = Resource({SERVICE_NAME: service}).merge(OTELResourceDetector().detect())
    resource = Resource.create(named.attributes)
    scope = InstrumentationScope("promptgroup")
    sampled = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))

    def context(trace_context: TraceContext, *, remote: bool) -> SpanContext:
        return SpanContext(trace_context.trace, trace_context.span, remote, TraceFlags(trace_context.flags))

    class Record(ReadableSpan):
        """A span of the SDK's queue that is not made yet."""

        def __init__(self, ended: EndedSpan) -> None:
            self.ended = ended

        @property
        def context(self) -> SpanContext:
            """Return what the queue takes the span by: whether it is sampled."""
            return sampled

        def made(self) -> ReadableSpan:
            """Return the span."""
            ended = self.ended
            return ReadableSpan(
                ended.name,
                context(ended.context, remote=False),
                context(ended.parent, remote=True) if ended.parent is not None else None,
                resource,
                ended.attributes,
                [Event(event.name, event.attributes, event.at) for event in ended.events],
                kind=SpanKind.SERVER,
                status=Status(StatusCode.ERROR, ended.error) if ended.error else Status(StatusCode.UNSET),
                start_time=ended.began,
                end_time=ended.ended,
                instrumentation_scope=scope,
            )

    class Exporter(OTLPSpanExporter):
        """Makes the spans before it sends them."""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return super().export([span.made() if isinstance(span, Record) else span for span in spans])

    processor = BatchSpanProcessor(Exporter())

    def send(ended: EndedSpan, /) -> None:
        processor.on_end(Record(ended))

    return send, processor.shutdown
