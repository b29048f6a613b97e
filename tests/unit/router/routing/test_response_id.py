import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.rings.ids import member_hash
from promptgroup_router.routing.response_id import (
    MARK,
    RANDOM_BYTES,
    ResponseId,
    decode,
    encode,
    is_plain,
    process_hash,
)

CONTENTS = ResponseId(member_hash("chat/support/abc/0"), process_hash("uid/1"), 2**64 - 1)
RANDOM = bytes(range(RANDOM_BYTES))


def test_an_id_says_what_it_was_made_of():
    made = encode(CONTENTS, RANDOM)
    assert decode(made) == CONTENTS
    assert made.startswith("resp_")
    assert is_plain(made)
    assert len(made) < 64
    assert encode(CONTENTS, RANDOM[::-1]) != made


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
