import itertools
import random
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_operator.api.prompt_group import JudgeSpec
from promptgroup_operator.rollout.analysis import AnalysisOutcome, analyse, greater
from promptgroup_operator.world.samples import Histogram, Stratum, StratumKey

SPEC = JudgeSpec()
BOUNDS = tuple(0.01 * 2 ** (step / 2) for step in range(16))
SHARES = tuple(tenth / 10 for tenth in range(11))
LATER = StratumKey("later")
MINUTE = timedelta(minutes=1)
PASS, WAIT, FAIL = AnalysisOutcome.PASS, AnalysisOutcome.WAIT, AnalysisOutcome.FAIL


def histogram(values, bounds=BOUNDS):
    counts = [0.0] * (len(bounds) + 1)
    for value in values:
        counts[next((i for i, bound in enumerate(bounds) if value <= bound), len(bounds))] += 1
    return Histogram(bounds, tuple(counts))


def drawn(seed, requests, *, seconds=0.1, errors=0.0, cached=0.9, tail=0.0, spread=0.5):
    """Requests of one stratum: log-normal times to first token."""
    draw = random.Random(seed)
    times = [seconds * draw.lognormvariate(0, spread) * (10 if draw.random() < tail else 1) for _ in range(requests)]
    shares = [min(1.0, max(0.0, draw.gauss(cached, 0.05))) for _ in range(requests)]
    failed = sum(draw.random() < errors for _ in range(requests))
    return Stratum(requests, failed, histogram(times), histogram(shares, SHARES))


def sample(seed, requests=300, **fields):
    return {StratumKey(): drawn(seed, requests, **fields), LATER: drawn(seed + 10_000, requests, **fields)}


RESULTS = {
    "the same": ({}, PASS, "NotWorse"),
    "better": ({"seconds": 0.05}, PASS, "NotWorse"),
    "a little slower, less than it may be": ({"seconds": 0.11}, PASS, "NotWorse"),
    "slower": ({"seconds": 0.15}, FAIL, "TimeToFirstToken"),
    "slower at the end only": ({"tail": 0.15}, FAIL, "TimeToFirstToken"),
    "more errors": ({"errors": 0.1}, FAIL, "ErrorRate"),
    "less in cache": ({"cached": 0.6}, FAIL, "HitRate"),
}


@pytest.mark.parametrize("case", RESULTS)
def test_results(case):
    fields, outcome, reason = RESULTS[case]
    result = analyse(sample(1), sample(2, **fields), SPEC, MINUTE)
    assert (result.outcome, result.reason) == (outcome, reason)


def test_a_failure_tells_both_figures():
    result = analyse({StratumKey(): Stratum(1000, 10)}, {StratumKey(): Stratum(1000, 80)}, SPEC, MINUTE)
    assert "8.0% of requests failed, 1.0% with the old revision (first turns by name, streamed)" in result.message


@pytest.mark.parametrize(("worse", "equal", "words"), [(LATER, StratumKey(), "later"), (StratumKey(), LATER, "first")])
def test_figures_are_those_of_the_requests_that_differ_most(worse, equal, words):
    old = {equal: drawn(1, 300), worse: drawn(2, 300)}
    new = {equal: drawn(3, 300), worse: drawn(4, 300, seconds=0.3, cached=0.5)}
    tolerant = JudgeSpec(max_ttft_rise_percent=1000, max_hit_rate_drop_percent=100)
    message = analyse(old, new, tolerant, MINUTE).message
    assert re.findall(r"(p50|in cache)[^(]*\((\w+) turns", message) == [("p50", words), ("in cache", words)]


@pytest.mark.parametrize(("old", "new"), [(49, 900), (900, 49), (0, 0)])
def test_too_few_requests_of_either_are_waited_for(old, new):
    result = analyse({StratumKey(): Stratum(old)}, {StratumKey(): Stratum(new)}, SPEC, MINUTE)
    assert (result.outcome, result.reason) == (WAIT, "TooFewRequests")
    assert f"{new} requests of the new revision and {old} of the old one can be compared" in result.message


WHOLE = StratumKey(streamed=False)


