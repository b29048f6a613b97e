import orjson
import pytest

from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.structure import (
    MOST_OBJECTS,
    MOST_STRINGS,
    MOST_VALUES,
    MOST_VALUES_OF_TEXT,
    RARE,
    UNCHECKED_BYTES,
    check,
)
from promptgroup_router.base.errors import ApiError


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * MOST_OBJECTS + b"[]]",
        b"[" + b"{}," * MOST_OBJECTS + b"{}]",
        b"[" + b"1," * (MOST_VALUES + 1) + b"1]",
        b"[" + b'"",' * (MOST_STRINGS + 1) + b"1]",
        b'{"text":"\\"[{,",' + b'"a":[' + b"[]," * MOST_OBJECTS + b"[]]}",
    ],
    ids=["arrays", "objects", "numbers", "strings", "behind a string"],
)
def test_a_body_that_is_all_structure_is_refused(body):
    with pytest.raises(ApiError) as caught:
        check(body)
    assert (caught.value.status, caught.value.code) == (400, "too_complex")


@pytest.mark.parametrize(
    "value",
    [
        "if (a[0]) { b[1], c[2] }" * 20_000,
        '{"a": ["\\"", {}], "\\\\": []}' * 20_000,
        "\\" * 100_000 + '"[{' * 50_000,
        list(range(1_000_000)),
        [{"role": "user", "content": "Hello, {name}, [again]"}] * 5000,
    ],
    ids=["code", "json", "backslashes", "token ids", "turns"],
)
def test_what_a_prompt_says_does_not_count(value):
    check(orjson.dumps({"messages": value}))


@pytest.mark.parametrize("most", [RARE, RARE + 1])
def test_as_many_commas_as_values_are_allowed_pass(most):
    body = orjson.dumps(["a" * UNCHECKED_BYTES, *range(most)])
    check(body, values=most)
    with pytest.raises(ApiError, match=f"more than {most - 1}"):
        check(body, values=most - 1)


def test_a_body_whose_prompt_is_text_has_no_token_ids():
    ids = orjson.dumps({"messages": list(range(MOST_VALUES_OF_TEXT + 2))})
    check(ids)
    with pytest.raises(ApiError, match="too many values"):
        check(ids, MOST_VALUES_OF_TEXT)
    check(orjson.dumps({"messages": "one, two, " * MOST_VALUES_OF_TEXT}), MOST_VALUES_OF_TEXT)


@pytest.mark.parametrize(
    "path", [b"/v1/chat/completions", b"/v1/messages", b"/v1/messages/count_tokens", b"/v1/responses"]
)
def test_chats_are_texts(path):
    assert ENDPOINTS[path].values == MOST_VALUES_OF_TEXT


def test_small_bodies_are_parsed_as_they_are():
    check(b"[" * UNCHECKED_BYTES)
