import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.forecast.measured import TimeLine, Timing, copying, prefill, read, through

SIZES = (512, 1024, 2048, 4096)


def computed(rate=8000.0, start=0.01, sizes=SIZES, late=lambda: 0.0):
    return [Timing(n, 0, 0, start + n / rate + late()) for n in sizes for _ in range(3)]


def copied(rate=400_000.0, latency=0.02, start=0.01, rest=16, computing=8000.0):
    return [Timing(n, n - rest, n - rest, start + latency + (n - rest) / rate + rest / computing) for n in SIZES]


def test_a_line_is_found_as_it_is():
    found = prefill(computed())
    assert (found.start, 1 / found.token) == (pytest.approx(0.01), pytest.approx(8000))
    assert found.error == pytest.approx(0)


def test_others_on_the_machine_make_requests_late_and_the_fastest_count():
    draw = random.Random(1)
    late = prefill(computed(late=lambda: draw.choice([0.0, 0.0, 0.5])))
    assert 1 / late.token == pytest.approx(8000, rel=0.01)


def test_what_was_found_in_cache_is_no_prefill():
    found = [Timing(4096, 4000, 0, 0.02), Timing(512, 512, 0, 0.01)]
    assert prefill(found) is None
    assert 1 / prefill([*found, *computed()]).token == pytest.approx(8000)


def test_a_tier_is_measured_without_what_was_computed_beside_it():
    found = copying(copied(), TimeLine(0.01, 1 / 8000, 0.0))
    assert (found.rate, found.latency) == (pytest.approx(400_000), pytest.approx(0.02))
    assert found.break_even == pytest.approx(0.02 / (1 / 8000 - 1 / 400_000))


def test_a_tier_that_is_slower_than_computing_never_pays():
    assert math.isinf(copying(copied(rate=4000.0), TimeLine(0.01, 1 / 8000, 0.0)).break_even)


def test_prompts_that_the_tier_did_not_bring_are_no_copies():
    assert copying([Timing(n, n, 0, 0.01) for n in SIZES], TimeLine(0.0, 1 / 8000, 0.0)) is None


@pytest.mark.parametrize(
    "points", [[], [(512, 0.1)], [(512, 0.1), (512, 0.2)], [(512, 0.2), (1024, 0.1)], [(512, 0.1), (1024, 0.1)]]
)
def test_times_that_do_not_grow_make_no_line(points):
    assert through(points) is None


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1e4)), max_size=40))
def test_any_timings_give_a_line_that_rises_or_none(points):
    found = through(points)
    assert found is None or (found.token > 0 and found.start >= 0 and found.error >= 0)


def test_what_was_printed_is_read():
    found = read(
        {"prefillTokensPerSecond": 8000, "kvTokens": 4000, "tier": {"tokensPerSecond": 4e5, "latencySeconds": 0.02}}
    )
    assert (found.rate, found.kv_tokens, found.tier.rate, found.tier.latency) == (8000, 4000, 4e5, 0.02)
    assert read({"prefillTokensPerSecond": 8000.5, "tier": None}).tier is None


@pytest.mark.parametrize(
    "document",
    [None, [], 3, {}, {"prefillTokensPerSecond": "8000"}, {"prefillTokensPerSecond": -1},
     {"prefillTokensPerSecond": True}, {"prefillTokensPerSecond": 1e99}, {"prefillTokensPerSecond": 1, "tier": {}}],
)  # fmt: skip
def test_what_is_something_else_is_refused(document):
    with pytest.raises(ValueError, match="promptgroup probe"):
        read(document)