@pytest.mark.parametrize("streams", [0, 9])
def test_a_release_whose_streams_have_not_ended_yet_is_not_promoted(streams):
    """Slow engines end whole answers sooner than streams: these alone say nothing of the time to first token."""
    old = {WHOLE: Stratum(60), StratumKey(): drawn(1, 60)}
    new = {WHOLE: Stratum(60 - streams)}
    if streams:
        new[StratumKey()] = drawn(2, streams, seconds=5.0)
    result = analyse(old, new, SPEC, MINUTE)
    assert (result.outcome, result.reason) == (WAIT, "TooFewRequests")
    assert f"{streams} streamed answers of each revision" in result.message
    assert analyse(old, {**new, StratumKey(): drawn(2, 10, seconds=5.0)}, SPEC, MINUTE).outcome is FAIL


def test_streams_are_not_waited_for_without_end():
    """Where clients seldom stream, a step takes at most twice as many requests."""
    old, new = {WHOLE: Stratum(900), StratumKey(): drawn(1, 2)}, {WHOLE: Stratum(99)}
    assert analyse(old, new, SPEC, MINUTE).outcome is WAIT
    assert analyse(old, {WHOLE: Stratum(100)}, SPEC, MINUTE).outcome is PASS
    assert analyse({WHOLE: Stratum(50)}, {WHOLE: Stratum(50)}, SPEC, MINUTE).outcome is PASS


def test_streams_of_clients_that_cannot_reach_the_new_revision_are_not_waited_for():
    """Clients that bring the old prompt stay with its revision: their streams say nothing of the other one's."""
    old = {WHOLE: Stratum(60), StratumKey(how="content"): drawn(1, 60)}
    assert analyse(old, {WHOLE: Stratum(60)}, SPEC, MINUTE).outcome is PASS
    assert analyse({**old, StratumKey(): drawn(2, 1)}, {WHOLE: Stratum(60)}, SPEC, MINUTE).outcome is WAIT


def test_requests_that_cannot_be_compared_do_not_count():
    old, new = {LATER: Stratum(900)}, {StratumKey(): Stratum(900, 900)}
    assert analyse(old, new, SPEC, MINUTE).reason == "TooFewRequests"


def test_worse_by_chance_is_waited_for():
    result = analyse({StratumKey(): Stratum(60, 0)}, {StratumKey(): Stratum(60, 2)}, SPEC, MINUTE)
    assert (result.outcome, result.reason) == (WAIT, "Undecided")


def test_a_mix_of_younger_sessions_is_not_taken_for_a_slower_engine():
    old = {StratumKey(): drawn(1, 100, seconds=1.0), LATER: drawn(2, 2000, seconds=0.05)}
    new = {StratumKey(): drawn(3, 400, seconds=1.0), LATER: drawn(4, 100, seconds=0.05)}
    assert analyse(old, new, SPEC, MINUTE).outcome is PASS
    slower = {StratumKey(): drawn(3, 400, seconds=1.6), LATER: drawn(4, 100, seconds=0.08)}
    assert analyse(old, slower, SPEC, MINUTE).outcome is FAIL


@pytest.mark.slow
def test_false_alarms_over_all_looks_of_a_step_stay_below_the_error_allowed():
    """One revision against itself, looked at after every tenth request: the same judgement again and again."""
    alarms = 0
    for seed in range(200):
        draw = random.Random(seed)
        old, new = Stratum(), Stratum()
        strict = JudgeSpec(max_error_rise_percent=0, max_ttft_rise_percent=0, max_hit_rate_drop_percent=0)
        for look in range(40):
            old += drawn(draw.random(), 10, errors=0.05)
            new += drawn(draw.random(), 10, errors=0.05)
            if look >= 4 and analyse({StratumKey(): old}, {StratumKey(): new}, strict, MINUTE).outcome is FAIL:
                alarms += 1
                break
    assert alarms <= 200 * 0.05


def mann_whitney(first, second):
    """U by its definition: pairs in which the second is greater, ties half."""
    return sum((b > a) + (a == b) / 2 for a, b in itertools.product(first, second))


def test_the_rank_test_agrees_with_its_definition():
    draw = random.Random(5)
    for _ in range(20):
        first = [draw.randint(0, 6) for _ in range(draw.randint(5, 30))]
        second = [draw.randint(0, 7) for _ in range(draw.randint(5, 30))]
        bounds = tuple(float(i) for i in range(8))
        p = greater([(histogram(first, bounds), histogram(second, bounds))])
        above = mann_whitney(first, second) - len(first) * len(second) / 2
        assert (p < 0.5) == (above > 0) or above == 0


