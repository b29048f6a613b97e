"""What routers are told of a group that may have no replica, and what is remembered by it."""

from datetime import UTC, datetime, timedelta

import pytest

from promptgroup_contract.table import Sleep
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.sleep.route_sleep import AWAKE, may_sleep, of_guest, own
from support.builders import group

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
SINCE = rfc3339(NOW)
SLEEPS = {"sizing": {"minReplicas": 0, "maxReplicas": 4}}


def told(spec, standing=AWAKE, value=1, *, ready=False, failure="", later=0):
    return own(
        group(**spec).spec,
        standing,
        value=value,
        ready=ready,
        failure=failure,
        now=NOW + timedelta(seconds=later),
    )


def test_who_may_sleep():
    assert may_sleep(group(**SLEEPS).spec)
    assert not may_sleep(group(sizing={"maxReplicas": 4}).spec)
    assert not may_sleep(group(replicas=0).spec)


@pytest.mark.parametrize("spec", [{"replicas": 1}, {"sizing": {"maxReplicas": 4}}])
def test_a_group_that_always_has_a_replica_has_no_sleep(spec):
    assert told(spec) is None


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        (SLEEPS, 300),
        ({**SLEEPS, "routing": {"wakeTimeout": "1m30s"}}, 90),
        ({"replicas": 0, "routing": {"wakeTimeout": "10m"}}, 600),
        ({"replicas": 0}, 0),
    ],
)
def test_requests_are_held_for_as_long_as_the_spec_says(spec, seconds):
    assert told(spec, value=0) == Sleep(seconds, since=SINCE)


def test_since_when_it_sleeps_is_remembered():
    assert told(SLEEPS, Sleep(300, since=SINCE, start=7), 0, later=60) == Sleep(300, since=SINCE, start=7)


def test_a_start_is_timed_from_the_request_that_asked_for_it():
    woken = told(SLEEPS, Sleep(300, since=SINCE, start=7))
    assert woken == Sleep(300, woken=SINCE, start=7)
    assert told(SLEEPS, woken, later=30) == woken
    assert told(SLEEPS, woken, ready=True, later=30) == Sleep(300, start=31)
    assert told(SLEEPS, Sleep(300, start=31), ready=True, later=90) == Sleep(300, start=31)


def test_what_keeps_a_replica_from_starting_is_told_once():
    first = told(SLEEPS, Sleep(300, since=SINCE), failure="pods a-1 is forbidden: exceeded quota")
    assert first.problem == "pods a-1 is forbidden: exceeded quota"
    assert told(SLEEPS, first, failure="pods a-2 is forbidden: exceeded quota") == first
    assert told(SLEEPS, first).problem == ""


def test_a_time_that_cannot_be_read_begins_anew():
    assert told(SLEEPS, Sleep(300, since="yesterday"), 0).since == SINCE


def test_a_guest_sleeps_when_its_host_does():
    spec = group(routing={"wakeTimeout": "20s"}).spec
    host = Sleep(300, since=SINCE, start=7)
    assert of_guest(spec, host) == Sleep(20, since=SINCE, start=7)
    assert of_guest(group().spec, host) == host
    assert of_guest(spec, None) is None
