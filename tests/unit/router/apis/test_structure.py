import orjson
import pytest

from promptgroup_router.apis.structure import MOST_OBJECTS, MOST_STRINGS, MOST_VALUES, UNCHECKED_BYTES, check
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


def test_small_bodies_are_parsed_as_they_are():
    check(b"[" * UNCHECKED_BYTES)
