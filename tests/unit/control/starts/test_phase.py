"""The phase of a replica that starts follows from what Kubernetes reports on its pod."""

from datetime import timedelta

import pytest

from promptgroup_operator.starts.phase import Starting, StartPhase, all_starting, starting, summary
from promptgroup_operator.world.pod_start import PodStart
from support.builders import CREATED, NOW, ago, cold, pod
from support.builders import starting as not_running

CREATED_AT = ago(hours=1)
NODE, SANDBOX, RUNS, READY = (CREATED_AT + timedelta(seconds=seconds) for seconds in (2, 5, 40, 100))

PHASES = {
    "no node": (not_running(), StartPhase.PENDING, CREATED_AT),
    "a node": (not_running(start=PodStart(NODE)), StartPhase.SCHEDULED, NODE),
    "volumes and network": (not_running(start=PodStart(NODE, SANDBOX)), StartPhase.PULLING, SANDBOX),
    "the engine runs": (not_running(start=PodStart(NODE, SANDBOX, RUNS)), StartPhase.LOADING, RUNS),
    "the engine answers": (
        cold(containers_ready_since=READY, start=PodStart(NODE, SANDBOX, RUNS)), StartPhase.WARMING, READY,
    ),
    "it crashed and waits": (
        not_running(start=PodStart(NODE, SANDBOX, None, 3), containers_ready_since=SANDBOX),
        StartPhase.LOADING, SANDBOX,
    ),
    "it crashed and runs again": (
        not_running(start=PodStart(NODE, SANDBOX, NOW, 4), containers_ready_since=SANDBOX), StartPhase.LOADING, SANDBOX,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PHASES)
def test_each_phase_begins_with_a_time_of_its_pod(case):
    replica, phase, since = PHASES[case]
    assert replica.created == CREATED
    assert starting(replica) == Starting(replica.name, phase, since)


def test_a_replica_that_is_warm_or_leaves_does_not_start():
    leaves = not_running(draining_since=ago(seconds=1))
    assert [starting(each) for each in (pod(), not_running(deleting=True), leaves)] == [None] * 3


def test_the_least_advanced_and_of_them_the_slowest_come_first():
    pods = [
        cold("d", containers_ready_since=READY),
        not_running("b", start=PodStart(SANDBOX)),
        not_running("c", start=PodStart(NODE)),
        not_running("a", created="not a time"),
        pod("warm"),
    ]
    found = all_starting(pods)
    assert [each.pod for each in found] == ["a", "c", "b", "d"]
    assert summary(found) == "1 Pending, 2 Scheduled, 1 Warming"
    assert summary([]) == ""
