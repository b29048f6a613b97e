"""Answers that an engine breaks off under a status of 200, behind a gateway."""

import json

import pytest

from promptgroup_router.decision.composition import router_state
from support.grpcclient import OneRequest
from support.wire import chat, table_of

FULL_DUPLEX, STREAMED = 4, 1
TOKEN = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
ABORT = b'data: {"choices":[{"delta":{},"finish_reason":"abort"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def shown(mode: int, *, stream: bool) -> OneRequest:
    state = router_state()
    state.install(table_of("10.0.0.1:8000"), "file", 0.0)
    request = OneRequest(state)
    request.head(answer=mode)
    request.body(json.dumps(chat(stream=stream)).encode())
    request.answer_head(stream=stream)
    return request


def counted(request: OneRequest) -> bool:
    told = request.picker.state.exposition(request.now, 0)
    cut = 'answers_cut_total{group="chat/support",by="engine"} 1' in told and "ejections_total 1" in told
    return cut and request.picker.state.balancer.placed.loads == {} and not request.picker.open


def test_a_stream_ends_with_an_error_in_place_of_the_abort():
    request = shown(FULL_DUPLEX, stream=True)
    found = []
    for data, end in ((TOKEN + ABORT[:20], False), (ABORT[20:], False), (DONE, True)):
        (part,) = request.answer_body(data, end=end)
        found.append(part.response_body.response.body_mutation.streamed_response)
    assert found[0].body == TOKEN
    assert json.loads(found[1].body.removeprefix(b"data: "))["error"]["code"] == "answer_cut"
    assert (found[2].body, found[2].end_of_stream) == (b"", True)
    assert counted(request)


ERRORS = {
    "chat": b'data: {"error":{"message":"out of memory","code":500}}\n\n',
    "messages": b'event: error\ndata: {"type":"error","error":{"type":"api_error"}}\n\n',
    "responses": b'event: response.failed\ndata: {"type":"response.failed","response":{"error":{}}}\n\n',
}


@pytest.mark.parametrize("api", ERRORS)
@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED])
def test_an_error_that_the_engine_tells_goes_on_as_it_is_and_is_counted_as_cut(api, mode):
    request = shown(mode, stream=True)
    found = []
    for data, end in ((TOKEN + ERRORS[api][:20], False), (ERRORS[api][20:] + DONE, False), (DONE, True)):
        found += request.answer_body(data, end=end)
    if mode == FULL_DUPLEX:
        bodies = [part.response_body.response.body_mutation.streamed_response.body for part in found]
        assert bodies == [TOKEN, ERRORS[api], b""]
    told = request.picker.state.exposition(request.now, 0)
    assert 'answers_cut_total{group="chat/support",by="engine"} 1' in told
    assert "ejections_total 1" not in told
    assert not request.picker.open


@pytest.mark.parametrize("size", [10, 1000])
def test_an_abort_at_once_is_counted_and_not_tried_again(size):
    request = shown(FULL_DUPLEX, stream=True)
    content = ABORT + DONE
    for at in range(0, len(content), size):
        request.answer_body(content[at : at + size], end=at + size >= len(content))
    assert counted(request)


@pytest.mark.parametrize("end", [True, False])
def test_a_gateway_that_lets_nothing_be_rewritten_has_it_counted(end):
    request = shown(STREAMED, stream=True)
    request.answer_body(TOKEN, end=False)
    request.answer_body(ABORT + DONE, end=end)
    assert counted(request)


@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED])
def test_a_whole_answer_is_counted_as_cut(mode):
    request = shown(mode, stream=False)
    body = json.dumps({"choices": [{"message": {}, "finish_reason": "abort"}]}).encode()
    request.answer_body(body[:20], end=False)
    request.answer_body(body[20:])
    assert counted(request)
