import json

import pytest

from promptgroup_picker.extproc import call_head, messages
from support.gatewaycalls import (
    CHAT,
    refusal,
    set_by,
    shown,
)


def test_errors_have_the_form_of_their_api():
    request = shown()
    request.head(_path="/v1/messages?beta=true")
    (response,) = request.body(b"{")
    assert json.loads(response.immediate_response.body)["type"] == "error"


def test_header_fields_are_bounded_and_counted_with_the_bodies():
    request = shown()
    assert request.head(**{f"x_{number}": "1" for number in range(call_head.MAX_FIELDS - 2)}) == []
    request = shown()
    found = request.head(**{f"x_{number}": "1" for number in range(call_head.MAX_FIELDS)})
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


@pytest.mark.parametrize("mode", [messages.MODE_FULL_DUPLEX, messages.MODE_BUFFERED])
def test_a_query_reaches_the_engine_only_where_something_may_read_it(mode):
    for query in ("?beta=true", "?priority=-9&stream=true", "?"):
        request = shown()
        request.head(mode=mode, _path=f"/v1/chat/completions{query}")
        response = request.body(CHAT)[0]
        part = response.request_body if mode == messages.MODE_BUFFERED else response.request_headers
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
