"""When a group sleeps, and what wakes it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from promptgroup_contract.table import Sleep
from promptgroup_operator.api.prompt_group import SizingSpec
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.sleep.decision import WATCH, Seen, SleepDecision, decide, sized
from promptgroup_operator.sleep.route_sleep import AWAKE
from promptgroup_operator.world.samples import Calls
from support.loads import load

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
IDLE = timedelta(minutes=30)
SIZING = SizingSpec.model_validate({"minReplicas": 0, "maxReplicas": 4, "idleAfter": "30m"})
QUIET = load(0, replicas=1, sessions=0)
BUSY = load(0, replicas=1, sessions=0, running=1)
WAITS = load(0, replicas=1, sessions=0, held=1)


def seen(standing=AWAKE, found=QUIET, called=None, idle=IDLE, **fields):
    values = {
        "load": found,
        "calls": Calls(called, read=True),
        "idle_since": NOW - idle if idle is not None else None,
        "releasing": False,
        "ready": True,
    }
    return Seen(standing, **(values | fields))


def at(minutes):
    return NOW + timedelta(minutes=minutes)


def test_a_group_that_was_idle_for_long_enough_falls_asleep():
    assert decide(SIZING, seen(), 1, NOW) == SleepDecision(asleep=True, since=NOW)
    early = seen(idle=IDLE - timedelta(seconds=1))
    assert decide(SIZING, early, 1, NOW) == SleepDecision(asleep=False, since=early.idle_since)


@pytest.mark.parametrize(
    "changed",
    [
        {"found": BUSY},
        {"found": WAITS},
        {"found": None},
        {"found": replace(QUIET, stale="no engine could be read")},
        {"found": replace(QUIET, engines=None)},
        {"found": replace(QUIET, engines=replace(QUIET.engines, coverage=0.4))},
        {"releasing": True},
        {"ready": False},
        {"calls": Calls(None, read=False)},
        {"called": at(-10)},
    ],
)
def test_it_stays_awake_while_something_runs_or_waits_or_is_unknown(changed):
    assert not decide(SIZING, seen(**changed), 1, NOW).asleep


@pytest.mark.parametrize("ahead", [{"idle": -timedelta(minutes=5)}, {"called": at(5)}])
def test_a_clock_that_is_ahead_does_not_put_sleep_off_for_longer_than_it_is_idle(ahead):
    assert decide(SIZING, seen(**ahead), 1, NOW) == SleepDecision(asleep=False, since=NOW)


def test_only_the_last_replica_leaves_for_want_of_requests():
    assert not decide(SIZING, seen(), 2, NOW).asleep


@pytest.mark.parametrize(("called", "asleep"), [(None, True), (-31, True), (-16, True), (-14, False), (1, False)])
def test_a_request_wakes_it_but_not_one_of_an_earlier_life(called, asleep):
    standing = Sleep(300, since=rfc3339(NOW))
    found = decide(SIZING, seen(standing, None, at(called) if called is not None else None), 1, at(2))
    assert found.asleep == asleep
    assert found.starting != asleep


def test_a_group_that_was_woken_starts_until_a_replica_serves():
    woken = Sleep(300, woken=rfc3339(NOW))
    assert decide(SIZING, seen(woken, None, ready=False), 1, at(2)).starting
    assert not decide(SIZING, seen(woken, BUSY), 1, at(2)).starting


def decided(value=1):
    return SizingDecision(value, "WithinTarget", "m", active=True)


def test_the_number_of_replicas():
    asleep = sized(decided(), SleepDecision(asleep=True, since=NOW), SIZING)
    assert (asleep.value, asleep.reason, asleep.requeue_after) == (0, "Asleep", WATCH)
    assert asleep.history.idle_since is None
    woken = sized(decided(), SleepDecision(asleep=False, since=None, starting=True), SIZING)
    assert (woken.value, woken.reason) == (1, "Woken")
    assert sized(decided(0), SleepDecision(asleep=False, since=None, starting=True), SIZING).value == 1
    idle = sized(decided(3), SleepDecision(asleep=False, since=NOW), SIZING)
    assert (idle.value, idle.history.idle_since) == (3, NOW)
