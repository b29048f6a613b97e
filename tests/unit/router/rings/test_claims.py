import pytest

from promptgroup_router.contract.fingerprint import hash_prefix
from promptgroup_router.rings.claims import MOST_LENGTHS, Claim, Claims, common_length


def claim(name, text, namespace="a", tools="", *, read=True):
    size = len(text.encode())
    known = (text, tools) if read else (None, "")
    return Claim(name, namespace, hash_prefix(tools, text.encode()), size, *known)


def test_the_longest_prefix_with_the_same_tools_is_found():
    claims = Claims([claim("short", "You"), claim("long", "You are"), claim("tools", "You are kind", tools="[1]")])
    assert [claims.match("", text) for text in ("You are kind", "You art", "You", "Yo", "")] == [
        "long", "short", "short", None, None,
    ]  # fmt: skip
    assert claims.match("[1]", "You are kind.") == "tools"
    assert claims.match("[2]", "You are kind.") is None


def test_a_text_that_was_not_read_is_found_by_its_hash():
    claims = Claims([claim("read", "You"), claim("unread", "You are", read=False), claim("other", "He", read=False)])
    assert claims.match("", "You are kind") == "unread"
    assert claims.match("", "You know") == "read"
    assert Claims([claim("tools", "You", tools="[1]", read=False)]).match("[1]", "You.") == "tools"


def test_of_more_unread_lengths_than_a_request_is_hashed_at_the_longest_are_found():
    claims = Claims(claim(size, "x" * size, read=False) for size in range(1, MOST_LENGTHS + 11))
    assert claims.match("", "x" * 11 + "y") == 11
    assert claims.match("", "x" * 10 + "y") is None


@pytest.mark.parametrize("read", [True, False])
def test_an_older_claim_keeps_its_requests_from_a_longer_one_of_another_namespace(read):
    claims = Claims([claim("mine", "You are", read=read), claim("thief", "You are\nToday", "b", read=read)])
    assert claims.match("", "You are\nToday is Sunday.") == "mine"
    assert claims.match("", "You are\nToday is Sunday.", "b") == "thief"
    assert claims.match("", "You are kind", "b") is None


def test_within_a_namespace_the_longest_is_found_whatever_its_age():
    claims = Claims([claim("short", "You"), claim("neighbour", "You are", "b"), claim("long", "You are kind")])
    assert claims.match("", "You are kind.") == "long"
    assert claims.match("", "You are rude.") == "short"


def test_texts_that_nest_deeply_are_found_at_every_depth():
    claims = Claims(claim(size, "x" * size) for size in range(1, 3000))
    assert [claims.match("", "x" * size + "y") for size in (0, 1, 1500, 2999, 5000)] == [None, 1, 1500, 2999, 2999]
    assert claims.match("", "x" * 5000) == 2999


def test_the_common_length_of_two_texts():
    assert common_length("", "x") == 0
    assert common_length("x" * 1000 + "a", "x" * 1000 + "b") == 1000
