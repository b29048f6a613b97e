import pytest

from promptgroup_picker.extproc.conformance import ConformanceCall, choose
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.routing.state import RouterState
from support.grpcclient import OneRequest, endpoints_of


@pytest.mark.parametrize(
    ("selection", "allowed", "found"),
    [
        (b"10.0.0.1", None, ["10.0.0.1:3000"]),
        (b"10.0.0.1:80, 10.0.0.2", None, ["10.0.0.1:80", "10.0.0.2:3000"]),
        (b"10.0.0.1", frozenset({"10.0.0.1:3000", "10.0.0.1:3002"}), ["10.0.0.1:3000", "10.0.0.1:3002"]),
        (b"10.0.0.1:3002", frozenset({"10.0.0.1:3000", "10.0.0.1:3002"}), ["10.0.0.1:3002"]),
        (b"10.0.0.1", frozenset({"10.0.0.1"}), ["10.0.0.1:3000"]),
        (b"10.0.0.9", frozenset({"10.0.0.1:3000"}), []),
        (b"", frozenset({"10.0.0.2:3000", "10.0.0.1:3000"}), ["10.0.0.1:3000"]),
        (b"", None, []),
        (b"::1", None, ["::1:3000"]),
    ],
)
def test_the_test_header_chooses_within_what_the_gateway_allows(selection, allowed, found):
    assert choose(selection, allowed) == found


def one_test() -> OneRequest:
    return OneRequest(RouterState(), lambda _, stream: ConformanceCall(stream))


def test_a_test_is_answered_as_by_the_reference_picker():
    request = one_test()
    assert request.head(test_epp_endpoint_selection="10.0.0.1") == []
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
    assert not request._client.server.streams


def test_without_an_endpoint_a_test_gets_503():
    (answer,) = one_test().head(end=True)
    assert answer.immediate_response.status.code == 503


def test_what_is_no_message_ends_the_call():
    request = one_test()
    request.show(ProcessingRequest())
    assert not request._client.server.streams