def test_the_rank_test_against_tabulated_values():
    """scipy.stats.mannwhitneyu(b, a, alternative="greater", method="asymptotic", use_continuity=False)."""
    a, b = [1, 2, 2, 3, 3, 3, 4, 5], [2, 3, 4, 4, 5, 5, 6, 6]
    bounds = tuple(float(i) for i in range(8))
    assert greater([(histogram(a, bounds), histogram(b, bounds))]) == pytest.approx(0.024043203438279846, rel=1e-9)


def test_strata_that_agree_weigh_more_than_one():
    pair = (histogram([0.1] * 20 + [0.2] * 20), histogram([0.1] * 14 + [0.2] * 26))
    assert greater([pair, pair]) < greater([pair])


def clients(seed, streams, whole, *, slower=1.0):
    """Streams of 25 to 50 ms beside whole answers, whose first byte is their end: no time is counted for them."""
    draw = random.Random(seed)
    times = histogram([slower * draw.uniform(0.025, 0.05) for _ in range(streams)])
    return {StratumKey(): Stratum(streams, 0, times), StratumKey(streamed=False): Stratum(whole)}


@pytest.mark.parametrize(("streams", "whole"), [(20, 40), (0, 100), (60, 0)])
def test_how_many_clients_stream_says_nothing_of_a_revision(streams, whole):
    assert analyse(clients(1, 500, 500), clients(2, streams, whole), SPEC, MINUTE).outcome is PASS


@pytest.mark.parametrize(("streams", "outcome"), [(9, PASS), (10, FAIL)])
def test_fewer_than_ten_streams_say_nothing_of_the_time_to_first_token(streams, outcome):
    result = analyse(clients(1, 500, 500), clients(2, streams, 100, slower=20.0), SPEC, MINUTE)
    assert result.outcome is outcome
    assert ("first token" in result.message) == (outcome is FAIL)


def test_slow_streams_are_not_hidden_by_fewer_whole_answers():
    result = analyse(clients(1, 400, 600), clients(2, 100, 20, slower=2.0), SPEC, MINUTE)
    assert (result.outcome, result.reason) == (FAIL, "TimeToFirstToken")


def test_the_figures_are_those_of_one_kind_of_request():
    old = {StratumKey(how="name"): drawn(1, 400, seconds=0.1), StratumKey(how="content"): drawn(2, 400, seconds=0.02)}
    new = {StratumKey(how="name"): drawn(3, 400, seconds=0.1), StratumKey(how="content"): drawn(4, 400, seconds=0.06)}
    result = analyse(old, new, SPEC, MINUTE)
    assert result.outcome is FAIL
    found = re.search(
        r"p50 (\d+) ms, (\d+) ms with the old revision \(first turns by content, streamed\)", result.message
    )
    assert found is not None
    assert 50 < int(found[1]) < 70
    assert 16 < int(found[2]) < 24


def test_a_gross_fault_fails_before_the_least_number_of_requests():
    result = analyse({StratumKey(): Stratum(40)}, {StratumKey(): Stratum(10, 10)}, SPEC, MINUTE)
    assert (result.outcome, result.reason) == (FAIL, "ErrorRate")
    assert analyse({StratumKey(): Stratum(40)}, {StratumKey(): Stratum(9, 9)}, SPEC, MINUTE).outcome is WAIT
    assert analyse({StratumKey(): Stratum(40)}, {StratumKey(): Stratum(10)}, SPEC, MINUTE).outcome is WAIT


@pytest.mark.parametrize(
    ("requests", "elapsed", "expected"),
    [
        (25, timedelta(minutes=2), "are needed of each: about 2 minutes more at this rate"),
        (49, timedelta(minutes=1), "about 1 minute more at this rate"),
        (1, timedelta(minutes=30), "about 25 hours more at this rate; lower rollout.judge.minRequests or raise"),
        (0, timedelta(minutes=30), "50 are needed of each"),
    ],
)
def test_a_step_with_too_few_requests_says_how_long_it_will_take(requests, elapsed, expected):
    result = analyse({StratumKey(): Stratum(900)}, {StratumKey(): Stratum(requests)}, SPEC, elapsed)
    assert (result.outcome, result.reason) == (WAIT, "TooFewRequests")
    assert expected in result.message


