"""Answers as bytes of a store that others may read and write."""

import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.sealing import MOST_SEALED, Seal
from support.asks import answer

numbers = itertools.count()


def salt(size: int) -> bytes:
    return next(numbers).to_bytes(size, "big")


SEAL = Seal(b"s" * 100, salt)


@given(st.lists(st.binary(max_size=40), max_size=5), st.binary(min_size=1, max_size=80))
def test_an_answer_is_read_as_it_was_written(pieces, secret):
    written, seal = answer(pieces=tuple(pieces)), Seal(secret, salt)
    assert seal.open(seal.close(written), written.key) == written
    assert Seal(secret, salt).hidden(written.key) == seal.hidden(written.key)


def test_an_answer_of_another_key_or_secret_is_none():
    written, other = answer(1), Seal(b"other", salt)
    data = SEAL.close(written)
    assert SEAL.open(data, CacheKey(bytes(32))) is None
    assert other.open(data, written.key) is None
    assert other.hidden(written.key) != SEAL.hidden(written.key)


def test_the_store_learns_neither_key_nor_contents_and_never_sees_the_same_bytes_twice():
    written = answer(1, pieces=(b"a secret answer",))
    data, again = SEAL.close(written), SEAL.close(written)
    assert data != again
    for secret in (b"a secret answer", written.key, written.id, written.group.encode()):
        assert secret not in data
    assert SEAL.hidden(written.key) != written.key.hex()


@given(st.integers(min_value=0), st.integers(1, 255))
def test_an_answer_that_somebody_changed_is_none(at, flip):
    written = answer(1, 600)
    data = bytearray(SEAL.close(written))
    data[at % len(data)] ^= flip
    assert SEAL.open(bytes(data), written.key) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_none(data):
    assert SEAL.open(data, CacheKey(bytes(32))) is None
    assert SEAL.open(b"\x01" + data, CacheKey(bytes(32))) is None


def test_a_value_that_is_too_long_is_not_decrypted():
    assert SEAL.open(b"\x01" + bytes(MOST_SEALED), CacheKey(bytes(32))) is None


json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
HEAD = {"group": "a/b", "revision": "c", "type": "t", "id": "", "born": 1.0, "lifetime": 60.0, "lengths": [3]}


@given(st.dictionaries(st.sampled_from(sorted(HEAD)), json), st.binary(max_size=6), st.booleans())
def test_what_a_router_of_another_version_wrote_is_read_or_none(changed, content, whole):
    """With a seal that is right: a future version may write other heads under the same one."""
    head = (HEAD if whole else {}) | changed
    key = CacheKey(bytes(32))
    of = salt(32)
    contents = orjson.dumps(head) + b"\n" + content
    data = b"\x01" + of + SEAL._cipher(of).encrypt(bytes(12), contents, b"\x01" + key)
    found = SEAL.open(data, key)
    assert found is None or (b"".join(found.pieces) == content and 0 < found.lifetime <= 7 * 24 * 3600)


@pytest.mark.parametrize(
    "changed", [{"lengths": [-1, 4]}, {"lengths": [2]}, {"lifetime": 1e9}, {"lifetime": -1}, {"born": None}, {"id": 7}]
)
def test_a_head_that_cannot_be_meant_is_none(changed):
    key, of = CacheKey(bytes(32)), salt(32)

    def data(head: dict) -> bytes:
        contents = orjson.dumps(head) + b"\nabc"
        return b"\x01" + of + SEAL._cipher(of).encrypt(bytes(12), contents, b"\x01" + key)

    assert SEAL.open(data(HEAD), key) is not None
    assert SEAL.open(data(HEAD | changed), key) is None
