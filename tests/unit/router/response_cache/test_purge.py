"""Purges."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.base.errors import ApiError
from promptgroup_router.response_cache.purge import MOST_PURGES, REMEMBERED_SECONDS, Purge, Purges, parse_purge
from support.asks import answer

KEY = answer(1).key
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(st.fixed_dictionaries(dict.fromkeys(("key", "group", "revision", "at"), inner)), max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("body", "purge"),
    [
        (b'{"all":true}', Purge()),
        (b'{"key":"%b"}' % KEY.hex().encode(), Purge(key=KEY)),
        (b'{"group":"a/b"}', Purge(group="a/b")),
        (b'{"group":"a/b","revision":"01234567"}', Purge(group="a/b", revision="01234567")),
    ],
)
def test_a_purge_says_what_it_is_about(body, purge):
    assert parse_purge(body) == purge


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"all":false}', b'{"all":true,"group":"a/b"}', b'{"key":"00"}', b'{"key":"zz"}',
     b'{"group":"a"}', b'{"revision":"1"}', b'{"group":"a/b","revision":""}', b'{"group":"a/b","revision":7}',
     b'{"groups":"a/b"}', b'{"group":"*/*"}', b'{"group":"a/b","revision":"*"}'],
)  # fmt: skip
def test_a_purge_that_says_nothing_clear_is_refused(body):
    with pytest.raises(ApiError, match="which answers to purge") as refused:
        parse_purge(body)
    assert refused.value.status == 400


def test_a_purge_covers_what_has_all_that_it_names():
    assert Purge().covers(KEY, "a/b", "r")
    assert Purge(group="a/b").covers(KEY, "a/b", "r")
    assert not Purge(group="a/b").covers(KEY, "a/c", "r")
    assert not Purge(group="a/b", revision="s").covers(KEY, "a/b", "r")
    assert not Purge(key=KEY).covers(answer(2).key, "a/b", "r")


def test_what_began_before_a_purge_or_with_it_is_forbidden():
    purges = Purges()
    purges.add(Purge(group="a/b"), 100.0)
    assert purges.forbid(KEY, "a/b", "r", 100.0)
    assert not purges.forbid(KEY, "a/b", "r", 100.1)
    assert not purges.forbid(KEY, "a/c", "r", 99.0)
    purges.add(Purge(group="a/b"), 200.0)
    assert purges.forbid(KEY, "a/b", "r", 150.0)


@pytest.mark.heavy
def test_an_old_purge_is_forgotten_and_too_many_become_one_of_everything():
    purges = Purges()
    purges.add(Purge(group="a/b"), 0.0)
    purges.add(Purge(group="a/c"), REMEMBERED_SECONDS)
    assert not purges.forbid(KEY, "a/b", "r", 0.0)
    for number in range(MOST_PURGES + 5):
        purges.add(Purge(key=answer(number).key), REMEMBERED_SECONDS + 1 + number)
    assert purges.forbid(KEY, "x/y", "r", REMEMBERED_SECONDS)
    assert len(purges._made) <= MOST_PURGES


@given(st.binary(max_size=200) | json_values.map(orjson.dumps))
def test_any_bytes_are_purges_or_none(data):
    purges = Purges()
    try:
        purges.restore(data, 1000.0)
    except ValueError:
        assert purges == Purges()
    else:
        assert orjson.loads(purges.encode()) is not None


def test_a_purge_is_never_later_than_now_and_never_earlier_than_it_was():
    made, purges = Purges(), Purges()
    made.add(Purge(), 5000.0)
    purges.restore(made.encode(), 1000.0)
    assert not purges.forbid(KEY, "a/b", "r", 1000.5)
    purges.add(Purge(), 2000.0)
    purges.restore(made.encode(), 1000.0)
    assert purges.forbid(KEY, "a/b", "r", 2000.0)
