import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.policy.costs import KV_TOKENS, PREFILL_RATE, EngineCosts


def test_a_prefill_costs_what_is_not_cached_and_more_at_greater_depth():
    costs = EngineCosts(prefill_rate=10_000)
    assert costs.prefill(3000, 3000) == 0
    assert costs.prefill(0, 3000) == pytest.approx(0.3 * (1 + 1500 / 30_000))
    assert costs.prefill(20_000, 21_000) > 1.5 * costs.prefill(0, 1000)


def test_what_nobody_knows_is_assumed_small_and_never_limits_admission():
    costs = EngineCosts()
    assert (costs.rate, costs.kv_tokens) == (PREFILL_RATE, KV_TOKENS)
    assert costs.cache_tokens == float("inf")
    assert EngineCosts(kv_tokens=7).cache_tokens == 7


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_rate_that_is_wrong_by_a_factor_of_two_comes_right_and_stays_below_the_truth(factor):
    truth, draw = 10_000, random.Random(3)
    costs = EngineCosts(prefill_rate=truth * factor)
    for _ in range(400):
        prompt = draw.randint(1000, 6000)
        step = 0.009
        real = prompt * (1 + prompt / 60_000) / truth * draw.uniform(0.95, 1.05) + step
        costs.observe(costs.prefill(0, prompt), step, real)
    assert 0.9 * truth <= costs.rate <= 1.01 * truth


def test_short_requests_correct_the_step_and_not_the_rate():
    costs = EngineCosts(prefill_rate=10_000)
    before = costs.rate
    for _ in range(200):
        costs.observe(0.001, costs.overhead, 0.020)
    assert costs.rate == before
    assert 0.015 < costs.overhead < 0.022
    assert costs.sequence / 0.000_06 == pytest.approx(costs.overhead / 0.007)


def test_the_usual_delay_is_known_after_a_few_first_tokens_and_one_outlier_is_forgotten():
    costs = EngineCosts()
    for _ in range(9):
        costs.observe_delay(0.5, 1.0)
    assert 0.35 < costs.delay < 0.5
    costs.observe_delay(1e9, 1.0)
    for _ in range(100):
        costs.observe_delay(-1.0, 1.0)
    assert costs.delay < 0.1


def test_the_usual_delay_of_a_long_prompt_is_as_many_times_that_of_the_mean_prompt():
    costs = EngineCosts()
    for _ in range(50):
        costs.observe_delay(0.2, 0.1)
    assert costs.usual_delay(0.1) == pytest.approx(0.8, rel=0.1)
    assert costs.usual_delay(2.0) == pytest.approx(16.0, rel=0.1)
    assert costs.usual_delay(0.01) == pytest.approx(0.8, rel=0.1), "a delay that does not depend on the prompt stays"


def test_delays_of_a_few_first_tokens_are_not_usual_and_those_of_all_become_so():
    costs = EngineCosts()
    for number in range(200):
        costs.observe_delay(5.0 if number % 20 == 19 else 0.01, 1.0)
    assert costs.delay < 0.05
    for _ in range(120):
        costs.observe_delay(5.0, 1.0)
    assert costs.delay > 4.0


def test_a_copy_is_never_expected_to_be_quicker_than_the_one_that_was_measured():
    costs = EngineCosts(prefill_rate=10_000)
    costs.set_copies(100_000, 2000)
    assert costs.copy(8000) == pytest.approx(0.08)
    assert costs.copy(2000) == costs.copy(1) == pytest.approx(0.02)


def test_what_nobody_computed_is_not_copied_and_without_a_tier_nothing_is():
    costs = EngineCosts()
    assert costs.copied(1000, 3000) == 0
    costs.set_copies(100_000, 2000)
    assert costs.copied(1000, 3000) == 2000
    assert costs.copied(3000, 3000) == costs.copied(3000, 0) == 0
    costs.set_copies(0, 2000)
    assert costs.copied(1000, 3000) == 0


def test_a_tier_that_brings_too_little_is_not_believed_until_it_brings_enough():
    costs = EngineCosts()
    costs.set_copies(100_000, 2000)
    for _ in range(20):
        costs.observe_copy(3000, 0)
    assert costs.copied(0, 3000) == 0
    for _ in range(200):
        costs.observe_copy(3000, 2800)
    assert costs.copied(0, 3000) == 3000
    for _ in range(200):
        costs.observe_copy(3000, 1500)
    assert costs.copied(0, 3000) == 0


@given(st.lists(st.tuples(st.floats(1e-3, 1e9), st.floats(-1e9, 1e9)), max_size=60))
def test_no_report_of_an_engine_makes_a_share_that_is_none(reports):
    costs = EngineCosts()
    for expected, found in reports:
        costs.observe_copy(expected, found)
    assert 0 <= costs.copied_share <= 1


def test_a_clock_that_jumps_ruins_nothing():
    costs = EngineCosts(prefill_rate=10_000)
    for _ in range(10_000):
        costs.observe(1.0, 0.01, 1e9)
    assert costs.rate >= 500
    for _ in range(10_000):
        costs.observe(1.0, 0.01, -1e9)
    assert costs.rate <= 200_000


def test_the_mean_answer_follows_the_first_answers_quickly_and_believes_none_longer_than_a_cache():
    costs = EngineCosts(kv_tokens=10_000)
    for _ in range(20):
        costs.observe_answer(1000)
    assert 900 < costs.answer < 1000
    costs.observe_answer(10**12)
    assert costs.answer < 1500


@pytest.mark.parametrize(("load", "ahead"), [(0, 0), (3, 0), (4, 1), (6, 3)])
def test_a_request_waits_for_a_place_where_an_engine_runs_as_many_as_it_can(load, ahead):
    costs = EngineCosts()
    costs.sequences, costs.answer = 4, 100.0
    assert costs.wait_for_place(load, 0.02) == pytest.approx(ahead * 0.5), "one of four answers ends each half second"