@pytest.mark.parametrize(("part", "outcome"), [(0.9, PASS), (1.1, FAIL)])
def test_however_many_requests_there_are_only_more_than_a_limit_fails(part, outcome):
    spec = JudgeSpec(max_error_rise_percent=5, max_hit_rate_drop_percent=10)
    failed = {StratumKey(): Stratum(100_000, 1000 + part * 5000)}
    assert analyse({StratumKey(): Stratum(100_000, 1000)}, failed, spec, MINUTE).outcome is outcome
    lost = part * 0.1 / 0.8 * 100_000  # from the bucket around 85 % to that around 5 %
    before, after = (
        Stratum(100_000, cached=Histogram(SHARES, (0.0, missing, *[0.0] * 7, 100_000 - missing, 0.0, 0.0)))
        for missing in (0.0, lost)
    )
    assert analyse({StratumKey(): before}, {StratumKey(): after}, spec, MINUTE).outcome is outcome


@pytest.mark.parametrize(("part", "outcome"), [(0.8, PASS), (1.2, FAIL)])
@pytest.mark.parametrize("percent", [50, 200])
def test_however_many_streams_there_are_only_a_rise_above_the_limit_fails(percent, part, outcome):
    spec = JudgeSpec(max_ttft_rise_percent=percent)
    even = tuple(0.01 * step for step in range(1, 101))

    def around(seconds):
        """Times within ten milliseconds of so many seconds: their quantiles are what they are."""
        return Stratum(100_000, 0, histogram([seconds - 0.005, seconds + 0.005] * 50_000, even))

    old, new = {StratumKey(): around(0.2)}, {StratumKey(): around(0.2 * (1 + part * percent / 100))}
    assert analyse(old, new, spec, MINUTE).outcome is outcome


OTHER = StratumKey("other")


def test_what_routers_count_apart_fails_nothing():
    """Sessions that came home from a replica that was lent found nothing there, once."""
    old = {LATER: drawn(1, 300, seconds=0.02), OTHER: drawn(2, 10, seconds=0.02)}
    new = {LATER: drawn(3, 300, seconds=0.02), OTHER: drawn(4, 90, seconds=0.2, errors=0.5, cached=0.1)}
    assert analyse(old, new, SPEC, MINUTE).outcome is PASS
    assert analyse({OTHER: old[OTHER]}, {OTHER: new[OTHER]}, SPEC, MINUTE).reason == "TooFewRequests"


@pytest.mark.parametrize(("seconds", "outcome"), [(0.1, PASS), (0.4, WAIT)])
def test_a_replica_at_which_all_streams_wait_passes_only_if_they_wait_no_longer_than_with_the_old_one(seconds, outcome):
    """Their time fails nothing, since a queue is load; but one that is slow makes a queue, too."""
    whole = {WHOLE: Stratum(200), StratumKey(): Stratum(0)}
    old, new = {**whole, OTHER: drawn(1, 100)}, {**whole, OTHER: drawn(2, 100, seconds=seconds)}
    result = analyse(old, new, SPEC, MINUTE)
    assert result.outcome is outcome
    assert ("only 0 of each revision can be compared" in result.message) == (outcome is WAIT)


@pytest.mark.parametrize(
    ("how", "own", "outcome"),
    [("content", 100, FAIL), ("content", 180, FAIL), ("content", 400, PASS), ("name", 400, FAIL)],
)
def test_clients_that_choose_the_new_revision_and_ask_for_more_are_not_taken_for_a_slower_engine(how, own, outcome):
    """Those that name the group do not choose."""
    key = StratumKey(how=how)
    old = {key: replace(drawn(1, 300, seconds=0.1), own=300 * 100)}
    new = {key: replace(drawn(2, 300, seconds=0.3), own=300 * own)}
    assert analyse(old, new, SPEC, MINUTE).outcome is outcome


