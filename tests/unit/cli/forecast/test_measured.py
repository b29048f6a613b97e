import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.forecast.measured import (
    Point,
    TimeLine,
    Timing,
    at_least,
    copying,
    is_sure,
    prefill,
    read,
    through,
)

SIZES = (512, 1024, 2048, 4096)
LINE = TimeLine(0.01, 1 / 8000, 0.0, 1 / 8000, 1 / 8000)


def computed(rate=8000.0, start=0.01, sizes=SIZES, late=lambda: 0.0):
    return [Timing(n, 0, 0, start + n / rate + late(), n) for n in sizes for _ in range(3)]


def copied(rate=400_000.0, latency=0.02, start=0.01, rest=16, computing=8000.0):
    return [Timing(n, n - rest, n - rest, start + latency + (n - rest) / rate + rest / computing, n) for n in SIZES]


def test_a_line_is_found_as_it_is():
    found = prefill(computed())
    assert (found.start, 1 / found.token) == (pytest.approx(0.01), pytest.approx(8000))
    assert found.error == pytest.approx(0)


def test_others_on_the_machine_make_requests_late_and_the_fastest_count():
    draw = random.Random(1)
    late = prefill(computed(late=lambda: draw.choice([0.0, 0.0, 0.5])))
    assert 1 / late.token == pytest.approx(8000, rel=0.01)


def test_texts_of_one_length_that_differ_by_some_tokens_count_as_one():
    """A tokenizer makes some tokens more of one random text than of another: the fastest counts all the same."""
    draw = random.Random(2)
    counts = [(n, n + draw.randint(0, 9)) for n in SIZES for _ in range(3)]
    late = [Timing(tokens, 0, 0, 0.01 + tokens / 8000 + (at % 3 > 0), n) for at, (n, tokens) in enumerate(counts)]
    found = prefill(late)
    assert 1 / found.token == pytest.approx(8000)
    assert found.error == pytest.approx(0)


def test_how_sure_a_rate_is_follows_from_the_other_lengths():
    exact, late = prefill(computed()), prefill(computed(late=lambda: random.Random(3).random() / 20))
    assert (exact.least, exact.most) == (pytest.approx(1 / 8000), pytest.approx(1 / 8000))
    one_late = prefill([*computed(sizes=SIZES[:3]), Timing(4096, 0, 0, 1.0, 4096)])
    assert one_late.least == pytest.approx(1 / 8000)
    assert one_late.most > 1.5 / 8000
    two = prefill(computed(sizes=(512, 4096)))
    assert (two.least, two.most) == (two.token, two.token)
    assert late.least <= late.token <= late.most


def test_a_tier_is_no_surer_than_the_prefill_that_is_taken_off():
    """Tails of other lengths than the copies': their time is taken off by a rate that may be another one."""
    tails = dict(zip(SIZES, (16, 200, 40, 250), strict=True))
    copies = [Timing(n + tail, n, n, 0.03 + n / 400_000 + tail / 8000, n) for n, tail in tails.items()]
    sure = copying(copies, LINE)
    assert sure.between == (pytest.approx(400_000), pytest.approx(400_000))
    unsure = copying(copies, TimeLine(0.01, 1 / 8000, 0.1, 1 / 10_000, 1 / 6000))
    assert unsure.rate == pytest.approx(400_000)
    assert unsure.between[0] < 300_000
    assert unsure.between[1] > 500_000


def test_copies_that_take_no_time_show_what_a_tier_copies_at_least():
    copies = [Timing(n, n - 16, n - 16, 0.02, n) for n in SIZES]
    assert copying(copies, LINE) is None
    one = at_least(copies)
    assert one.tiered / one.seconds == pytest.approx(4080 / 0.02)


def test_what_was_found_in_cache_is_no_prefill():
    found = [Timing(4096, 4000, 0, 0.02, 4096), Timing(512, 512, 0, 0.01, 512)]
    assert prefill(found) is None
    assert 1 / prefill([*found, *computed()]).token == pytest.approx(8000)


