"""OpenTelemetry's variables, as far as router, picker and operator read them by themselves."""

from collections.abc import Mapping

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
"""The protocol of OTLP that is spoken; OpenTelemetry's default."""
NOT_INSTALLED = "no spans are exported: install promptgroup[tracing]"


def spans_wanted(environment: Mapping[str, str]) -> bool:
    """Return True if the variables ask for spans.

    Raises:
        ValueError: they ask for another protocol; the message names the variable, the value and what is expected.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter != "otlp" and (exporter or not any(environment.get(name) for name in ENDPOINTS)):
        return False
    for name in PROTOCOLS:
        if given := environment.get(name):
            if given != PROTOCOL:
                raise ValueError(f"{name} is {given!r}, expected {PROTOCOL!r}, on the collector's port 4318")
            break
    return True
