"""Which threshold a sample proves."""

import random

import pytest

from promptgroup_cli.calibration.choice import RISK, choose, fewest, outcome
from promptgroup_cli.calibration.pairs import Judged, Pair
from promptgroup_cli.calibration.proportions import at_most


def judged(similarity, same=True):
    return Judged(Pair("a", "b", same), similarity)


def test_what_is_similar_is_answered():
    sample = [judged(0.9), judged(0.9, same=False), judged(0.7)]
    assert outcome(sample, 0.8) == (0.8, 3, 2, 2, 1)


@pytest.mark.parametrize(("errors", "precision"), [(0, 0.99), (1, 0.99), (7, 0.95), (15, 0.9)])
def test_the_fewest_pairs_that_prove_a_precision_are_the_fewest(errors, precision):
    needed = fewest(errors, precision)
    assert at_most(errors, needed, 1 - precision) <= RISK / 5 < at_most(errors, needed - 1, 1 - precision)


def test_a_sample_without_errors_is_answered_down_to_its_least_similar_pairs():
    sample = [judged(0.6 + 0.4 * n / 2000) for n in range(2000)]
    assert choose(sample, 0.99).threshold == 0.5


def test_a_sample_that_is_too_small_proves_nothing():
    assert choose([judged(1.0)] * (fewest(0, 0.99) - 1), 0.99) is None
    assert choose([judged(1.0)] * fewest(0, 0.99), 0.99) is not None
    assert choose([], 0.99) is None


def test_one_wrong_judgement_at_the_top_does_not_end_it():
    sample = [judged(1.0, same=False), *(judged(0.9) for _ in range(3000))]
    assert choose(sample, 0.99).threshold <= 0.9


@pytest.mark.heavy
def test_the_precision_is_what_was_asked_for_more_often_than_the_risk():
    # errors become more frequent below 0.8: the true precision of each threshold is known
    draws = random.Random(1)

    def wrong(similarity):
        return 0.01 if similarity > 0.8 else 0.2

    def precision(threshold):
        grid = [threshold + (1 - threshold) * (n + 0.5) / 1000 for n in range(1000)]
        return 1 - sum(map(wrong, grid)) / 1000

    failures = found = 0
    for _ in range(30):
        similarities = [draws.uniform(0.5, 1) for _ in range(800)]
        chosen = choose([judged(each, draws.random() > wrong(each)) for each in similarities], 0.95)
        found += chosen is not None
        failures += chosen is not None and precision(chosen.threshold) < 0.95
    assert found > 20
    assert failures <= 4  # 5 % of 30, and what chance adds
