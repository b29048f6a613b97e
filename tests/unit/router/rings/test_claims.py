import itertools

import pytest

from promptgroup_contract.fingerprint import hash_prefix
from promptgroup_contract.messages import canonical_messages
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.claims import MOST_COUNTS, MOST_LENGTHS, Claim, Claims, common_length

ages = itertools.count()


def age():
    """Return the age of a claim that is younger than all before it."""
    return (False, ""), f"{next(ages):09}"


def claim(name, text, namespace="a", tools="", *, read=True):
    size = len(text.encode())
    known = (text, tools) if read else (None, "")
    return Claim(name, namespace, hash_prefix(tools, text.encode()), size, *known, age=age())


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


def said(count):
    return [(("user", "assistant")[i % 2], f"text {i}") for i in range(count)]


def with_messages(name, count, namespace="a", text="You"):
    fingerprint = hash_prefix("", text.encode(), canonical_messages(said(count)))
    return Claim(name, namespace, fingerprint, len(text), text, "", count, age())


def starts(count):
    """Return what a conversation of so many messages begins with."""
    return lambda asked: canonical_messages(said(asked)) if asked <= count else None


def test_messages_make_a_prefix_longer():
    claims = Claims([with_messages("two", 2), claim("none", "You"), with_messages("four", 4)])
    assert [claims.match("", "You", "", starts(count)) for count in (5, 4, 3, 2, 1)] == [
        "four", "four", "two", "two", "none",
    ]  # fmt: skip
    assert claims.match("", "You.", "", starts(5)) == "none"
    assert claims.match("[1]", "You", "", starts(5)) is None


def test_messages_are_looked_at_only_where_a_group_declares_some():
    def refuse(_count):
        raise AssertionError("nobody declares messages")

    assert Claims([claim("none", "You")]).match("", "You", "", refuse) == "none"


def test_an_older_claim_without_messages_keeps_its_requests_from_another_namespace():
    claims = Claims([claim("mine", "You"), with_messages("thief", 2, "b")])
    assert claims.match("", "You", "", starts(2)) == "mine"
    assert claims.match("", "You", "b", starts(2)) == "thief"


def test_of_more_counts_than_a_request_is_hashed_at_the_greatest_are_found():
    claims = Claims(with_messages(count, count) for count in range(1, MOST_COUNTS + 3))
    assert claims.match("", "You", "", starts(3)) == 3
    assert claims.match("", "You", "", starts(2)) is None


def test_a_renewed_index_leaves_alone_the_one_before_where_a_length_is_a_number_of_messages():
    """Hashes of texts of three bytes, and of three messages, are apart, though their numbers are equal."""
    first = claim("You", "You", read=False)
    messages = with_messages("three", 3)
    before = Claims([first])
    desired = {(item.namespace, item.fingerprint): item for item in (first, messages, claim("Him", "Him", read=False))}
    after = at_once(before.renewed(desired))
    assert after.match("", "Him.") == "Him"
    assert before.match("", "Him.") is None
    assert before.match("", "You.") == "You"
