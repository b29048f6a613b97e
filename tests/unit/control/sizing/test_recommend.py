from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_operator.sizing.recommend import SizingInput, least, replicas
from promptgroup_operator.world.load import PERIOD, PromptDrift
from promptgroup_operator.world.sizing_history import NEW, Cause, GroupShape, History, Past, Recommendation, Wave
from support.builders import NOW, ago, spec
from support.loads import load

BOUNDS = {"replicas": None, "sizing": {"minReplicas": 2, "maxReplicas": 4}}


def group(current=4, seen=None, **fields):
    return SizingInput(current, current or 0, "a", seen, **fields)


SIZES = {
    "fixed": ({"replicas": 3}, 7, 3, "FixedReplicas"),
    "fixed to none": ({"replicas": 0}, 7, 0, "FixedReplicas"),
    "nothing said is one": ({"replicas": None}, 7, 1, "FixedReplicas"),
    "bounds begin at the least": (BOUNDS, None, 2, "FailedGetMetrics"),
    "bounds hold what there is": (BOUNDS, 3, 3, "FailedGetMetrics"),
    "bounds raise what is too little": (BOUNDS, 1, 2, "FailedGetMetrics"),
    "bounds raise nothing at all": (BOUNDS, 0, 2, "FailedGetMetrics"),
    "bounds cut what is too much": (BOUNDS, 9, 4, "FailedGetMetrics"),
}


@pytest.mark.parametrize("case", SIZES)
def test_without_a_load_there_are_bounds(case):
    fields, current, value, reason = SIZES[case]
    verdict = replicas(spec(**fields), group(current), NEW, NOW)
    assert (verdict.value, verdict.reason, verdict.active) == (value, reason, False)


LOOKS = {
    "not observed": (None, None, False),
    "busy": (load(), PERIOD, True),
    "nobody asks": (load(0), None, True),
    "just begun": (replace(load(), engines=None, early=True), PERIOD, False),
    "nothing can be read": (load(stale="gone"), None, False),
}


@pytest.mark.parametrize("case", LOOKS)
def test_a_fixed_number_is_followed_while_there_is_something_to_see_and_has_no_conditions_of_scaling(case):
    seen, again, modelled = LOOKS[case]
    verdict = replicas(spec(replicas=3), group(3, seen), NEW, NOW)
    assert (verdict.value, verdict.able, verdict.limited) == (3, None, None)
    assert (verdict.requeue_after, verdict.model is not None) == (again, modelled)
    assert (verdict.requested is not None) == modelled


@pytest.mark.parametrize(
    ("seen", "asked"),
    [(load(0), 1), (load(40, usage=0.45, sessions=300), 5), (load(400, usage=0.9, sessions=9000), 17)],
)
def test_whoever_else_decides_the_number_is_told_what_the_load_asks_for(seen, asked):
    free = {"replicas": None, "sizing": {"maxReplicas": 16}}
    assert replicas(spec(replicas=4), group(4, seen), NEW, NOW).requested == asked
    assert replicas(spec(**free), group(4, seen), NEW, NOW).requested == asked


def test_a_group_that_may_sleep_has_one_replica_as_far_as_its_load_goes():
    may_sleep = {"replicas": None, "sizing": {"minReplicas": 0, "maxReplicas": 4}}
    assert replicas(spec(**may_sleep), group(0), NEW, NOW).value == 1
    assert replicas(spec(**may_sleep), group(1, load(0)), NEW, NOW).value == 1


def test_the_dip_after_a_change_of_a_fixed_number_is_known_to_be_its_own():
    first = replicas(spec(replicas=3), group(3, load(hit_rate=0.9)), NEW, NOW)
    second = replicas(spec(replicas=5), group(3, load(hit_rate=0.7)), first.history, NOW + PERIOD)
    assert (second.wave, second.history.wave.hit_rate) == (Cause.SCALING, 0.9)


def test_what_was_asked_for_and_done_is_remembered():
    seen = load(40, usage=0.45, sessions=300)
    first = replicas(spec(**BOUNDS | {"sizing": {"maxReplicas": 9}}), group(4, seen), NEW, NOW)
    assert first.value == 5
    assert [each.by for each in first.history.past.changes] == [1]
    assert [each.value for each in first.history.past.recommended] == [4, 5]
    assert first.history.shape is not None
    assert first.history.shape.wanted == 4


def test_a_change_of_its_own_is_a_wave_at_the_next_look_with_the_hit_rate_of_before():
    sizing = spec(**BOUNDS)
    first = replicas(sizing, group(4, load(hit_rate=0.9)), NEW, NOW)
    assert first.wave is None
    second = replicas(sizing, group(3, load(hit_rate=0.7)), first.history, NOW + PERIOD)
    assert (second.wave, second.history.wave.hit_rate, second.history.calm) == (Cause.SCALING, 0.9, 0.9)
    third = replicas(sizing, group(3, load(hit_rate=0.7)), second.history, NOW + timedelta(minutes=6))
    assert (third.wave, third.history.calm) == (None, 0.7)


