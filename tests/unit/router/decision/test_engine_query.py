import pytest

from promptgroup_router.apis.endpoints import BY_PATH_ALONE, ENDPOINTS, PASSED
from promptgroup_router.decision.engine_query import engine_query, engine_target

QUERIES = [
    b"beta=true",
    b"api-version=2024-10-21",
    b"stream=true&priority=-9",
    b"level=2&tags=weights",
    b"data_parallel_rank=1",
]
STORED = b"/v1/responses/resp_1"


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("query", QUERIES)
def test_engines_get_no_query_at_the_paths_of_apis_that_have_none(path, query):
    assert engine_query(ENDPOINTS[path], path, query) == b""


@pytest.mark.parametrize("path", [STORED, STORED + b"/input_items", STORED + b"/cancel"])
def test_of_a_stored_response_they_get_what_the_api_has(path):
    asked = b"stream=true&starting_after=3&include=a&include=b&after=x&limit=2&order=asc"
    assert engine_query(BY_PATH_ALONE, path, asked) == asked
    assert engine_query(BY_PATH_ALONE, path, b"beta=1&stream=true&rank=2&&%73tream=1&streams=1") == b"stream=true"
    assert engine_query(BY_PATH_ALONE, path, b"") == engine_query(BY_PATH_ALONE, path, b"beta=1") == b""


def test_a_path_that_settings_allow_gets_its_query():
    assert engine_query(PASSED, b"/v1/plugin", b"x=1") == b"x=1"


def test_a_target_has_a_question_mark_only_before_a_query():
    chat = b"/v1/chat/completions"
    assert engine_target(ENDPOINTS[chat], chat, b"beta=true") == engine_target(ENDPOINTS[chat], chat, b"") == chat
    assert engine_target(BY_PATH_ALONE, STORED, b"beta=1&stream=true") == STORED + b"?stream=true"
    assert engine_target(PASSED, b"/v1/plugin", b"x=1") == b"/v1/plugin?x=1"
