import json

import pytest

from promptgroup_router.base.errors import SHOWN, ApiError, shown


def test_an_error_has_the_form_of_openais_api():
    error = ApiError(404, "model 'x' is not served", param="model", code="model_not_found")
    assert json.loads(error.body()) == {
        "error": {
            "message": "model 'x' is not served",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (503, "server_error")])
def test_whose_fault_it_was(status, kind):
    assert json.loads(ApiError(status, "m").body())["error"]["type"] == kind


def test_what_a_client_sent_is_repeated_in_part():
    assert shown("support") == "'support'"
    assert shown("x" * 10_000) == f"'{'x' * SHOWN}'…"


def test_headers_that_belong_to_a_status():
    assert dict(ApiError(503, "m").headers())[b"retry-after"] == b"1"
    assert dict(ApiError(405, "m", allow="POST").headers())[b"allow"] == b"POST"
    assert set(dict(ApiError(400, "m").headers())) == {b"content-type"}
