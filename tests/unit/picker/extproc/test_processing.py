import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from promptgroup_contract.caller_rules import CachedTokens, CallerRules
from promptgroup_contract.table import Sleep
from promptgroup_picker.extproc import messages, processing
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.base.errors import ApiError
from promptgroup_router.rings.building import build_index
from support.gatewaycalls import (
    ADDRESSES,
    CHAT,
    EARLY,
    USAGE,
    exposition,
    in_flight,
    refusal,
    shown,
    traced,
)
from support.grpcclient import endpoints_of
from support.tables import group, revision, table
from support.wire import table_of


def test_headers_come_before_the_body_and_only_once_the_body_is_whole():
    request = shown()
    assert request.head() == []
    assert request.body(CHAT[:10], end=False) == []
    responses = request.body(CHAT[10:])
    assert [each.WhichOneof("response") for each in responses] == ["request_headers", "request_body"]
    assert endpoints_of(responses[0]) in ADDRESSES
    part = responses[1].request_body.response.body_mutation.streamed_response
    assert (part.body, part.end_of_stream) == (CHAT, True)
    assert in_flight(request) == 1


def test_the_last_part_may_be_empty_and_may_come_twice():
    request = shown()
    request.head()
    request.body(CHAT, end=False)
    assert len(request.body(b"")) == 2
    assert request.body(b"") == []
    assert in_flight(request) == 1


def test_trailers_end_a_body_and_are_passed_on_behind_it():
    request = shown()
    request.head()
    request.body(CHAT, end=False)
    responses = request.trailers()
    assert [each.WhichOneof("response") for each in responses] == [
        "request_headers", "request_body", "request_trailers",
    ]  # fmt: skip
    assert not responses[1].request_body.response.body_mutation.streamed_response.end_of_stream


def test_trailers_behind_a_body_that_has_ended():
    request = shown()
    request.head()
    request.body(CHAT)
    assert [each.WhichOneof("response") for each in request.trailers()] == ["request_trailers"]


def test_a_gateway_that_holds_the_body_gets_its_choice_with_it():
    request = shown()
    assert [each.WhichOneof("response") for each in request.head(mode=2)] == ["request_headers"]
    (response,) = request.body(CHAT)
    named = response.request_body.response.header_mutation.set_headers[0].header.raw_value.decode()
    assert named == response.dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint"]
    assert not response.request_body.response.HasField("body_mutation")  # as it was


def test_a_held_body_is_decided_before_its_trailers_come():
    """The gateway holds them until the body is answered."""
    request = shown()
    request.head(mode=messages.MODE_BUFFERED)
    (response,) = request.body(CHAT, end=False)
    assert response.WhichOneof("response") == "request_body"
    assert [each.WhichOneof("response") for each in request.trailers()] == ["request_trailers"]
    assert in_flight(request) == 1


def test_trailers_without_a_body_that_is_held_are_refused():
    request = shown()
    request.head(mode=messages.MODE_BUFFERED)
    assert refusal(request.trailers())[:2] == (400, "trailers_alone")
    assert not request.picker.open


def test_a_gateway_that_shows_no_body_is_told_so():
    status, code, _ = refusal(shown().head(mode=0))
    assert (status, code) == (500, "not_shown")


@pytest.mark.parametrize("subset", [["10.0.0.2:8000"], "10.0.0.2:8000", ["10.0.0.2"]])
def test_the_gateways_subset_limits_the_choice(subset):
    for number in range(5):
        request = shown(endpoints=3)
        request.head(subset=subset, x_session_id=f"user-{number}")
        assert endpoints_of(request.body(CHAT)[0]) == "10.0.0.2:8000"


ASLEEP = table(group("support", revision(slots=0), sleep=Sleep(300, "2026-11-03T11:00:00Z", start=40)))


def test_a_request_is_held_until_its_group_has_a_replica():
    request = shown(served=ASLEEP)
    request.head()
    assert request.body(CHAT) == []
    state = request.picker.state
    assert state.metrics.wake_requests.values == {("chat/support",): 1}
    state.install(table(group("support", revision(slots=1), sleep=Sleep(300))), "file", request.now)
    state.expire_waiting(request.now)
    assert [each.WhichOneof("response") for each in request.heard()] == ["request_headers", "request_body"]


def test_it_is_not_held_where_the_gateway_allows_no_replica_but_those_that_there_were():
    request = shown(served=ASLEEP)
    request.head(subset=["10.0.0.1:8000"])
    status, code, _ = refusal(request.body(CHAT))
    assert (status, code) == (503, "starting")
    assert request.picker.state.metrics.wake_requests.values == {("chat/support",): 1}


@pytest.mark.parametrize("subset", [[], "10.9.9.9:1"])
def test_a_subset_without_a_ready_replica_is_503(subset):
    request = shown()
    request.head(subset=subset)
    assert refusal(request.body(CHAT))[:2] == (503, "no_replica")


def test_models_are_answered_by_the_picker():
    (response,) = shown().head(_method="GET", _path="/v1/models", end=True)
    assert json.loads(response.immediate_response.body)["object"] == "list"


def test_a_large_message_is_counted_before_it_comes():
    """A gateway that holds a body sends it in one message."""
    request = shown(max_body=400_000)
    request.head(mode=messages.MODE_BUFFERED)
    before = request.picker.bodies.used
    request.begin_message(300_000)
    assert request.picker.bodies.used == before + 300_000
    request.reset()
    assert request.picker.bodies.used == 0
    assert not request.picker.open


