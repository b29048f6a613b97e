import json
from dataclasses import replace

import pytest

from promptgroup_contract.table import ModelAlias
from promptgroup_picker.extproc import messages, routed_call
from support.gatewaycalls import (
    ADDRESSES,
    CHAT,
    CLIENT_TRACE,
    USAGE,
    exposition,
    in_flight,
    refusal,
    set_by,
    shown,
    traced,
)
from support.grpcclient import endpoints_of
from support.tables import group, revision, slot, table
from support.wire import chat, table_of


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


@pytest.mark.interpreted
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


@pytest.mark.interpreted
def test_a_request_that_waited_is_sent_once_there_is_room(monkeypatch):
    request = shown()
    with monkeypatch.context() as full:
        full.setattr(request.picker.state.balancer, "pick", lambda *_: None)
        request.head()
        request.body(CHAT)
    request.picker.state.admit_waiting(request.now)
    assert [each.WhichOneof("response") for each in request.heard()] == ["request_headers", "request_body"]


@pytest.mark.interpreted
def test_a_client_that_leaves_while_its_request_waits(monkeypatch):
    request = shown()
    monkeypatch.setattr(request.picker.state.balancer, "pick", lambda *_: None)
    request.head()
    request.body(CHAT)
    request.reset()
    assert not request.picker.state.admission_queue
    assert not request.picker.open


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
    assert routed_call._status(text) == status


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


def test_what_the_operator_alone_may_say_is_taken_away():
    request = shown()
    request.head(x_promptgroup_warmup="1")
    head = request.body(CHAT)[0].request_headers.response.header_mutation
    assert "x-promptgroup-warmup" in head.remove_headers


@pytest.mark.interpreted
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


def test_a_response_that_only_one_replica_can_hold_has_no_fallback():
    request = shown(endpoints=3)
    request.head(_path="/v1/responses")
    responses = request.body(json.dumps({"model": "llama", "input": "hi"}).encode())
    assert "," not in endpoints_of(responses[0])
    body = responses[1].request_body.response.body_mutation.streamed_response.body
    assert json.loads(body)["request_id"].startswith("resp_pg_")


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


@pytest.mark.parametrize("mode", ["streamed", "held"])
def test_a_request_by_an_alias_gets_a_body_that_names_the_model(mode):
    (served,) = table_of(*ADDRESSES).groups
    request = shown(served=table(replace(served, aliases=(ModelAlias("gpt"),))))
    request.head(**({"mode": 2} if mode == "held" else {}))
    *_, response = request.body(json.dumps(chat(model="gpt")).encode())
    changed = response.request_body.response.body_mutation
    assert json.loads(changed.body or changed.streamed_response.body) == chat()
