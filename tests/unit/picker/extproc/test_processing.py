import json
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from promptgroup_contract.caller_rules import CachedTokens, CallerRules
from promptgroup_contract.table import ModelAlias, Sleep, SlotState
from promptgroup_picker.extproc import messages, processing
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.tracing.sampling import Sampling
from promptgroup_router.features.tracing.tracer import Tracer
from promptgroup_router.rings.building import build_index
from support.grpcclient import OneRequest, endpoints_of, header_map
from support.tables import group, revision, slot, table
from support.wire import chat, table_of

ADDRESSES = ("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
CHAT = json.dumps(chat()).encode()
USAGE = b'{"usage":{"prompt_tokens":40,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":30}}}'


def shown(*addresses: str, served=None, **limits: int) -> OneRequest:
    state = router_state()
    state.install(served or table_of(*(addresses or ADDRESSES)), "file", 0.0)
    return OneRequest(state, **limits)


def in_flight(request: OneRequest) -> int:
    return sum(request.picker.state.balancer.loads.values())


def refusal(responses):
    (response,) = responses
    answer = response.immediate_response
    return answer.status.code, json.loads(answer.body)["error"]["code"], answer


def exposition(request: OneRequest) -> str:
    return request.picker.state.exposition(request.now, 0)


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
    request.head(mode=processing.MODE_BUFFERED)
    (response,) = request.body(CHAT, end=False)
    assert response.WhichOneof("response") == "request_body"
    assert [each.WhichOneof("response") for each in request.trailers()] == ["request_trailers"]
    assert in_flight(request) == 1


def test_trailers_without_a_body_that_is_held_are_refused():
    request = shown()
    request.head(mode=processing.MODE_BUFFERED)
    assert refusal(request.trailers())[:2] == (400, "trailers_alone")
    assert not request.picker.open


def test_a_gateway_that_shows_no_body_is_told_so():
    status, code, _ = refusal(shown().head(mode=0))
    assert (status, code) == (500, "not_shown")


def test_the_session_stays_and_fallbacks_follow_the_ring():
    request = shown(endpoints=3)
    named = set()
    for _ in range(5):
        request.head(x_session_id="user-1")
        named.add(endpoints_of(request.body(CHAT)[0]))
        request.answer_head()
        request.answer_body(USAGE)
        request.begin()
    (found,) = named
    assert sorted(found.split(",")) == sorted(ADDRESSES)


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


def test_nobody_ready_is_503_and_says_when_to_come_back():
    nobody = table(group("support", revision(slots=(slot(0, SlotState.DRAINING),))))
    request = shown(served=nobody)
    request.head()
    status, code, answer = refusal(request.body(CHAT))
    assert (status, code) == (503, "no_replica")
    assert {each.header.key for each in answer.headers.set_headers} >= {"retry-after", "content-type"}


def test_a_request_without_room_waits_and_is_shed_with_429(monkeypatch):
    request = shown()
    balancer = request.picker.state.balancer
    with monkeypatch.context() as full:
        full.setattr(balancer, "pick", lambda *_: None)
        request.head()
        assert request.body(CHAT) == []
        assert len(request.picker.state.admission_queue) == 1
        request.picker.state.expire_waiting(request.now + 9)
    status, code, answer = refusal(request.heard())
    assert (status, code) == (429, "overloaded")
    assert "retry-after" in {each.header.key for each in answer.headers.set_headers}


def test_a_request_that_waited_is_sent_once_there_is_room(monkeypatch):
    request = shown()
    with monkeypatch.context() as full:
        full.setattr(request.picker.state.balancer, "pick", lambda *_: None)
        request.head()
        request.body(CHAT)
    request.picker.state.admit_waiting(request.now)
    assert [each.WhichOneof("response") for each in request.heard()] == ["request_headers", "request_body"]


def test_a_client_that_leaves_while_its_request_waits(monkeypatch):
    request = shown()
    monkeypatch.setattr(request.picker.state.balancer, "pick", lambda *_: None)
    request.head()
    request.body(CHAT)
    request.reset()
    assert not request.picker.state.admission_queue
    assert not request.picker.open


def test_models_are_answered_by_the_picker():
    (response,) = shown().head(_method="GET", _path="/v1/models", end=True)
    assert json.loads(response.immediate_response.body)["object"] == "list"


def test_errors_have_the_form_of_their_api():
    request = shown()
    request.head(_path="/v1/messages?beta=true")
    (response,) = request.body(b"{")
    assert json.loads(response.immediate_response.body)["type"] == "error"


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_an_engine_repeats_of_the_request_is_no_usage(size):
    echo = b',"metadata":{"usage":{"prompt_tokens":0,"completion_tokens":0}},"user":"%b"}' % (b"x" * size)
    request = shown()
    request.head()
    request.body(CHAT)
    request.answer_head()
    request.answer_body(USAGE[:-1] + echo)
    assert 'prompt_tokens_total{group="chat/support"} 40' in exposition(request)


def test_usage_closes_the_books_and_the_session_is_remembered():
    request = shown()
    request.head(x_session_id="user-1")
    request.body(CHAT)
    (head,) = request.answer_head()
    told = {each.header.key for each in head.response_headers.response.header_mutation.set_headers}
    assert told == {"x-promptgroup-served-by", "x-promptgroup-revision"}
    assert request.picker.bodies.used == 0
    (part,) = request.answer_body(USAGE)
    assert part.response_body.response.body_mutation.streamed_response.body == USAGE
    assert 'prompt_tokens_total{group="chat/support"} 40' in exposition(request)
    assert in_flight(request) == 0
    assert not request.picker.open
    request.reset()  # Envoy's end of every stream
    assert 'by="client"' not in exposition(request)


def test_the_first_token_is_that_of_the_answer_not_of_its_opening():
    request = shown()
    request.head()
    request.body(json.dumps(chat(stream=True)).encode())
    request.answer_head(stream=True)
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    request.answer_body(role, end=False)
    assert "time_to_first_byte_seconds_count" not in exposition(request)
    request.now += 2.0
    request.answer_body(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', end=False)
    assert 'time_to_first_byte_seconds_sum{group="chat/support"} 2' in exposition(request)


def test_an_answer_that_is_no_stream_begins_with_its_first_byte():
    request = shown()
    request.head()
    request.body(CHAT)
    request.answer_head()
    request.answer_body(USAGE[:10], end=False)
    assert 'time_to_first_byte_seconds_count{group="chat/support"} 1' in exposition(request)


@pytest.mark.parametrize(("text", "status"), [(b"200", 200), (b"", 0), (b"20", 0), (b"abc", 0), (b"2000", 0)])
def test_a_status_has_three_digits(text, status):
    assert processing._status(text) == status


@pytest.mark.parametrize("mode", [1, 2])
def test_an_answer_that_is_only_copied_is_not_given_back(mode):
    request = shown()
    request.head(answer=mode)
    request.body(CHAT)
    request.answer_head()
    (part,) = request.answer_body(USAGE)
    assert part.WhichOneof("response") == "response_body"
    assert not part.response_body.response.HasField("body_mutation")
    assert in_flight(request) == 0


def test_trailers_end_an_answer():
    request = shown()
    request.head()
    request.body(CHAT)
    request.answer_head()
    request.answer_body(USAGE, end=False)
    assert [each.WhichOneof("response") for each in request.trailers("response_trailers")] == ["response_trailers"]
    assert in_flight(request) == 0


def test_a_client_that_leaves_releases_the_load():
    request = shown()
    request.head()
    request.body(CHAT)
    request.answer_head()
    request.reset()
    assert in_flight(request) == 0
    assert 'answers_cut_total{group="chat/support",by="client"} 1' in exposition(request)
    assert request.picker.bodies.used == 0


def test_a_gateway_that_shows_no_answer_ends_well():
    request = shown()
    request.head(answer=0)
    request.body(CHAT)
    assert in_flight(request) == 1
    request.close()
    assert in_flight(request) == 0
    assert 'by="client"' not in exposition(request)


def test_a_fallback_that_served_is_in_the_books_and_the_first_choice_is_ejected():
    request = shown(endpoints=2)
    request.head(x_session_id="user-1")
    first, second = endpoints_of(request.body(CHAT)[0]).split(",")
    (head,) = request.answer_head(upstream=second)
    served = {
        each.header.key: each.header.raw_value for each in head.response_headers.response.header_mutation.set_headers
    }
    assert served["x-promptgroup-served-by"].endswith(b"/%d" % ADDRESSES.index(second))
    assert in_flight(request) == 1
    request.answer_body(USAGE)
    assert in_flight(request) == 0
    assert "ejections_total 1" in exposition(request)
    request.begin()
    request.head(x_session_id="user-1")
    assert first not in endpoints_of(request.body(CHAT)[0])


def test_an_answer_of_the_gateways_own_ejects_where_it_tells_who_serves():
    request = shown()
    request.head()
    request.body(CHAT)
    request.answer_head(503)
    request.answer_body(b"no healthy upstream")
    assert "ejections_total 1" not in exposition(request)
    for served in (ADDRESSES[0], ""):
        request.begin()
        request.head()
        named = endpoints_of(request.body(CHAT)[0])
        request.answer_head(200 if served else 503, served=named if served else "")
        request.answer_body(b"x")
    assert "ejections_total 1" in exposition(request)
    assert in_flight(request) == 0


def test_bodies_are_bounded_alone_and_together():
    request = shown(max_body=100)
    request.head()
    assert refusal(request.body(b"x" * 101, end=False))[:2] == (413, "body_too_large")
    assert request.body(b"x") == []
    request = shown()
    request.picker.bodies.limit = 1000
    request.head()
    assert refusal(request.body(b"x" * 999, end=False))[:2] == (503, "body_memory")
    assert request.picker.bodies.used == 0


def test_a_large_message_is_counted_before_it_comes():
    """A gateway that holds a body sends it in one message."""
    request = shown(max_body=400_000)
    request.head(mode=processing.MODE_BUFFERED)
    before = request.picker.bodies.used
    request.begin_message(300_000)
    assert request.picker.bodies.used == before + 300_000
    request.reset()
    assert request.picker.bodies.used == 0
    assert not request.picker.open


def test_a_held_body_that_is_too_large_is_refused_before_it_comes():
    request = shown(max_body=400_000)
    request.head(mode=processing.MODE_BUFFERED)
    assert refusal(request.begin_message(400_001 + messages.MAX_BESIDE))[:2] == (413, "body_too_large")
    assert not request._client.server.streams
    assert not request.picker.open
    request.begin()
    request.picker.bodies.limit = 100_000
    request.head(mode=processing.MODE_BUFFERED)
    assert refusal(request.begin_message(300_000))[:2] == (503, "body_memory")
    assert request.picker.bodies.used == 0


def test_a_held_body_that_is_a_little_too_large_is_refused_when_it_has_come():
    request = shown(max_body=400_000)
    request.head(mode=processing.MODE_BUFFERED)
    assert refusal(request.body(b"x" * 400_001))[:2] == (413, "body_too_large")
    assert request.picker.bodies.used == 0


@pytest.mark.parametrize("room", [True, False])
def test_a_large_part_of_an_answer_is_counted_while_it_comes(room):
    request = shown(max_body=1000)
    request.head(answer=processing.MODE_BUFFERED)
    request.body(CHAT)
    request.answer_head()
    if not room:
        request.picker.bodies.limit = 100_000
    request.begin_message(300_000)
    assert request.picker.bodies.used == (300_000 if room else 0)
    assert bool(request._client.server.streams) is room
    request.reset()
    assert request.picker.bodies.used == 0
    assert in_flight(request) == 0


def test_a_first_message_is_never_large():
    request = shown()
    request.begin_message(300_000)
    assert not request._client.server.streams
    assert not request.picker.open


def test_a_large_message_for_a_request_that_waits_does_not_leave_it_in_the_queue(monkeypatch):
    request = shown()
    monkeypatch.setattr(request.picker.state.balancer, "pick", lambda *_: None)
    request.head()
    request.body(CHAT)
    request.picker.bodies.limit = 100_000
    request.begin_message(300_000)
    assert not request.picker.state.admission_queue
    assert not request.picker.open


def test_header_fields_are_bounded_and_counted_with_the_bodies():
    request = shown()
    assert request.head(**{f"x_{number}": "1" for number in range(processing.MAX_FIELDS - 2)}) == []
    request = shown()
    found = request.head(**{f"x_{number}": "1" for number in range(processing.MAX_FIELDS)})
    assert refusal(found)[:2] == (431, "headers_too_large")
    assert not request.picker.open
    request = shown()
    request.head(x_long="1" * 10_000)
    assert request.picker.bodies.used > 10_000
    request.reset()
    assert request.picker.bodies.used == 0
    request.picker.bodies.limit = 1000
    request.begin()
    assert refusal(request.head(x_long="1" * 1000))[:2] == (503, "body_memory")


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
    assert not request._client.server.streams


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
    assert not request._client.server.streams
    assert not request.picker.open


def test_an_answer_to_what_was_refused_changes_nothing():
    request = shown()
    request.head(_path="/nothing", end=True)
    assert len(request.answer_head(404)) == 1
    assert len(request.answer_body(b"x")) == 1
    assert in_flight(request) == 0


@pytest.mark.parametrize("mode", [processing.MODE_STREAMED, processing.MODE_BUFFERED, processing.MODE_FULL_DUPLEX])
def test_an_answer_without_a_request_is_given_back_as_it_is(mode):
    """A filter before the picker has answered: the picker is shown that alone."""
    request = shown()
    head = header_map(ProcessingRequest(), "response_headers", {":status": "403"}, end=False)
    head.protocol_config.response_body_mode = mode
    (first,) = request.show(head)
    assert not first.response_headers.response.header_mutation.set_headers
    (part,) = request.answer_body(b"denied", end=False)
    given_back = part.response_body.response.body_mutation.streamed_response.body
    assert given_back == (b"denied" if mode == processing.MODE_FULL_DUPLEX else b"")
    assert [each.WhichOneof("response") for each in request.trailers("response_trailers")] == ["response_trailers"]
    assert not request.picker.open
    (end,) = request.close()
    assert request._client.fields(end)["grpc-status"] == "0"


EARLY = {
    "head": lambda request: request.answer_head(504),
    "body": lambda request: request.answer_body(b"timeout"),
    "trailers": lambda request: request.trailers("response_trailers"),
}


@pytest.mark.parametrize("part", EARLY)
@pytest.mark.parametrize("mode", [processing.MODE_BUFFERED, processing.MODE_FULL_DUPLEX])
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
    assert not request._client.server.streams


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


def test_what_the_operator_alone_may_say_is_taken_away():
    request = shown()
    request.head(x_promptgroup_warmup="1")
    head = request.body(CHAT)[0].request_headers.response.header_mutation
    assert "x-promptgroup-warmup" in head.remove_headers


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


def test_an_engine_that_asks_for_a_key_gets_it_and_none_of_the_clients():
    slots = (replace(slot(0), credential="keys/engine"), slot(1))
    request = shown(served=table(group("support", revision(slots=slots))), endpoints=2)
    request.picker.state.features.authenticator.keyring.credential = lambda namespace, name: (
        f"{namespace} {name}".encode()
    )
    request.head(authorization="Bearer mine", subset=["10.0.0.1:8000"])
    head = request.body(CHAT)[0].request_headers.response.header_mutation
    told = {each.header.key: each.header.raw_value for each in head.set_headers}
    assert told["authorization"] == b"Bearer chat keys/engine"
    request.begin()
    request.head()
    assert "," not in endpoints_of(request.body(CHAT)[0])


@pytest.mark.parametrize("mode", [processing.MODE_FULL_DUPLEX, processing.MODE_BUFFERED])
def test_a_query_reaches_the_engine_only_where_something_may_read_it(mode):
    for query in ("?beta=true", "?priority=-9&stream=true", "?"):
        request = shown()
        request.head(mode=mode, _path=f"/v1/chat/completions{query}")
        response = request.body(CHAT)[0]
        part = response.request_body if mode == processing.MODE_BUFFERED else response.request_headers
        told = {each.header.key: each.header.raw_value for each in part.response.header_mutation.set_headers}
        assert told[":path"] == b"/v1/chat/completions"


def test_a_target_that_is_the_clients_own_is_not_written_again():
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/plugin?x=1", CHAT)):
        request = shown()
        request.picker.state.pass_paths = frozenset((b"/v1/plugin",))
        request.head(_path=path)
        assert ":path" not in set_by(request.body(body)[0])


def test_a_stored_response_is_read_with_the_parameters_of_its_api():
    request = shown()
    request.head(_path="/v1/responses")
    responses = request.body(json.dumps({"model": "llama", "input": "hi"}).encode())
    name = json.loads(responses[1].request_body.response.body_mutation.streamed_response.body)["request_id"]
    for query, kept in (("beta=1&stream=true&after=é", "?stream=true&after=é"), ("beta=1", "")):
        messages._picked.cache_clear()
        request.begin()
        (response,) = request.head(end=True, _method="GET", _path=f"/v1/responses/{name}?{query}")
        assert set_by(response)[":path"] == f"/v1/responses/{name}{kept}"
        assert messages._picked.cache_info().currsize == 0  # whose path has an id would push out the others'


def test_a_response_that_only_one_replica_can_hold_has_no_fallback():
    request = shown(endpoints=3)
    request.head(_path="/v1/responses")
    responses = request.body(json.dumps({"model": "llama", "input": "hi"}).encode())
    assert "," not in endpoints_of(responses[0])
    body = responses[1].request_body.response.body_mutation.streamed_response.body
    assert json.loads(body)["request_id"].startswith("resp_pg_")


CLIENT_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"


def traced(ratio: float):
    ended, request = [], shown()
    request.picker.state.features.tracer = Tracer(Sampling(ratio, parent_based=True), random.randbytes, ended.append)
    return request, ended


def set_by(response) -> dict[str, str]:
    mutation = response.request_headers.response.header_mutation
    return {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}


def test_a_sampled_request_is_a_span_and_the_engine_is_told_of_it():
    request, ended = traced(0.0)
    request.head(traceparent=f"{CLIENT_TRACE}1", x_request_id="r1")
    told = set_by(request.body(CHAT)[0])["traceparent"]
    request.answer_head()
    request.answer_body(USAGE)
    [span] = ended
    assert told == span.context.header().decode()
    assert span.parent.header().decode() == f"{CLIENT_TRACE}1"
    assert span.attributes["gen_ai.usage.cache_read.input_tokens"] == 30
    assert (span.attributes["http.request.id"], span.name) == ("r1", "chat llama")
    assert [each.name for each in span.events] == ["sent", "first byte"]


@pytest.mark.parametrize(
    "header", [{}, {"traceparent": f"{CLIENT_TRACE}0"}], ids=["no trace", "one that is not sampled"]
)
def test_a_request_that_is_not_sampled_keeps_its_header_and_what_is_kept_for_others(header):
    request, ended = traced(0.0)
    request.head(**header)
    first = request.body(CHAT)[0]
    assert "traceparent" not in set_by(first)
    request.begin()
    known = messages._picked.cache_info().hits
    request.head(**header)
    request.body(CHAT)
    assert messages._picked.cache_info().hits == known + 1
    assert ended == []


def test_a_request_that_is_refused_at_once_is_a_span_too():
    request, ended = traced(1.0)
    request.head()
    request.body(b"no JSON")
    assert ended[0].attributes["http.response.status_code"] == 400


def test_a_client_behind_a_gateway_is_told_why_its_prompt_was_not_found():
    request = shown()

    def told(text: str, previous: str | None, usage: str = ""):
        body = {"model": "llama", "max_tokens": 4, "messages": [{"role": "user", "content": text}]}
        request.head(_path="/v1/messages")
        sent = request.body(json.dumps(body | {"diagnostics": {"previous_message_id": previous}}).encode())[1]
        assert b"diagnostics" not in sent.request_body.response.body_mutation.streamed_response.body
        (head,) = request.answer_head()
        mutation = head.response_headers.response.header_mutation
        header = {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}
        (answer,) = request.answer_body(b'{"id":"msg_1","type":"message","content":[]%b}' % usage.encode())
        request.begin()
        shown = json.loads(answer.response_body.response.body_mutation.streamed_response.body)
        return shown["diagnostics"]["cache_miss_reason"], header["x-promptgroup-cache-miss"]

    assert told("of the harbour " * 50, None) == (None, "none;forecast")
    nothing_cached = ',"usage":{"input_tokens":767,"cache_read_input_tokens":0,"output_tokens":1}'
    reason, _ = told("of the harbour " * 50, "msg_1", nothing_cached)
    assert reason["cache_missed_input_tokens"] > 60
    reason, header = told("of the garden " * 50, "msg_1")
    assert reason["type"] == "messages_changed"
    assert header.startswith("messages_changed;tokens=")


@pytest.mark.parametrize("mode", [processing.MODE_NONE, processing.MODE_STREAMED], ids=["not shown", "copied"])
def test_where_answers_are_not_given_back_the_header_says_it(mode):
    request = shown()
    request.head(answer=mode, x_promptgroup_diagnostics="")
    request.body(CHAT)
    (head,) = request.answer_head()
    mutation = head.response_headers.response.header_mutation
    assert ("x-promptgroup-cache-miss", b"none;forecast") in [
        (each.header.key, each.header.raw_value) for each in mutation.set_headers
    ]


@pytest.mark.parametrize("mode", ["streamed", "held"])
def test_a_request_by_an_alias_gets_a_body_that_names_the_model(mode):
    (served,) = table_of(*ADDRESSES).groups
    request = shown(served=table(replace(served, aliases=(ModelAlias("gpt"),))))
    request.head(**({"mode": 2} if mode == "held" else {}))
    *_, response = request.body(json.dumps(chat(model="gpt")).encode())
    changed = response.request_body.response.body_mutation
    assert json.loads(changed.body or changed.streamed_response.body) == chat()


@pytest.mark.interpreted
def test_a_subset_may_leave_the_last_resort_alone():
    candidates = build_index(table_of(*ADDRESSES)).names["support"].revisions[0].candidates
    first, second, _ = (candidates.only(each) for each in candidates.ready)
    route = SimpleNamespace(candidates=replace(first, last_resort=second), features=())
    led = processing._within(route, frozenset((second.members[0].address,)), 0.0)
    assert (led.candidates.members, led.candidates.last_resort.members) == ((), second.members)
    with pytest.raises(ApiError):
        processing._within(route, frozenset(("10.9.9.9:1",)), 0.0)
