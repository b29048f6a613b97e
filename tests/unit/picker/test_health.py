import pytest

from promptgroup_picker.health import CHECK, HealthCheck
from promptgroup_picker.stubs.ext_proc_pb2 import HealthCheckRequest, HealthCheckResponse
from promptgroup_router.decision.composition import router_state
from support.grpcclient import Client


def asked(state, service):
    client = Client(lambda path, stream: HealthCheck(state, stream) if path == CHECK else None)
    client.send(client.head(1, CHECK), client.data(1, HealthCheckRequest(service=service).SerializeToString()))
    found = [HealthCheckResponse.FromString(each).status for each in client.messages(1)]
    assert not client.server.streams.open
    return found


@pytest.mark.parametrize(
    "service", ["", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension"]
)
def test_a_picker_is_ready_once_it_has_a_table_until_it_drains(service):
    state = router_state()
    assert asked(state, service) == [2]
    state.loaded = True
    assert asked(state, service) == [1]
    state.draining = True
    assert asked(state, service) == [2]


def test_it_lives_without_a_table():
    assert asked(router_state(), "liveness") == [1]


def test_a_large_message_is_no_check():
    client = Client(lambda _, stream: HealthCheck(router_state(), stream))
    client.send(client.head(1, CHECK), client.data(1, b"x" * 200_000))
    assert not client.server.streams.open
    assert client.server.held == 0


def test_a_service_that_there_is_not():
    assert asked(router_state(), "other") == []
