"""What clients say of caching."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.base.errors import ApiError
from promptgroup_router.response_cache.directives import MAX_SECONDS, NO_DIRECTIVES, Directives, read_directives


def control(*values: bytes) -> Directives:
    return read_directives([(b"cache-control", value) for value in values], None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), NO_DIRECTIVES),
        ((b"no-cache",), Directives(no_cache=True)),
        ((b"No-Store , max-age=5",), Directives(no_store=True, max_age=5)),
        ((b"no-cache", b"no-store"), Directives(no_cache=True, no_store=True)),
        ((b'max-age="7"',), Directives(max_age=7)),
        ((b"max-age=soon",), Directives(max_age=0)),
        ((b"max-age=-1",), Directives(max_age=0)),
        ((b"max-age=99999999999999999999999",), Directives(max_age=0)),
        ((b"max-age=99999999999",), Directives(max_age=MAX_SECONDS)),
        ((b"only-if-cached",), Directives(only_if_cached=True)),
        ((b"public, immutable, x=y",), NO_DIRECTIVES),
        ((b"max-age=5, max-age=9",), Directives(max_age=5)),
    ],
)
def test_cache_control_is_read_as_rfc_9111_has_it(values, expected):
    assert control(*values) == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({}, NO_DIRECTIVES),
        ({"ttl": 600, "namespace": "faq"}, Directives(ttl=600, namespace="faq")),
        ({"s-maxage": 5}, Directives(max_age=5)),
        ({"s-max-age": 5.9}, Directives(max_age=5)),
        ({"no-cache": True, "no-store": False}, Directives(no_cache=True)),
        ({"no-store": True, "unknown": [1]}, Directives(no_store=True)),
        ({"ttl": None, "namespace": None, "no-cache": None}, NO_DIRECTIVES),
    ],
)
def test_the_field_of_litellm_is_read(field, expected):
    assert read_directives([], field) == expected


def test_the_stricter_of_both_counts():
    found = read_directives([(b"cache-control", b"max-age=9, no-cache")], {"s-maxage": 5, "no-store": True})
    assert found == Directives(no_cache=True, no_store=True, max_age=5)


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("no", "cache is a text"),
        ([], "cache is empty"),
        ({"ttl": -1}, "cache.ttl"),
        ({"ttl": "60"}, "cache.ttl"),
        ({"ttl": True}, "cache.ttl"),
        ({"s-maxage": 1e300}, "cache.s-maxage"),
        ({"no-cache": "yes"}, "cache.no-cache"),
        ({"namespace": 7}, "cache.namespace"),
        ({"namespace": "x" * 257}, "cache.namespace"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_its_name(field, named):
    with pytest.raises(ApiError) as refused:
        read_directives([], field)
    assert (refused.value.status, refused.value.param) == (400, "cache")
    assert named in str(refused.value)


@pytest.mark.heavy
@given(
    st.lists(st.binary(max_size=50)),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["ttl", "no-cache", "s-maxage", "x"]), inner),
    ),
)
def test_anything_is_read_or_refused(values, field):
    with contextlib.suppress(ApiError):
        found = read_directives([(b"cache-control", value) for value in values], field)
        assert found.max_age is None or 0 <= found.max_age <= MAX_SECONDS
