import orjson
import pytest

from promptgroup_router.apis.errors import (
    anthropic_error,
    lacks_path,
    may_lack_path,
    not_served_by_engine,
    openai_error,
    with_request_id,
)
from promptgroup_router.base.errors import ApiError


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (431, "invalid_request_error"),
        (502, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
    ],
)
def test_anthropics_type_follows_from_the_status(status, kind):
    answered, body = anthropic_error(ApiError(status, "no", param="model", code="any"))
    assert answered == status
    assert orjson.loads(body) == {"type": "error", "error": {"type": kind, "message": "no"}}


def test_anthropics_errors_tell_the_request_as_text_of_any_client():
    for given in (b"req-1", b'a "b\\ \xff'):
        _, body = anthropic_error(ApiError(400, "no"), given)
        assert orjson.loads(body)["request_id"] == given.decode("latin-1")
        assert orjson.loads(with_request_id(body, given, b"req-2"))["request_id"] == "req-2"
    assert openai_error(ApiError(400, "no"), b"req-1").body == ApiError(400, "no").body()
    assert with_request_id(b"{}", b"a", b"b") == b"{}"


def test_no_room_is_529_for_anthropics_clients():
    status, body = anthropic_error(ApiError(503, "full", code="overloaded"))
    assert (status, orjson.loads(body)["error"]["type"]) == (529, "overloaded_error")


def test_openais_form_is_that_of_the_error():
    error = ApiError(404, "no", param="model", code="model_not_found")
    assert openai_error(error) == (404, error.body())


@pytest.mark.parametrize(
    ("status", "body", "lacks"),
    [
        (404, b'{"detail":"Not Found"}', True),
        (405, b'{"detail":"Method Not Allowed"}', True),
        (404, b'{"detail":"Method Not Allowed"}', False),
        (404, b'{"error":{"message":"The model `x` does not exist."}}', False),
        (404, b"", False),
        (500, b'{"detail":"Not Found"}', False),
    ],
)
def test_an_engine_without_the_path_is_told_from_one_without_the_model(status, body, lacks):
    assert lacks_path(status, body) is lacks
    assert may_lack_path(status) or not lacks


def test_an_api_that_an_engine_lacks_is_named():
    error = not_served_by_engine(b"POST", b"/v1/messages", "llama")
    assert (error.status, error.code) == (404, "not_served_by_engine")
    assert "'llama' does not serve POST /v1/messages" in str(error)