def test_a_held_body_that_is_too_large_is_refused_before_it_comes():
    request = shown(max_body=400_000)
    request.head(mode=messages.MODE_BUFFERED)
    assert refusal(request.begin_message(400_001 + messages.MAX_BESIDE))[:2] == (413, "body_too_large")
    assert not request._client.server.streams.open
    assert not request.picker.open
    request.begin()
    request.picker.bodies.limit = 100_000
    request.head(mode=messages.MODE_BUFFERED)
    assert refusal(request.begin_message(300_000))[:2] == (503, "body_memory")
    assert request.picker.bodies.used == 0


def test_a_held_body_that_is_a_little_too_large_is_refused_when_it_has_come():
    request = shown(max_body=400_000)
    request.head(mode=messages.MODE_BUFFERED)
    assert refusal(request.body(b"x" * 400_001))[:2] == (413, "body_too_large")
    assert request.picker.bodies.used == 0


def test_a_first_message_is_never_large():
    request = shown()
    request.begin_message(300_000)
    assert not request._client.server.streams.open
    assert not request.picker.open


@pytest.mark.interpreted
def test_a_large_message_for_a_request_that_waits_does_not_leave_it_in_the_queue(monkeypatch):
    request = shown()
    monkeypatch.setattr(request.picker.state.balancer, "pick", lambda *_: None)
    request.head()
    request.body(CHAT)
    request.picker.bodies.limit = 100_000
    request.begin_message(300_000)
    assert not request.picker.state.admission_queue
    assert not request.picker.open


def test_a_request_that_does_not_come_whole_is_refused_in_time():
    request = shown()
    request.head()
    request.body(b"{", end=False)
    request.picker.tick(request.now + processing.READ_SECONDS)
    assert request.heard() == []
    request.picker.tick(request.now + processing.READ_SECONDS + 1)
    assert request.heard()[0].immediate_response.status.code == 408
    assert not request.picker.open


def test_a_stream_on_which_nothing_comes_is_ended_in_time():
    request = shown()
    request.picker.tick(request.now + processing.READ_SECONDS + 1)
    assert not request.picker.open
    assert not request._client.server.streams.open


@pytest.mark.parametrize("start", ["body", "trailers", "nothing", "twice", "behind the answer"])
def test_messages_out_of_order_end_the_call(start):
    request = shown()
    match start:
        case "twice":
            request.head()
            request.head()
        case "nothing":
            request.head()
            request.show(ProcessingRequest())
        case "behind the answer":
            request.answer_head()
            request.head()
        case "trailers":
            request.trailers()
        case _:
            request.body(b"x")
    assert not request._client.server.streams.open
    assert not request.picker.open


@pytest.mark.interpreted
@pytest.mark.parametrize("part", EARLY)
@pytest.mark.parametrize("mode", [messages.MODE_BUFFERED, messages.MODE_FULL_DUPLEX])
def test_an_answer_while_the_request_waits_takes_it_out_of_the_queue(part, mode, monkeypatch):
    request = shown()
    state = request.picker.state
    with monkeypatch.context() as full:
        full.setattr(state.balancer, "pick", lambda *_: None)
        request.head(mode=mode)
        request.body(CHAT)
        assert len(EARLY[part](request)) == 1
    assert not state.admission_queue
    state.admit_waiting(request.now)
    state.expire_waiting(request.now + 9)
    assert request.heard() == []
    assert in_flight(request) == 0
    assert request.picker.bodies.used == 0
    request.close()
    assert not request._client.server.streams.open


@pytest.mark.parametrize("part", EARLY)
def test_an_answer_while_the_body_comes_ends_the_request(part):
    request = shown()
    request.head()
    request.body(CHAT[:10], end=False)
    assert len(EARLY[part](request)) == 1
    assert request.body(CHAT[10:]) == []
    request.picker.tick(request.now + processing.READ_SECONDS + 1)
    assert request.heard() == []
    assert not request.picker.open
    assert request.picker.bodies.used == 0


def test_a_group_that_hides_what_was_cached():
    rules = CallerRules(cached_tokens=CachedTokens.HIDDEN)
    served = table(group("support", callers=rules))
    request = shown(served=served)
    request.head(answer=1)
    assert refusal(request.body(CHAT))[:2] == (500, "not_shown")
    request.begin()
    request.head(accept_encoding="gzip")
    head = request.body(CHAT)[0].request_headers.response.header_mutation
    assert "accept-encoding" in head.remove_headers
    request.answer_head()
    (first,) = request.answer_body(USAGE[:20], end=False)
    (last,) = request.answer_body(USAGE[20:])
    seen = b"".join(each.response_body.response.body_mutation.streamed_response.body for each in (first, last))
    assert "30" not in seen.decode()
    assert json.loads(seen)["usage"]["prompt_tokens"] == 40
    assert 'cached_tokens_total{group="chat/support"} 30' in exposition(request)


def test_a_request_that_is_refused_at_once_is_a_span_too():
    request, ended = traced(1.0)
    request.head()
    request.body(b"no JSON")
    assert ended[0].attributes["http.response.status_code"] == 400


@pytest.mark.interpreted
def test_a_subset_may_leave_the_last_resort_alone():
    candidates = build_index(table_of(*ADDRESSES)).names["support"].revisions[0].candidates
    first, second, _ = (candidates.only(each) for each in candidates.ready)
    route = SimpleNamespace(candidates=replace(first, last_resort=second), features=())
    led = processing._within(route, frozenset((second.members[0].address,)), 0.0)
    assert (led.candidates.members, led.candidates.last_resort.members) == ((), second.members)
    with pytest.raises(ApiError):
        processing._within(route, frozenset(("10.9.9.9:1",)), 0.0)
