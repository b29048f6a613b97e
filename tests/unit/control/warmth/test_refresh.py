from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_contract.table import Prompt
from promptgroup_operator.warmth.refresh import (
    EARLY,
    MARGIN,
    REMEMBERED,
    due_at,
    due_refresh,
    first_seen,
    judge_answer,
    next_at,
    pressed,
    seen_after,
)
from promptgroup_operator.world.snapshot import LastSeen, PodCondition, Spent
from promptgroup_operator.world.warming import RefreshAnswer, WarmReason
from support.builders import NOW, TEXT, ago, cold, pod, reading, spec

EVERY = timedelta(minutes=5)
PREFIX = 96
"""Tokens of the builders' prefix."""


def sighting(*, at=NOW, then=None, last=None, lost=None):
    then = then or reading()
    return LastSeen(at, then, last or then, lost)


def condition(reason):
    return PodCondition("True", reason, "", ago(minutes=49))


def replica(*, reason=WarmReason.PROVEN, seen=None, **fields):
    return pod(warm=condition(reason), last_seen=seen or sighting(), **fields)


CACHE = 100_000 + PREFIX
"""Tokens of KV cache: beside the prefix 100,000 fit."""

PRESSURE = {
    "nothing was written": ((0, 0), (0, 0), 0.0, False),
    "less than the margin": ((0, 0), (49_999, 0), 0.0, False),
    "the margin": ((0, 0), (50_000, 0), 0.0, True),
    "answers are written too": ((0, 0), (30_000, 20_000), 0.0, True),
    "what was written before the touch does not count": ((90_000, 9_000), (90_100, 9_100), 0.0, False),
    "blocks that requests held cannot be evicted, so fewer go before the prefix": ((0, 0), (30_000, 0), 0.5, True),
    "a cache that is all held presses with the next token": ((0, 0), (1, 0), 1.0, True),
    "a cache that is all held and written no more does not": ((5, 0), (5, 0), 1.0, False),
    "counters that began anew say nothing": ((90_000, 0), (10, 0), 0.0, False),
}


@pytest.mark.parametrize("case", PRESSURE)
def test_pressure(case):
    (queries, generated), (queries_now, generated_now), usage, expected = PRESSURE[case]
    then = reading(queries, generated=generated, usage=usage, kv_tokens=CACHE)
    last = reading(queries_now, generated=generated_now, kv_tokens=CACHE)
    assert pressed(then, last, PREFIX) is expected


def test_hits_are_taken_out_of_the_queue_before_the_prefix_as_well():
    assert pressed(reading(kv_tokens=CACHE), reading(60_000, 60_000, kv_tokens=CACHE), PREFIX)


def test_the_operators_own_requests_press_nobody():
    assert not pressed(reading(), reading(400_000, own_queries=399_000), PREFIX)
    assert not pressed(reading(9_000, own_queries=9_000), reading(9_100, own_queries=9_000), PREFIX)


def test_prefixes_beside_it_bring_a_refresh_forward_unless_they_evict_each_other():
    seen = sighting(at=ago(seconds=1), last=reading(120_000))
    assert due_at(replica(seen=seen), EVERY) > NOW
    assert due_at(replica(seen=seen, crowd=180_000), EVERY) == seen.at
    assert due_at(replica(seen=seen, crowd=300_000), EVERY) > NOW


def test_an_engine_that_does_not_tell_its_size_is_never_called_pressed():
    assert not pressed(reading(kv_tokens=0), reading(10**9, kv_tokens=0), PREFIX)


