import json

import pytest

from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.arrival import ModelsAnswer, arrive, endpoint_of
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState
from support.wire import chat, table_of

CHAT = b"/v1/chat/completions"


def arrived(method, path, body=b"", **headers):
    state = RouterState()
    state.install(table_of("10.0.0.1:8000"), "file", 0.0)
    fields = {name.encode(): value.encode() for name, value in headers.items()}
    return state, arrive(state, method=method, path=path, headers=fields, body=body, now=0.0)


def test_a_request_gets_the_route_of_its_group():
    _, found = arrived(b"POST", CHAT, json.dumps(chat()).encode())
    assert isinstance(found, Route)
    assert [member.address for member in found.candidates.members] == ["10.0.0.1:8000"]


def test_models_are_answered_without_an_engine():
    _, found = arrived(b"GET", b"/v1/models")
    assert isinstance(found, ModelsAnswer)
    assert json.loads(found.body)["object"] == "list"


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        (b"GET", CHAT, 405, "POST"),
        (b"POST", b"/v1/models", 405, "GET"),
        (b"PUT", b"/v1/responses/resp_1", 405, "GET, DELETE"),
        (b"GET", b"/v1/responses/resp_1", 404, ""),
        (b"GET", b"/reset_prefix_cache", 404, ""),
    ],
)
def test_what_is_not_served(method, path, status, allow):
    with pytest.raises(ApiError) as refused:
        arrived(method, path)
    assert (refused.value.status, refused.value.allow) == (status, allow)


def test_errors_have_the_form_of_the_paths_api():
    error = ApiError(503, "no room", code="overloaded")
    assert endpoint_of(b"/v1/messages").refuse(error).status == 529
    assert endpoint_of(b"/nothing").refuse(error).status == 503
