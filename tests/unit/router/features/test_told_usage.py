import pytest

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.apis.usage import Usage
from promptgroup_router.features.told_usage import HEADER, asks, comment, header_fields

USED = Usage(3000, 2900, 5)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, False),
        ({HEADER: b"true"}, True),
        ({HEADER: b"True"}, True),
        ({HEADER: b"1"}, False),
        ({HEADER: b""}, False),
    ],
)
def test_usage_is_told_to_those_who_ask(fields, told):
    assert asks(fields) is told


@pytest.mark.parametrize(
    ("usage", "how", "told"),
    [
        (USED, CachedTokens.EXACT, b"prompt=3000, cached=2900, answer=5"),
        (USED, CachedTokens.ROUNDED, b"prompt=3000, cached=2048, answer=5"),
        (USED, CachedTokens.HIDDEN, b"prompt=3000, answer=5"),
        (Usage(7, None, 5), CachedTokens.EXACT, b"prompt=7, answer=5"),
    ],
)
def test_a_header_and_a_comment_say_the_same_as_precisely_as_the_group_tells_it(usage, how, told):
    assert header_fields(usage, how) == [(b"x-promptgroup-usage", told)]
    assert comment(usage, how) == b"\n: x-promptgroup-usage: " + told + b"\n\n"


def test_nothing_is_told_where_the_engine_reports_nothing():
    assert (header_fields(None, CachedTokens.EXACT), comment(None, CachedTokens.EXACT)) == ([], b"")
