from datetime import timedelta

import pytest

from promptgroup_operator.plan.draining import PROPAGATION, RESOLUTION, has_drained, pod_updates
from promptgroup_operator.world.effects import PodUpdate
from support.builders import NOW, ago, pod, restarted, revision, starting

TIMEOUT = timedelta(minutes=5)
TOLD = PROPAGATION + RESOLUTION

DRAINED = {
    "one that terminates": (pod(deleting=True), True),
    "one that was not told to": (pod(in_flight=0), False),
    "one that idles, but of which routers may not know": (
        pod(in_flight=0, draining_since=NOW - TOLD + timedelta(milliseconds=1)),
        False,
    ),
    "one that idles and that no router knows": (pod(in_flight=0, draining_since=NOW - TOLD), True),
    "one with requests": (pod(in_flight=1, draining_since=NOW - TOLD), False),
    "one of which nobody knows what runs on it": (pod(in_flight=None, draining_since=NOW - TOLD), False),
    "one whose time is up": (pod(in_flight=1, draining_since=NOW - TIMEOUT), True),
    "one of which nobody knows, whose time is up": (pod(in_flight=None, draining_since=NOW - TIMEOUT), True),
    "a cold one that routers may still know": (restarted(draining_since=NOW), False),
    "a cold one": (restarted(draining_since=NOW - TOLD), True),
    "one that starts and was not told to": (starting(), False),
}


@pytest.mark.parametrize("case", DRAINED)
def test_drained(case):
    given, expected = DRAINED[case]
    assert has_drained(given, TIMEOUT, NOW) is expected


def test_the_deletion_cost_of_the_highest_slot_is_the_lowest():
    costs = [PodUpdate("p", "u", slot, NOW).deletion_cost for slot in (None, 999, 1, 0)]
    assert costs == sorted(set(costs))
    assert costs[-1] < 0 == PodUpdate("p", "u", 5, None).deletion_cost


def test_a_drain_that_began_in_the_future_begins_now():
    """The clock of the operator that wrote it was ahead by days: the replica would serve nobody and stay."""
    held = revision(pods=[pod("p0", 0), pod("p1", 1, draining_since=ago(days=-400))])
    (update,) = pod_updates(held, frozenset({0}), {"p0": 0, "p1": 1}, frozenset({"p0"}), NOW)
    assert (update.pod, update.draining_since) == ("p1", NOW)


def test_pods_that_end_are_left_alone_and_all_others_get_what_they_lack():
    pods = [pod("p0", 0, deleting=True), pod("p1", 1), pod("p2", None), pod("p3", None, deleting=True), pod("p4", None)]
    held = {"p1": 1, "p2": 0, "p4": 2}
    found = pod_updates(revision(pods=pods), frozenset(range(3)), held, frozenset({"p1", "p2", "p4"}), NOW)
    assert [(each.pod, each.slot, each.draining_since) for each in found] == [("p2", 0, None), ("p4", 2, None)]