UNTOUCHED = {
    "a cold one": cold(last_seen=sighting(at=ago(days=1))),
    "one that terminates": replica(seen=sighting(at=ago(days=1)), deleting=True),
    "one that drains": replica(seen=sighting(at=ago(days=1)), draining_since=NOW),
    "one that was let through": replica(reason=WarmReason.PROCEEDED, seen=sighting(at=ago(days=1))),
    "one whose prefix is too short": replica(reason=WarmReason.SHORT, seen=sighting(at=ago(days=1))),
    "one that was not read yet": replace(replica(), last_seen=None),
    "one whose cache hits at steps longer than the prefix": replica(
        seen=sighting(at=ago(days=1), then=reading(step=128))
    ),
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_who_is_never_touched(case):
    assert due_at(UNTOUCHED[case], EVERY) is None
    assert due_refresh(UNTOUCHED[case], Prompt(TEXT), spec(), EVERY, NOW) is None


@pytest.mark.parametrize("reason", [WarmReason.PROVEN, WarmReason.EVICTED, WarmReason.PRESSED])
def test_a_warm_replica_at_rest_is_touched_within_the_regular_time(reason):
    due = due_at(replica(reason=reason), EVERY)
    assert NOW + EVERY / 2 <= due <= NOW + EVERY


def test_replicas_that_were_proven_together_are_not_touched_together():
    times = {due_at(replica(container_id=f"c{number}", warmed=f"c{number}"), EVERY) for number in range(50)}
    assert len(times) == 50
    assert max(times) - min(times) > EVERY / 4


def test_a_pass_runs_what_is_due_before_the_next_one_and_waits_for_the_rest():
    due = due_at(replica(), EVERY)
    early = due - EARLY * EVERY
    assert due_refresh(replica(), Prompt(TEXT), spec(), EVERY, early) is not None
    assert due_refresh(replica(), Prompt(TEXT), spec(), EVERY, early - timedelta(seconds=1)) is None
    assert next_at(replica(), EVERY, early - timedelta(seconds=1)) == due
    assert next_at(replica(), EVERY, early) == early + (due - NOW)
    assert early >= NOW + EVERY / 2
    assert next_at(cold(), EVERY, NOW) is None


AT_ONCE = {
    "the prefix may be evicted": reading(10**6),
    "another process runs in the container": reading(5),
}


@pytest.mark.parametrize("case", AT_ONCE)
def test_a_replica_whose_prefix_may_be_gone_is_touched_at_once(case):
    then = reading(100)
    assert due_at(replica(seen=sighting(then=then, last=then)), EVERY) > NOW
    given = replica(seen=sighting(then=then, last=AT_ONCE[case]))
    assert due_at(given, EVERY) == NOW
    assert due_refresh(given, Prompt(TEXT), spec(), EVERY, NOW) is not None


def test_a_touch_names_the_container_the_prefix_and_what_must_be_found_of_it():
    given = replica(seen=sighting(at=ago(minutes=5), then=reading(step=64)))
    found = due_refresh(given, Prompt(TEXT), spec(), EVERY, NOW)
    assert (found.pod, found.uid, found.container_id, found.address) == (
        "p0",
        "uid-p0",
        given.container_id,
        "10.0.0.1:8000",
    )
    assert (found.model, found.prompt, found.prefix, found.needed) == ("llama", Prompt(TEXT), 96, 64)
    assert due_refresh(given, Prompt(TEXT), spec(), EVERY, ago(minutes=5)) is None


def a_touch(*, said=WarmReason.PROVEN, lost=None):
    return due_refresh(
        replica(reason=said, seen=sighting(at=ago(minutes=5), lost=lost)), Prompt(TEXT), spec(), EVERY, NOW
    )


CALM, BUSY = reading(10), reading(10**6)
LATELY, LONG_AGO = ago(minutes=5), NOW - REMEMBERED

JUDGED = {
    "in place": (CALM, 96, 96, "PrefixCached", None, None),
    "in place under pressure": (BUSY, 96, 96, "PrefixCached", None, None),
    "in place, lost lately: told on": (CALM, 96, 96, "PrefixEvicted", LATELY, None),
    "in place, lost long ago: told no more": (CALM, 96, 96, "PrefixEvicted", LONG_AGO, "PrefixCached"),
    "in place, pressed long ago: told no more": (CALM, 96, 96, "PrefixEvictedUnderPressure", LONG_AGO, "PrefixCached"),
    "not said": (CALM, None, None, "PrefixCached", None, None),
    "not said by the second request": (CALM, 0, None, "PrefixCached", None, None),
    "reset": (CALM, 0, 96, "PrefixCached", None, "PrefixEvicted"),
    "reset for the second time": (CALM, 0, 96, "PrefixEvicted", LATELY, "PrefixEvicted"),
    "evicted in part": (BUSY, 80, 96, "PrefixCached", None, "PrefixEvicted"),
    "evicted long after the first loss": (BUSY, 0, 96, "PrefixCached", LONG_AGO, "PrefixEvicted"),
    "evicted again": (BUSY, 0, 96, "PrefixEvicted", LATELY, "PrefixEvictedUnderPressure"),
    "evicted again and again": (BUSY, 0, 96, "PrefixEvictedUnderPressure", LATELY, "PrefixEvictedUnderPressure"),
    "computed and gone at once": (CALM, 0, 80, "PrefixCached", None, "PrefixEvictedUnderPressure"),
}


@pytest.mark.parametrize("case", JUDGED)
def test_judge(case):
    counters, cached, then, said, lost, expected = JUDGED[case]
    outcome = judge_answer(
        a_touch(said=WarmReason(said), lost=lost), RefreshAnswer(counters, cached, then, Spent(100, 0)), NOW
    )
    assert (outcome.reason if outcome is not None else None) == expected
    assert outcome is None or outcome.warm  # no touch takes a replica out of service


def test_the_messages_name_the_cause_and_the_way_out():
    def said(counters, lost=None, then=96):
        return judge_answer(a_touch(lost=lost), RefreshAnswer(counters, 16, then, Spent(100, 0)), NOW).message

    reset = (
        "16 of 96 prefix tokens were left in cache without pressure (the cache was reset); the rest was computed again"
    )
    assert said(CALM) == reset
    assert "other requests evicted the rest" in said(BUSY)
    assert "add replicas, or give the cache more memory" in said(BUSY, LATELY)
    assert "does not report the size of its cache" in said(replace(CALM, kv_tokens=0))
    assert "evicted at once" in said(CALM, then=0)


def test_a_touch_is_the_next_sighting():
    given, took = a_touch(lost=LATELY), timedelta(seconds=2)

    def seen(*answer):
        return seen_after(given, RefreshAnswer(BUSY, *answer), took, NOW)

    assert seen(96, 96, Spent(1, 1)) == LastSeen(NOW, BUSY, BUSY, LATELY)
    assert seen(None, None, Spent(1, None)) == LastSeen(NOW, BUSY, BUSY, LATELY)
    assert seen(0, 96, Spent(1, 1)) == LastSeen(NOW, BUSY, BUSY, NOW, 2.0)


def test_the_time_of_the_latest_rewarming_stands_while_the_prefix_is_found():
    rewarmed = replace(a_touch(), last_seen=replace(a_touch().last_seen, rewarmed_in=2.0))
    found = seen_after(rewarmed, RefreshAnswer(BUSY, 96, 96, Spent(1, 1)), timedelta(seconds=9), NOW)
    assert found.rewarmed_in == 2.0


def test_a_new_process_learns_of_a_loss_from_the_pod():
    assert first_seen(replica(), CALM, NOW) == LastSeen(NOW, CALM, CALM, None)
    assert first_seen(replica(reason=WarmReason.EVICTED), CALM, NOW) == LastSeen(NOW, CALM, CALM, NOW)


def test_the_margin_leaves_room_for_blocks_that_are_filled_in_part():
    assert 0 < MARGIN <= 0.5


def test_a_prefix_that_a_tier_brought_back_says_so():
    touch = a_touch()
    for counters in (CALM, BUSY):
        found = judge_answer(touch, RefreshAnswer(counters, 16, 96, Spent(200, 176, 2, 80), copied=80), NOW)
        assert found.reason is WarmReason.EVICTED
        assert "16 of 96 prefix tokens were left in cache" in found.message
        assert "copied from a KV tier (80 tokens) or computed again" in found.message


def test_the_busiest_rank_presses_the_cache_that_it_has():
    then, last = (
        replace(reading(kv_tokens=2 * CACHE, queries=sum(taken)), by_rank=taken, ranks=2)
        for taken in ((1000.0, 1000.0), (1000.0, 50_999.0))
    )
    assert not pressed(then, last, PREFIX)
    assert pressed(then, replace(last, by_rank=(51_000.0, 1000.0)), PREFIX)
    # both together write that much, and neither has: a bound of all ranks would call for a refresh
    assert not pressed(then, replace(last, by_rank=(49_000.0, 49_000.0)), PREFIX)
    # a page that lost its ranks is taken for one of a single cache
    assert pressed(then, replace(last, queries=52_001, by_rank=()), PREFIX)


def test_each_rank_is_refreshed():
    assert due_refresh(replica(seen=sighting(at=ago(hours=1)), ranks=4), Prompt(TEXT), spec(), EVERY, NOW).ranks == 4
