import pytest

from support.builders import cold, pod, restarted, revision, starting

WARM = {
    "a proven one": (pod(), True),
    "one whose containers are not ready": (pod(containers_ready=False), False),
    "one whose engine does not run": (pod(container_id="", warmed=""), False),
    "one whose engine is another process": (restarted(), False),
    "one without the condition": (pod(warm=None), False),
    "one whose condition is False": (cold(warmed=cold().container_id), False),
    "one that terminates": (pod(deleting=True), False),
    "one that starts": (starting(), False),
}


@pytest.mark.parametrize("case", WARM)
def test_which_pod_is_warm(case):
    given, expected = WARM[case]
    assert given.is_warm is expected


READY = {
    "nobody": ([], 0, 0),
    "a warm pod in a slot": ([pod("a", 0)], 1, 1),
    "a warm pod without a slot": ([pod("a", None)], 0, 0),
    "a cold pod in a slot": ([restarted("a", 0)], 0, 0),
    "two pods that claim one slot are one replica": ([pod("a", 0), pod("b", 0)], 1, 1),
    "a slot above the ring counts for the revision only": ([pod("a", 0), pod("b", 2)], 2, 1),
}


@pytest.mark.parametrize("case", READY)
def test_ready_counts_slots_that_warm_pods_hold(case):
    pods, all_of_them, below_two = READY[case]
    assert revision(pods=pods).ready == all_of_them
    assert revision(pods=pods).ready_below(2) == below_two
