"""Spans of passes and of their steps, sent to a collector by OpenTelemetry's SDK in a thread of its own.

OpenTelemetry's variables (OTEL_*) turn them on and configure them; without an endpoint nothing of the SDK is imported.
A span has the group's name and how its pass ended. It has no error messages: they quote what users wrote.
"""

import logging
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from promptgroup_contract.otel import NOT_INSTALLED, spans_wanted

logger = logging.getLogger(__name__)

SERVICE = "promptgroup-operator"
CLOSE_SECONDS = 5.0
"""Time for the last spans to be sent when the process ends."""


class PassSpans:
    """The spans of one process; none, unless its variables ask for them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._provider, self._tracer = _sdk(environment)

    def over(self, namespace: str, name: str) -> AbstractContextManager[Any]:
        """Return a context that is a pass over a group."""
        return self._span("reconcile", {"k8s.namespace.name": namespace, "promptgroup.group": f"{namespace}/{name}"})

    def step(self, name: str) -> AbstractContextManager[Any]:
        """Return a context that is a step of the pass that this thread runs."""
        return self._span(name, {})

    def failed(self, kind: str) -> None:
        """Say of the pass that this thread runs that it failed."""
        if self._tracer is None:
            return
        from opentelemetry.trace import Status, StatusCode, get_current_span  # noqa: PLC0415

        span = get_current_span()
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR))

    def close(self) -> None:
        """Send the spans that are left, unless that takes too long."""
        if self._provider is not None:
            # a daemon: a collector that hangs must not keep the process
            last = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
            last.start()
            last.join(CLOSE_SECONDS)

    def _span(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Any]:
        if self._tracer is None:
            return nullcontext()
        return self._tracer.start_as_current_span(  # type: ignore[no-any-return]
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        )


def _sdk(environment: Mapping[str, str]) -> tuple[Any, Any]:
    """Return the provider of spans and its tracer; None for both where there are none."""
    try:
        if not spans_wanted(environment):
            return None, None
        # half a second and 20 MiB, for those alone who export spans
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ValueError as error:
        logger.warning("no spans are exported: %s", error)
        return None, None
    except ImportError as error:
        logger.warning("%s (%s)", NOT_INSTALLED, error)
        return None, None
    named = Resource({SERVICE_NAME: SERVICE}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=Resource.create(named.attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider, provider.get_tracer("promptgroup")
