"""The messages are Envoy's: the same numbers, types and labels, as the gRPC authors' own stubs have them."""

import pytest

from promptgroup_picker.stubs import ext_proc_pb2

external = pytest.importorskip(
    "envoy.service.ext_proc.v3.external_processor_pb2", reason="NO STUBS OF ENVOY HERE: run `uv sync --group envoy`"
)
base = pytest.importorskip("envoy.config.core.v3.base_pb2")
status = pytest.importorskip("envoy.type.v3.http_status_pb2")

OURS = ext_proc_pb2.DESCRIPTOR.message_types_by_name
HEALTH = {"HealthCheckRequest": {1: "service"}, "HealthCheckResponse": {1: "status"}}
"""grpc/health/v1/health.proto."""


def theirs(name):
    for module in (external, base, status):
        if name in module.DESCRIPTOR.message_types_by_name:
            return module.DESCRIPTOR.message_types_by_name[name]
    raise LookupError(name)


@pytest.mark.parametrize("name", sorted(OURS.keys() - HEALTH.keys()))
def test_a_message_is_a_part_of_envoys(name):
    known = {field.name: field for field in theirs(name).fields}
    for field in OURS[name].fields:
        other = known[field.name]
        # an enum is a number on the wire
        kind = other.TYPE_INT32 if other.type == other.TYPE_ENUM else other.type
        assert (field.number, field.type, field.is_repeated) == (other.number, kind, other.is_repeated), field.name


def test_health_checks_have_the_numbers_of_their_api():
    for name, fields in HEALTH.items():
        assert {field.number: field.name for field in OURS[name].fields} == fields