def test_the_next_look_comes_when_a_window_ends_if_that_is_sooner():
    past = Past(
        (Recommendation(4, ago(minutes=20), ago(seconds=295)), Recommendation(2, ago(seconds=290), ago(seconds=5)))
    )
    quiet = load(0, usage=0, sessions=0, p95=None)
    verdict = replicas(spec(**BOUNDS), group(4, quiet), History(past), NOW)
    assert (verdict.value, verdict.requeue_after) == (4, timedelta(seconds=5))


def test_drift_is_the_reason_only_where_the_load_asks_for_more():
    four = spec(replicas=None, sizing={"minReplicas": 2, "maxReplicas": 9})
    drifts = PromptDrift(0.5, 100, 32_000)
    calm = replicas(four, group(4, load(4, drift=drifts), releasing=True), NEW, NOW)
    assert (calm.value, calm.reason) == (4, "WithinTarget")
    heavy = load(16, hit_rate=0.5, drift=drifts)
    assert replicas(four, group(4, heavy), NEW, NOW).reason == "PromptDrift"
    own = History(wave=Wave(Cause.SCALING, ago(minutes=1), 0.94))
    dips = replicas(four, group(4, load(16, hit_rate=0.5)), own, NOW)
    assert (dips.value, dips.reason) == (4, "ScalingWave")


@pytest.mark.parametrize(
    ("minutes", "serving", "start", "reason"),
    [
        (3, 4, 5, "ReplicasStarting"),
        (6, 4, 5, "QueueStanding"),
        (3, 8, 5, "QueueStanding"),
        (3, 4, None, "QueueStanding"),
    ],
    ids=["as long as starts take", "no longer", "once all serve", "where no start is recorded"],
)
def test_a_queue_adds_no_more_replicas_while_those_that_it_added_start(minutes, serving, start, reason):
    sizing = spec(replicas=None, sizing={"minReplicas": 2, "maxReplicas": 32})
    queue = load(20, waiting=160, running=40, usage=0.1, sessions=40)
    at = ago(minutes=minutes)
    began = History(wave=Wave(Cause.SCALING, at, 0.9), shape=GroupShape(8, serving, "a"))
    there = SizingInput(8, serving, "a", queue, start=timedelta(minutes=start) if start else None)
    verdict = replicas(sizing, there, began, NOW)
    assert (verdict.reason, verdict.value > 8) == (reason, reason != "ReplicasStarting")
    # a group whose number an autoscaler decides is recommended no more either
    other = replicas(spec(replicas=8), there, began, NOW)
    assert (other.requested > 8) == (reason != "ReplicasStarting")


def test_a_quiet_revision_shrinks_no_group_in_which_others_have_replicas():
    """The load is that of one revision, and the sessions may still be those of another."""
    past = Past((Recommendation(2, ago(minutes=9), ago(seconds=15)),))
    quiet = load(0, running=0, usage=0, sessions=0, p95=None)
    held = replicas(spec(**BOUNDS), group(4, quiet, releasing=True), History(past), NOW)
    assert (held.value, held.requested, held.active) == (4, 4, True)
    assert held.message == "no request arrived; the number stands while several revisions have replicas"
    at_rest = replicas(spec(**BOUNDS), group(4, quiet), History(past), NOW)
    assert (at_rest.value, at_rest.requested, at_rest.reason) == (3, 2, "Quiet")
    least = replicas(spec(**BOUNDS), group(2, quiet, releasing=True), NEW, NOW)
    assert (least.value, least.reason) == (2, "WithinTarget")


def test_a_quiet_group_keeps_its_least_number():
    """One replica would do for what little there is."""
    past = Past((Recommendation(1, ago(minutes=20), ago(seconds=5)),))
    few = load(1, replicas=2, usage=0.01, sessions=5, p95=0.05)
    verdict = replicas(spec(**BOUNDS), group(2, few), History(past), NOW)
    assert (verdict.value, verdict.reason, verdict.limited.status) == (2, "TooFewReplicas", True)


def test_while_revisions_share_the_traffic_the_number_does_not_fall():
    past = Past((Recommendation(2, ago(minutes=20), ago(seconds=5)),))
    few = load(1, usage=0.01, sessions=5, p95=0.05)
    assert replicas(spec(**BOUNDS), group(4, few), History(past), NOW).value == 3
    assert replicas(spec(**BOUNDS), group(4, few, releasing=True), History(past), NOW).value == 4


def test_a_number_that_is_held_says_that_no_bound_holds_it_and_that_it_may_change():
    held = replicas(spec(**BOUNDS), group(3), NEW, NOW)
    assert (held.able.status, held.limited.status) == (True, False)


@pytest.mark.parametrize(
    ("fields", "number"), [({"replicas": 3}, 3), ({"replicas": 0}, 0), ({"replicas": None}, 1), (BOUNDS, 2)]
)
def test_the_least_number_is_the_fixed_one_or_the_lower_bound(fields, number):
    assert least(spec(**fields)) == number


def test_a_group_of_no_replicas_that_is_asked_for_some_gets_them():
    assert replicas(spec(**BOUNDS), group(0, load(16)), NEW, NOW).value >= 2
