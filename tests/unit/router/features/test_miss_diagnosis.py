from types import SimpleNamespace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.apis.usage import Usage
from promptgroup_router.features.miss_diagnosis import MissDiagnosis, expect, observe
from promptgroup_router.features.prompt_digest import PromptChange
from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.ids import PrefixKey

FIELDS = {
    "found": (MissDiagnosis("none", observed=True), {"cache_miss_reason": None}, {"type": "cache_hit"}),
    "changed": (
        MissDiagnosis("system_changed", 90, 10, observed=True),
        {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 90}},
        {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 90, "comparison_reusable_tokens": 10},
    ),
    "not found": (
        MissDiagnosis("previous_message_not_found"),
        {"cache_miss_reason": {"type": "previous_message_not_found"}},
        {"type": "comparison_response_not_found"},
    ),
    "expected to be found": (
        MissDiagnosis("none"),
        {"cache_miss_reason": None, "forecast": True},
        {"type": "cache_hit", "forecast": True},
    ),
    "evicted": (
        MissDiagnosis("evicted", 90, observed=True),
        {"cache_miss_reason": {"type": "unavailable", "cache_missed_input_tokens": 90}},
        {"type": "unavailable"},
    ),
}


@pytest.mark.parametrize("case", FIELDS)
def test_the_field_is_in_the_words_of_the_api(case):
    diagnosis, anthropic, openai = FIELDS[case]
    assert orjson.loads(b"{%b}" % diagnosis.field(ApiKind.MESSAGES)) == {"diagnostics": anthropic}
    assert orjson.loads(b"{%b}" % diagnosis.field(ApiKind.RESPONSES)) == {"prompt_cache_diagnostics": openai}


@pytest.mark.parametrize(
    ("diagnosis", "value"),
    [
        (MissDiagnosis("none"), b"none;forecast"),
        (MissDiagnosis("none", observed=True), b"none"),
        (MissDiagnosis("messages_changed", 90, 10, 3), b"messages_changed;tokens=90;message=3;forecast"),
        (MissDiagnosis("evicted", 90, observed=True), b"evicted;tokens=90"),
        (MissDiagnosis("previous_message_not_found"), b"previous_message_not_found;tokens=0"),
    ],
)
def test_the_header_calls_a_forecast_one(diagnosis, value):
    assert diagnosis.header() == value


CHANGE = PromptChange("messages", 2, 3000, 1000)


def pick(*, tier1=0, cached=0.0, moved=False):
    """A replica that is believed to hold so much, for a request that goes on after 600 tokens."""
    return SimpleNamespace(
        demand=Demand(SessionKey(1), PrefixKey(1), 767, tier1, 600),
        before=SimpleNamespace(tokens=600, member="other" if moved else "a", seen=9.0, written=0.0),
        member=SimpleNamespace(id="a"),
        replica=SimpleNamespace(inherited=1.0, costs=SimpleNamespace(cache_tokens=9e9, prefill=lambda *_: 0.1)),
        cached=cached,
        written=0.0,
    )


@pytest.mark.interpreted
def test_an_unchanged_prompt_that_was_not_found_is_a_miss_whatever_was_expected():
    expected = expect(None, pick(cached=600.0), 0.25)
    assert (expected.reason, expected.observed) == ("none", False)
    found = observe(None, pick(cached=600.0), Usage(767, 0), earlier=0.8, named=True)
    assert found == MissDiagnosis("evicted", 614, 0, observed=True)
    assert observe(None, pick(moved=True), Usage(767, 0), earlier=0.8, named=True).reason == "moved"


@pytest.mark.interpreted
def test_an_unchanged_prompt_that_was_found_is_none_whatever_was_expected():
    assert expect(None, pick(moved=True), 0.25).reason == "moved"
    assert observe(None, pick(moved=True), Usage(767, 592), earlier=0.8, named=True).reason == "none"


@pytest.mark.interpreted
def test_a_changed_prompt_misses_what_its_engine_did_not_find():
    assert expect(CHANGE, None, 0.25) == MissDiagnosis("messages_changed", 750, 250, 2)
    found = observe(CHANGE, None, Usage(1000, 256), earlier=0.9, named=True)
    assert found == MissDiagnosis("messages_changed", 644, 256, 2, observed=True)
    whole = observe(CHANGE, None, Usage(1000, 992), earlier=0.9, named=True)
    assert whole.reason == "none"  # somebody else had sent all of it


def test_nothing_is_observed_where_an_engine_does_not_tell():
    assert observe(None, None, Usage(767, None), earlier=0.8, named=True) is None


@pytest.mark.interpreted
@given(
    prompt=st.integers(0, 10**6),
    share=st.floats(0, 1),
    earlier=st.floats(0, 3),
    change=st.sampled_from([None, CHANGE]),
    known=st.sampled_from([None, pick(), pick(tier1=400), pick(cached=600.0), pick(moved=True)]),
)
def test_no_answer_that_computed_a_prompt_which_repeats_is_told_that_nothing_was_missed(
    prompt, share, earlier, change, known
):
    cached = int(prompt * share)
    found = observe(change, known, Usage(prompt, cached), earlier=earlier, named=True)
    assert found.observed
    assert 0 <= found.tokens <= max(prompt, 3 * prompt)
    if found.reason == "none" and known is not None and change is None:
        repeats = min(prompt, earlier * prompt)
        assert repeats - cached <= 64 + 0.05 * repeats + 1e-6