def test_a_tier_is_measured_without_what_was_computed_beside_it():
    found = copying(copied(), LINE)
    assert (found.rate, found.latency) == (pytest.approx(400_000), pytest.approx(0.02))
    assert found.break_even == pytest.approx(0.02 / (1 / 8000 - 1 / 400_000))


def test_a_tier_that_is_slower_than_computing_never_pays():
    assert math.isinf(copying(copied(rate=4000.0), LINE).break_even)


def test_prompts_that_the_tier_did_not_bring_are_no_copies():
    assert copying([Timing(n, n, 0, 0.01, n) for n in SIZES], LINE) is None


@pytest.mark.parametrize(
    "points", [[], [(512, 0.1)], [(512, 0.1), (512, 0.2)], [(512, 0.2), (1024, 0.1)], [(512, 0.1), (1024, 0.1)]]
)
def test_times_that_do_not_grow_make_no_line(points):
    assert through([Point(tokens, tokens, seconds) for tokens, seconds in points]) is None


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10**6), st.floats(0, 1e4)), max_size=40))
def test_any_timings_give_a_line_that_rises_or_none(points):
    found = through([Point(asked, tokens, seconds) for asked, tokens, seconds in points])
    assert found is None or (found.token > 0 and found.start >= 0 and found.error >= 0)
    assert found is None or 0 <= found.least <= found.token <= found.most


TOLD = {"prefillTokensPerSecond": 8000, "prefillBetween": [7000, 9000], "error": 0}


def test_what_was_printed_is_read():
    tier = {"tokensPerSecond": 4e5, "latencySeconds": 0.02, "error": 0.1, "between": [3e5, None]}
    found = read({**TOLD, "kvTokens": 4000, "tier": tier})
    assert (found.rate, found.kv_tokens, found.tier.rate, found.tier.latency) == (8000, 4000, 4e5, 0.02)
    assert (found.error, found.between) == (0, (7000, 9000))
    assert (found.tier.error, found.tier.between) == (0.1, (3e5, math.inf))
    assert read({**TOLD, "tier": None}).tier is None


@pytest.mark.parametrize(
    ("field", "value"),
    [*(("error", each) for each in (None, "0", True, -0.1, math.nan, math.inf, 1e99)),
     *(("prefillBetween", each) for each in
       (None, [], 7, [1, 2, 3], [0, 1], [None, 1], [2, 1], ["1", 2], [math.nan, 1], [1, math.nan], [1, 1e99]))],
)  # fmt: skip
def test_what_does_not_tell_how_sure_it_is_is_not_sure(field, value):
    told = {**TOLD, field: value}
    with pytest.raises(ValueError, match="promptgroup probe"):
        read(told)
    tier = {"tokensPerSecond": 4e5, "error": told["error"], "between": told["prefillBetween"]}
    with pytest.raises(ValueError, match="promptgroup probe"):
        read({**TOLD, "tier": tier})


@pytest.mark.parametrize(
    ("error", "between", "sure"),
    [(0.25, (100, 150), True), (0.26, (100, 100), False), (0.0, (100, 151), False), (0.0, (100, math.inf), False)],
)
def test_a_rate_is_sure_near_its_line_and_within_bounds(error, between, sure):
    assert is_sure(error, between) is sure


@pytest.mark.parametrize(
    "document",
    [None, [], 3, {}, {"prefillTokensPerSecond": "8000"}, {"prefillTokensPerSecond": -1},
     {"prefillTokensPerSecond": True}, {"prefillTokensPerSecond": 1e99}, {"prefillTokensPerSecond": 1, "tier": {}}],
)  # fmt: skip
def test_what_is_something_else_is_refused(document):
    with pytest.raises(ValueError, match="promptgroup probe"):
        read(document)
