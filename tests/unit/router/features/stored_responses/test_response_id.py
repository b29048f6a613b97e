import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.access import ANONYMOUS, Caller
from promptgroup_router.features.isolation.salts import Salts
from promptgroup_router.features.stored_responses.response_id import (
    MARK,
    OWNED,
    RANDOM_BYTES,
    ResponseId,
    decode,
    encode,
    encode_for,
    is_open_to,
    is_plain,
    process_hash,
)
from promptgroup_router.rings.ids import MemberHash, member_hash

CONTENTS = ResponseId(member_hash("chat/support/abc/0"), process_hash("uid/1"), 2**64 - 1)
RANDOM = bytes(range(RANDOM_BYTES))


def test_an_id_says_what_it_was_made_of():
    made = encode(CONTENTS, RANDOM)
    assert decode(made) == CONTENTS
    assert made.startswith("resp_")
    assert is_plain(made)
    assert len(made) < 64
    assert encode(CONTENTS, RANDOM[::-1]) != made


A, B = Caller("a"), Caller("b")
SALTS = Salts(b"k" * 32)


def owned(caller=A):
    return encode_for(CONTENTS, RANDOM, SALTS.of("chat", caller))


def test_an_id_of_one_caller_says_so_and_is_open_to_nobody_else_whatever_group_is_asked():
    assert owned().startswith(OWNED)
    assert decode(owned()) == CONTENTS
    assert is_plain(owned())
    for isolated in (True, False):
        assert is_open_to(owned(), A, "chat", SALTS, isolated=isolated)
        for caller, namespace, salts in (
            (B, "chat", SALTS),
            (A, "other", SALTS),
            (ANONYMOUS, "chat", SALTS),
            (A, "chat", None),
        ):
            assert not is_open_to(owned(), caller, namespace, salts, isolated=isolated)


def test_an_id_of_nobody_is_open_to_all_but_where_callers_are_kept_apart():
    plain = encode(CONTENTS, RANDOM)
    assert is_open_to(plain, ANONYMOUS, "chat", None, isolated=False)
    assert not is_open_to(plain, A, "chat", SALTS, isolated=True)


def test_an_id_whose_contents_look_like_the_longer_beginning_is_read():
    # the bytes whose text begins with `c_`
    contents = ResponseId(MemberHash(int.from_bytes(base64.urlsafe_b64decode("c_AAAAAA")[:6], "little")), 1, 2)
    made = encode(contents, RANDOM)
    assert made.startswith(OWNED)
    assert decode(made) == contents
    assert is_open_to(made, ANONYMOUS, "chat", None, isolated=False)


@pytest.mark.parametrize(
    "text", ["", "resp_1", MARK, MARK + "A" * 39, MARK + "A" * 41, MARK + "ü" * 40, MARK + "=" * 40]
)
def test_what_no_router_made(text):
    assert decode(text) is None


@given(st.text() | st.text("AZaz09-_=", min_size=38, max_size=42).map(lambda text: MARK + text))
def test_any_text_is_read(text):
    contents = decode(text)
    assert contents is None or max(contents) < 2**64


@pytest.mark.parametrize("text", ["", "a/b", "..", "a..b", "a?b", "a b", "a%2Fb", "a" * 257, "é"])
def test_what_cannot_stand_in_a_path(text):
    assert not is_plain(text)
