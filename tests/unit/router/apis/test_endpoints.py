import pytest

from promptgroup_router.apis.endpoints import BODIES, ENDPOINTS, form_of
from promptgroup_router.apis.errors import ANTHROPIC, OPENAI, RESPONSES
from promptgroup_router.apis.request import ApiKind


def test_each_endpoint_stands_under_its_path():
    assert {path: each.path for path, each in ENDPOINTS.items()} == {path: path for path in ENDPOINTS}


def test_every_kind_of_body_can_be_rewritten():
    assert set(BODIES) == set(ApiKind)


def test_only_what_fills_a_cache_is_placed_by_it():
    assert not ENDPOINTS[b"/v1/messages/count_tokens"].cached
    assert ENDPOINTS[b"/v1/messages"].cached


@pytest.mark.parametrize(
    ("path", "named", "form"),
    [
        (b"/v1/messages/count_tokens", False, ANTHROPIC),
        (b"/v1/messages/batches", False, ANTHROPIC),
        (b"/v1/chat/completions", True, OPENAI),
        (b"/v1/responses/resp_1", True, RESPONSES),
        (b"/v1/models", True, ANTHROPIC),
        (b"/v1/models/nope", True, ANTHROPIC),
        (b"/v1/models/nope", False, OPENAI),
        (b"/nothing", True, ANTHROPIC),
        (b"", False, OPENAI),
    ],
)
def test_errors_have_the_form_of_the_path_or_of_the_api_that_the_request_names(path, named, form):
    assert form_of(path, {b"anthropic-version": b"2023-06-01"} if named else {}) is form
