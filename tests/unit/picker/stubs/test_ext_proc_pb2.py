"""The messages are Envoy's: the same numbers, types and labels, as the gRPC authors' own stubs have them."""

import json
import subprocess

import pytest

from promptgroup_picker.stubs import ext_proc_pb2
from support.envoy import PYTHON, needs_grpc

OURS = ext_proc_pb2.DESCRIPTOR.message_types_by_name
HEALTH = {"HealthCheckRequest": {1: "service"}, "HealthCheckResponse": {1: "status"}}
"""grpc/health/v1/health.proto."""

TOLD = """
import json
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2
from envoy.type.v3 import http_status_pb2

messages = {}
for module in (http_status_pb2, base_pb2, external_processor_pb2):
    for name, message in module.DESCRIPTOR.message_types_by_name.items():
        # an enum is a number on the wire
        kinds = {each: each.TYPE_INT32 if each.type == each.TYPE_ENUM else each.type for each in message.fields}
        messages[name] = {each.name: [each.number, kind, each.is_repeated] for each, kind in kinds.items()}
print(json.dumps(messages))
"""


@pytest.fixture(scope="module")
def theirs():
    done = subprocess.run([PYTHON, "-c", TOLD], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@needs_grpc
@pytest.mark.integration
@pytest.mark.parametrize("name", sorted(OURS.keys() - HEALTH.keys()))
def test_a_message_is_a_part_of_envoys(theirs, name):
    ours = {field.name: [field.number, field.type, field.is_repeated] for field in OURS[name].fields}
    assert ours.items() <= theirs[name].items()


def test_health_checks_have_the_numbers_of_their_api():
    for name, fields in HEALTH.items():
        assert {field.number: field.name for field in OURS[name].fields} == fields
