import pytest

from promptgroup_contract.otel import spans_wanted

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none"} | ENDPOINT, False),
        ({"OTEL_SDK_DISABLED": "TRUE"} | ENDPOINT, False),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"} | ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
    ],
)
def test_the_variables_turn_spans_on_and_off(variables, on):
    assert spans_wanted(variables) is on


def test_the_signals_own_variable_goes_first():
    own = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert spans_wanted(own | ENDPOINT)


def test_another_protocol_is_named():
    with pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc', expected 'http/protobuf'"):
        spans_wanted({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"} | ENDPOINT)
