import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.world.engine_facts import (
    MAX_NUMBER,
    MIN_COPIED,
    MIN_UNCACHED,
    UNKNOWN,
    Measured,
    completed,
    copy_rate,
    decode,
    encode,
    prefill_rate,
    together,
)

RATES = {
    "two digits, rounded down": (1000, 0, 0.1003, 9_900),
    "an exact one": (1000, 0, 0.1, 10_000),
    "as long as it must be": (MIN_UNCACHED, 0, 1.0, 250),
    "one token too short": (MIN_UNCACHED - 1, 0, 1.0, 0),
    "what was in cache was not computed": (1000, 100, 1.0, 900),
    "more in cache than a cold engine has": (1000, 101, 1.0, 0),
    "all in cache": (1000, 1000, 0.001, 0),
    "an engine that does not say what was in cache": (1000, None, 1.0, 0),
    "no prompt": (0, 0, 1.0, 0),
    "a clock that stood still": (1000, 0, 0.0, 0),
    "slower than a token a second": (300, 0, 1000.0, 0),
    "one digit": (300, 0, 60.0, 5),
}


@pytest.mark.parametrize("case", RATES)
def test_prefill_rate(case):
    prompt, cached, seconds, expected = RATES[case]
    assert prefill_rate(prompt, cached, seconds) == expected


@given(st.integers(0, 200_000), st.integers(0, 200_000), st.floats(0.001, 120))
def test_a_rate_is_never_above_what_was_computed_and_at_most_a_tenth_below(prompt, cached, seconds):
    cached = min(cached, prompt)
    rate, true = prefill_rate(prompt, cached, seconds), (prompt - cached) / seconds
    assert rate <= true
    assert rate == 0 or rate > true / 1.1 - 1


COPIES = {
    "two digits, rounded down": (2304, 0.0321, 71_000),
    "as long as it must be": (MIN_COPIED, 1.0, 250),
    "one token too short": (MIN_COPIED - 1, 1.0, 0),
    "nothing was copied": (0, 0.1, 0),
    "a clock that stood still": (2304, 0.0, 0),
    "a clock that nearly did": (2304, 1e-300, MAX_NUMBER),
}


@pytest.mark.parametrize("case", COPIES)
def test_copy_rate(case):
    copied, seconds, expected = COPIES[case]
    assert copy_rate(copied, seconds) == expected


numbers = st.integers(0, MAX_NUMBER)
some = st.builds(Measured, numbers, numbers, numbers, numbers)


@given(some)
def test_what_is_written_on_a_pod_is_read_from_it(measured):
    assert decode(encode(measured)) == measured


def test_what_is_written_on_a_pod_is_short_and_leaves_out_what_nobody_knows():
    assert encode(Measured(400_000, 9_800, 96)) == '{"kvTokens":400000,"prefillTokensPerSecond":9800,"prefixTokens":96}'
    assert encode(Measured(kv_tokens=1, copy_rate=70_000)) == '{"kvTokens":1,"copyTokensPerSecond":70000}'
    assert encode(UNKNOWN) == "{}"


@pytest.mark.parametrize(
    "annotation", ["", "x", "[]", "1", "null", "[" * 100_000, '{"kvTokens":' + "9" * 5000 + "}", '{"kvTokens":"1"}']
)
def test_what_cannot_be_read_is_not_known(annotation):
    assert decode(annotation) == UNKNOWN


@pytest.mark.parametrize("value", [-1, 1.5, True, None, "9", [9], MAX_NUMBER + 1])
def test_a_field_that_is_no_such_number_is_not_known_and_the_others_are(value):
    fields = {"kvTokens": value, "prefillTokensPerSecond": 9_800, "prefixTokens": 96, "more": {}}
    assert decode(json.dumps(fields)) == Measured(0, 9_800, 96)


def test_of_several_engines_holds_what_holds_for_each():
    assert together([Measured(400, 90, 96, 8), Measured(300, 95, 97, 7)]) == Measured(300, 90, 97, 7)


def test_an_engine_of_which_nothing_is_known_lowers_nothing():
    assert together([Measured(400, 90, 96, 7), UNKNOWN]) == Measured(400, 90, 96, 7)
    assert together([]) == UNKNOWN


def test_what_a_second_warm_up_could_not_measure_is_kept_from_the_first():
    known, fresh = Measured(300, 90, 95, 7), Measured(400, 80, 96, 8)
    assert completed(UNKNOWN, known) == completed(known, UNKNOWN) == known
    assert completed(fresh, known) == fresh
