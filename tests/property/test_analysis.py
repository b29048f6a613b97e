"""Releases under every mix of clients: equal revisions are seldom rolled back, and worse ones nearly always.

Decision 0017 has the same figures over 2,000 steps of each mix.

Clients differ in ways that have nothing to do with the revision: those that name the group may ask for whole answers
while those that bring its prompt stream, and a canary gets only some of them.
"""

import math
import random
from bisect import bisect_left
from collections import defaultdict
from datetime import timedelta
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.api.prompt_group import JudgeSpec
from promptgroup_operator.rollout.analysis import COMPARISONS, EARLY, AnalysisOutcome, analyse, significant
from promptgroup_operator.world.samples import Histogram, Stratum, StratumKey, histogram
from promptgroup_router.base.metrics import CACHED_BUCKETS, FIRST_TOKEN_BUCKETS

SEEDS = 100
REQUESTS = 400
"""Requests of the new revision in a step."""
OLD = 9
"""Times as many that the old revision gets: a canary of ten percent."""
LOOK = 20
"""Requests of the new revision between two analyses."""
STRICT = JudgeSpec(max_error_rise_percent=0, max_ttft_rise_percent=0, max_hit_rate_drop_percent=0)
"""Limits of nothing: what remains is the significance of a difference, which `confidencePercent` bounds."""

NAMED_STREAMS, NAMED_WHOLE = ("name", True), ("name", False)
MATCHED_STREAMS, MATCHED_WHOLE = ("content", True), ("content", False)

MIXES = {
    "half of all stream": ((NAMED_STREAMS, NAMED_WHOLE), (NAMED_STREAMS, NAMED_WHOLE)),
    "the canary gets clients by name, which want whole answers": (
        (NAMED_WHOLE, MATCHED_STREAMS), (NAMED_WHOLE, NAMED_WHOLE, NAMED_WHOLE, MATCHED_STREAMS),
    ),
    "the canary gets clients by name, and few by content": (
        (NAMED_STREAMS, MATCHED_STREAMS, MATCHED_WHOLE), (NAMED_STREAMS, NAMED_STREAMS, NAMED_STREAMS, MATCHED_WHOLE),
    ),
    "the canary gets whole answers nearly alone": (
        (NAMED_STREAMS,) * 9 + (NAMED_WHOLE,), (NAMED_WHOLE,) * 9 + (NAMED_STREAMS,),
    ),
}  # fmt: skip
"""Clients of the old and of the new revision."""


class Requests:
    """The requests of one revision, drawn one by one."""

    def __init__(self, seed, clients, *, slower=1.0, errors=0.0, uncached=0.0):
        self._draw = random.Random(seed)
        self._clients, self._slower, self._errors, self._uncached = clients, slower, errors, uncached
        self._counts = defaultdict(lambda: [0, 0])
        self._times = defaultdict(lambda: [0.0] * (len(FIRST_TOKEN_BUCKETS) + 1))
        self._shares = defaultdict(lambda: [0.0] * (len(CACHED_BUCKETS) + 1))

    def come(self, count):
        """So many more requests end. A stream's first token takes 20 to 80 ms; kinds of clients differ in all of it."""
        draw = self._draw
        for _ in range(count):
            how, streamed = draw.choice(self._clients)
            key = StratumKey("first" if draw.random() < 0.4 else "later", how, streamed)
            named, first = how == "name", key.turn == "first"
            counts = self._counts[key]
            counts[0] += 1
            if draw.random() < (0.02 if named else 0.005) + self._errors:
                counts[1] += 1
                continue
            if streamed:
                seconds = (0.05 if first else 0.025) * (1.6 if named else 1.0) * draw.lognormvariate(0, 0.5)
                self._times[key][bisect_left(FIRST_TOKEN_BUCKETS, seconds * self._slower)] += 1
            share = (0.6 if first else 0.9) - (0.1 if named else 0.0) - self._uncached + draw.gauss(0, 0.05)
            self._shares[key][bisect_left(CACHED_BUCKETS, min(1.0, max(0.0, share)))] += 1

    def sample(self):
        """As routers count them."""
        return {
            key: Stratum(
                *counts,
                Histogram(FIRST_TOKEN_BUCKETS, tuple(self._times[key])) if key.streamed else Histogram(),
                Histogram(CACHED_BUCKETS, tuple(self._shares[key])),
            )
            for key, counts in self._counts.items()
        }


def step_fails(seed, mix, spec, **worse):
    """Return after how many requests of the new revision a step is rolled back, or None."""
    old, new = Requests(seed, mix[0]), Requests(seed + 1_000_000, mix[1], **worse)
    for come in range(LOOK, REQUESTS + 1, LOOK):
        old.come(OLD * LOOK)
        new.come(LOOK)
        result = analyse(old.sample(), new.sample(), spec, timedelta(minutes=1))
        if result.outcome is AnalysisOutcome.FAIL:
            return come
    return None


@pytest.mark.heavy
def test_a_sum_that_is_compared_at_every_step_crosses_the_boundary_no_more_often_than_the_error():
    """The boundary alone: a random walk without drift, looked at after each of 2,000 steps."""
    spec, paths = JudgeSpec(), 2000
    normal = NormalDist()
    bounds = [-normal.inv_cdf(significant(n, spec)) * math.sqrt(n) for n in range(EARLY, 2000)]
    crossed = 0
    for seed in range(paths):
        draw = random.Random(seed)
        at = draw.gauss(0, math.sqrt(EARLY))
        for bound in bounds:
            if at > bound:
                crossed += 1
                break
            at += draw.gauss()
    error = (1 - spec.confidence_percent / 100) / COMPARISONS
    assert error / 4 <= crossed / paths <= error


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_equal_revisions_are_rolled_back_no_more_often_than_the_confidence_says(mix):
    failed = sum(step_fails(seed, MIXES[mix], STRICT) is not None for seed in range(SEEDS))
    assert failed <= SEEDS * (1 - STRICT.confidence_percent / 100)


WORSE = {
    "streams twice as slow": {"slower": 2.0},
    "a tenth of the requests fail": {"errors": 0.1},
    "a fifth less of each prompt is in cache": {"uncached": 0.2},
}


@pytest.mark.heavy
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("worse", WORSE)
def test_worse_revisions_are_rolled_back_in_nine_of_ten_steps(mix, worse):
    failed = sum(step_fails(seed, MIXES[mix], JudgeSpec(), **WORSE[worse]) is not None for seed in range(50))
    assert failed >= 45


COUNTS = st.floats(0, 1e15) | st.integers(0, 300)
HISTOGRAMS = st.dictionaries(st.sampled_from([0.0, 0.1, 0.2, 1.0, math.inf, -math.inf]), COUNTS).map(histogram)
STRATA = st.builds(Stratum, COUNTS, COUNTS, HISTOGRAMS, HISTOGRAMS)
KEYS = st.builds(StratumKey, st.sampled_from(["first", "later"]), st.just("name"), st.booleans())
SAMPLES = st.dictionaries(KEYS, st.builds(lambda a, b, c: a + b - c, STRATA, STRATA, STRATA))


@pytest.mark.heavy
@given(SAMPLES, SAMPLES)
def test_whatever_routers_count_there_is_a_result(old, new):
    """Routers of two versions have other buckets, and anybody's pod may say that it is a router."""
    assert analyse(old, new, JudgeSpec(), timedelta(minutes=1)).message