@pytest.mark.parametrize("how", ["content", "name"])
@pytest.mark.parametrize(("found", "outcome"), [(4000, FAIL), (3950, FAIL), (3000, PASS), (0, PASS)])
def test_what_sessions_share_and_the_new_revision_has_not_cached_yet_is_not_taken_for_a_slower_engine(
    how, found, outcome
):
    """Each request has 4,100 tokens beyond the declared prompt, 4,000 of them of a document that others brought."""
    key = StratumKey(how=how)
    old = {key: replace(drawn(1, 300, seconds=0.1), own=300 * 4100, shared=300 * 4000)}
    new = {key: replace(drawn(2, 300, seconds=0.3), own=300 * 4100, shared=300 * found)}
    assert analyse(old, new, SPEC, MINUTE).outcome is outcome


@pytest.mark.parametrize("few", range(1, 6))
def test_figures_that_are_worse_by_less_than_they_may_be_are_a_verdict_whatever_the_mix(few):
    """A stratum with few requests of the old revision and many of the new one counts for what it can tell."""
    even = tuple(0.01 * step for step in range(1, 101))

    def times(*seconds):
        return Stratum(len(seconds), 0, histogram(seconds, even))

    old = {StratumKey(): times(*[0.28] * 200), LATER: times(*[0.03] * few)}
    new = {StratumKey(): times(*[0.283] * 60), LATER: times(*[0.035] * 60)}
    result = analyse(old, new, SPEC, MINUTE)
    assert (result.outcome, result.reason) == (PASS, "NotWorse")


def test_the_figures_shown_are_worse_by_more_than_the_limit_where_the_verdict_says_so():
    """The stratum that differs most surely may differ by less than the limit."""
    even = tuple(0.01 * step for step in range(1, 201))

    def times(seconds, requests):
        return Stratum(requests, 0, histogram([seconds] * requests, even))

    old = {StratumKey(): times(1.00, 9000), LATER: times(0.1, 100)}
    new = {StratumKey(): times(1.02, 9000), LATER: times(0.19, 100)}
    message = analyse(old, new, JudgeSpec(max_ttft_rise_percent=1), MINUTE).message
    assert "first turns" in message
    limit = JudgeSpec(max_ttft_rise_percent=25)
    assert analyse(old, new, limit, MINUTE).outcome is PASS
    more = {StratumKey(): times(1.02, 50), LATER: times(1.9, 100)}
    assert "(later turns by name, streamed)" in analyse(old, more, limit, MINUTE).message


ALONE = {
    # requests of the old revision that can be compared, of the new one, its errors, hours → outcome, reason
    "hardly any to compare with": (9, 60, 0, 2, PASS, "NotCompared"),
    "enough for a gross fault": (10, 60, 0, 2, WAIT, "TooFewRequests"),
    "too few of its own": (0, 49, 0, 2, WAIT, "TooFewRequests"),
    "it fails": (0, 60, 3, 2, WAIT, "TooFewRequests"),
    "not yet": (0, 60, 0, 1, WAIT, "TooFewRequests"),
}


@pytest.mark.parametrize("case", ALONE)
def test_what_nothing_can_be_compared_with_passes_at_the_deadline_by_its_own_requests(case):
    before, after, errors, hours, outcome, reason = ALONE[case]
    old = {StratumKey("later", "content", streamed=False): Stratum(500), StratumKey(): Stratum(before)}
    new = {StratumKey(): Stratum(after - 5, errors), StratumKey("other"): Stratum(5)}
    result = analyse(old, new, SPEC, timedelta(hours=hours), timedelta(hours=2))
    assert (result.outcome, result.reason) == (outcome, reason)
    if outcome is PASS:
        assert "0.0% of 60 requests failed" in result.message
        assert "9 of the old revision could be compared" in result.message


@pytest.mark.parametrize("shifted", ["cached", "first_token"])
def test_histograms_with_other_bounds_are_not_compared(shifted):
    def told(stratum):
        found = getattr(stratum, shifted)
        bounds = tuple(bound * 1.5 for bound in found.bounds)
        return replace(stratum, **{shifted: Histogram(bounds, found.counts)})

    worse = {"cached": {"cached": 0.2}, "first_token": {"seconds": 0.5}}[shifted]
    assert analyse(sample(1), sample(2, **worse), SPEC, MINUTE).outcome is FAIL
    other = {key: told(stratum) for key, stratum in sample(2, **worse).items()}
    assert analyse(sample(1), other, SPEC, MINUTE).outcome is not FAIL
