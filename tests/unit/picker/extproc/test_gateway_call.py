import pytest

from promptgroup_contract.table import SlotState
from promptgroup_picker.extproc import messages
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from support.gatewaycalls import CHAT, in_flight, refusal, shown
from support.grpcclient import header_map
from support.tables import group, revision, slot, table


def test_nobody_ready_is_503_and_says_when_to_come_back():
    nobody = table(group("support", revision(slots=(slot(0, SlotState.DRAINING),))))
    request = shown(served=nobody)
    request.head()
    status, code, answer = refusal(request.body(CHAT))
    assert (status, code) == (503, "no_replica")
    assert {each.header.key for each in answer.headers.set_headers} >= {"retry-after", "content-type"}


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


@pytest.mark.parametrize("room", [True, False])
def test_a_large_part_of_an_answer_is_counted_while_it_comes(room):
    request = shown(max_body=1000)
    request.head(answer=messages.MODE_BUFFERED)
    request.body(CHAT)
    request.answer_head()
    if not room:
        request.picker.bodies.limit = 100_000
    request.begin_message(300_000)
    assert request.picker.bodies.used == (300_000 if room else 0)
    assert bool(request._client.server.streams.open) is room
    request.reset()
    assert request.picker.bodies.used == 0
    assert in_flight(request) == 0


def test_an_answer_to_what_was_refused_changes_nothing():
    request = shown()
    request.head(_path="/nothing", end=True)
    assert len(request.answer_head(404)) == 1
    assert len(request.answer_body(b"x")) == 1
    assert in_flight(request) == 0


@pytest.mark.parametrize("mode", [messages.MODE_STREAMED, messages.MODE_BUFFERED, messages.MODE_FULL_DUPLEX])
def test_an_answer_without_a_request_is_given_back_as_it_is(mode):
    """A filter before the picker has answered: the picker is shown that alone."""
    request = shown()
    head = header_map(ProcessingRequest(), "response_headers", {":status": "403"}, end=False)
    head.protocol_config.response_body_mode = mode
    (first,) = request.show(head)
    assert not first.response_headers.response.header_mutation.set_headers
    (part,) = request.answer_body(b"denied", end=False)
    given_back = part.response_body.response.body_mutation.streamed_response.body
    assert given_back == (b"denied" if mode == messages.MODE_FULL_DUPLEX else b"")
    assert [each.WhichOneof("response") for each in request.trailers("response_trailers")] == ["response_trailers"]
    assert not request.picker.open
    (end,) = request.close()
    assert request._client.fields(end)["grpc-status"] == "0"


@pytest.mark.parametrize("mode", [messages.MODE_NONE, messages.MODE_STREAMED], ids=["not shown", "copied"])
def test_where_answers_are_not_given_back_the_header_says_it(mode):
    request = shown()
    request.head(answer=mode, x_promptgroup_diagnostics="")
    request.body(CHAT)
    (head,) = request.answer_head()
    mutation = head.response_headers.response.header_mutation
    assert ("x-promptgroup-cache-miss", b"none;forecast") in [
        (each.header.key, each.header.raw_value) for each in mutation.set_headers
    ]
