import pytest

from promptgroup_picker.extproc.conformance import ConformanceCall, Pool, PooledPod, PoolError, choose, labels, members
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.decision.composition import router_state
from support.grpcclient import OneRequest, endpoints_of

POOL = tuple(PooledPod(f"10.0.0.{host}", f"10.0.0.{host}:{port}") for host in (1, 2) for port in (3000, 3002))
FIRST, SECOND = ["10.0.0.1:3000", "10.0.0.1:3002"], ["10.0.0.2:3000", "10.0.0.2:3002"]


@pytest.mark.parametrize(
    ("selection", "allowed", "found"),
    [
        (b"", None, FIRST + SECOND),
        (b"10.0.0.1", None, FIRST),
        (b"10.0.0.1:3002, 10.0.0.2", None, [FIRST[1], *SECOND]),
        (b"10.0.0.1:80", None, []),
        (b"10.0.0.9, 10.0.0.2", None, SECOND),
        (b"10.0.0.1", frozenset({"10.0.0.1:3000", "10.0.0.2:3000"}), FIRST[:1]),
        (b"", frozenset({"10.0.0.2"}), SECOND),
        (b"", frozenset(), []),
    ],
)
def test_the_test_header_chooses_within_the_pool_and_what_the_gateway_allows(selection, allowed, found):
    assert choose(POOL, selection, allowed) == found


def test_requests_take_turns():
    one = Pool(POOL)
    assert [one.pick(b"10.0.0.1", None) for _ in range(3)] == [[FIRST[0]], [FIRST[1]], [FIRST[0]]]
    assert Pool(POOL, endpoints=3).pick(b"", None) == [*FIRST, SECOND[0]]
    assert Pool().pick(b"10.0.0.1", None) == []


def pod(host: object, *, ready: str = "True", **metadata: object) -> dict[str, object]:
    return {"metadata": metadata, "status": {"podIP": host, "conditions": [{"type": "Ready", "status": ready}]}}


def test_members_are_the_ports_of_ready_pods():
    pool = {
        "spec": {
            "selector": {"matchLabels": {"app": "a", "tier": "b"}},
            "targetPorts": [{"number": 80}, {"number": 81}],
        }
    }
    pods = [pod("10.0.0.2"), pod("10.0.0.1"), pod("::1"), pod("10.0.0.3", ready="False")]
    leaves = pod("10.0.0.4", deletionTimestamp="2026-01-01T00:00:00Z")
    strange = [{"status": {"podIP": "10.0.0.5"}}, pod("nowhere"), pod(None), None]
    assert labels(pool) == "app=a,tier=b"
    assert [each.address for each in members(pool, {"items": [*pods, leaves, *strange]})] == [
        "10.0.0.1:80",
        "10.0.0.1:81",
        "10.0.0.2:80",
        "10.0.0.2:81",
        "[::1]:80",
        "[::1]:81",
    ]


@pytest.mark.parametrize("pool", [None, {}, {"spec": {"selector": {"matchLabels": {}}}}, {"spec": {"selector": []}}])
def test_what_is_no_pool_is_said(pool):
    with pytest.raises(PoolError):
        labels(pool)
    with pytest.raises(PoolError):
        members(pool, {"items": []})


def one_test() -> OneRequest:
    return OneRequest(router_state(), lambda _, stream: ConformanceCall(stream, Pool(POOL)))


def test_a_test_is_answered_as_by_the_reference_picker():
    request = one_test()
    assert request.head(test_epp_endpoint_selection="10.0.0.1:3000") == []
    head, body = request.body(b"ping")
    assert endpoints_of(head) == "10.0.0.1:3000"
    told = {
        each.header.key: each.header.raw_value for each in head.request_headers.response.header_mutation.set_headers
    }
    assert told["X-Echo-Set-Header"] == b"x-conformance-test-served-endpoint:10.0.0.1:3000"
    assert body.request_body.response.body_mutation.streamed_response.body == b"ping"
    (answer,) = request.answer_head(served="10.0.0.1:3000")
    (field,) = answer.response_headers.response.header_mutation.set_headers
    assert (field.header.key, field.header.raw_value) == ("x-conformance-test-served-endpoint", b"10.0.0.1:3000")
    assert len(request.answer_body(b"pong")) == 1
    assert len(request.trailers("response_trailers")) == 1
    request.close()
    assert not request._client.server.streams.open


def test_without_an_endpoint_a_test_gets_503():
    (answer,) = one_test().head(end=True, test_epp_endpoint_selection="10.0.0.9")
    assert answer.immediate_response.status.code == 503


def test_what_is_no_message_ends_the_call():
    request = one_test()
    request.show(ProcessingRequest())
    assert not request._client.server.streams.open
