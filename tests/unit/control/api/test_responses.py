"""What a spec says of the response cache."""

import pytest
from pydantic import ValidationError

from promptgroup_contract.table import CacheScope, ResponseCaching
from promptgroup_operator.api.model import HOLDS
from promptgroup_operator.api.responses import ResponseCacheMode, ResponsesSpec, caching_of

TTL_RULE = next(cel for cel in HOLDS if "self.ttl" in cel and "stale" not in cel)
STALE_RULE = next(cel for cel in HOLDS if "self.staleWhileRevalidate" in cel)


def test_nothing_is_kept_by_default():
    assert caching_of(ResponsesSpec()) is None


def test_what_is_kept_is_in_seconds_and_bytes():
    spec = ResponsesSpec(cache=ResponseCacheMode.EXACT, ttl="1500ms", max_bytes="2Ki", scope=CacheScope.CALLER)
    assert caching_of(spec) == ResponseCaching(ttl=2, max_bytes=2048, scope=CacheScope.CALLER)
    old = ResponsesSpec(cache=ResponseCacheMode.EXACT, stale_while_revalidate="90s")
    assert caching_of(old).stale == 90


@pytest.mark.parametrize(
    ("ttl", "kept"), [("1s", True), ("168h", True), ("999ms", False), ("168h1s", False), ("0s", False)]
)
def test_an_answer_is_kept_from_a_second_to_a_week(ttl, kept):
    assert HOLDS[TTL_RULE](ResponsesSpec(ttl=ttl)) is kept


def test_an_answer_is_given_for_a_week_at_most_be_it_old_or_not():
    assert HOLDS[STALE_RULE](ResponsesSpec(ttl="167h", stale_while_revalidate="1h"))
    assert not HOLDS[STALE_RULE](ResponsesSpec(ttl="167h", stale_while_revalidate="61m"))


@pytest.mark.parametrize(
    "fields", [{"max_bytes": "64MB"}, {"max_bytes": "0Ki"}, {"ttl": "1d"}, {"cache": "On"}, {"scope": "All"}]
)
def test_other_values_are_refused(fields):
    with pytest.raises(ValidationError):
        ResponsesSpec(**fields)
