from promptgroup_router.apis.endpoints import BODIES, ENDPOINTS, error_form
from promptgroup_router.apis.errors import anthropic_error, openai_error
from promptgroup_router.apis.request import ApiKind


def test_each_endpoint_stands_under_its_path():
    assert {path: each.path for path, each in ENDPOINTS.items()} == {path: path for path in ENDPOINTS}


def test_every_kind_of_body_can_be_rewritten():
    assert set(BODIES) == set(ApiKind)


def test_only_what_fills_a_cache_is_placed_by_it():
    assert not ENDPOINTS[b"/v1/messages/count_tokens"].cached
    assert ENDPOINTS[b"/v1/messages"].cached


def test_errors_have_the_form_of_the_path():
    assert error_form(b"/v1/messages/count_tokens") is anthropic_error
    assert error_form(b"/v1/responses") is error_form(b"/nothing") is error_form(b"") is openai_error
