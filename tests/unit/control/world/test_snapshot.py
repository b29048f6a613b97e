import pytest

from promptgroup_contract.table import SlotState
from promptgroup_operator.world.snapshot import holders
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
    "nobody": ([], 0),
    "a warm pod in a slot": ([pod("a", 0)], 1),
    "a warm pod without a slot": ([pod("a", None)], 0),
    "a cold pod in a slot": ([restarted("a", 0)], 0),
    "two pods that claim one slot are one replica": ([pod("a", 0), pod("b", 0)], 1),
    "a slot of any number counts": ([pod("a", 0), pod("b", 2)], 2),
}


@pytest.mark.parametrize("case", READY)
def test_ready_counts_slots_that_warm_pods_hold(case):
    pods, expected = READY[case]
    assert revision(pods=pods).ready == expected


HOLDERS = {
    "nobody holds a slot": ([pod("a", None), pod("b", 0, deleting=True)], {}),
    "each pod holds its own": ([pod("a", 3), cold("b", 0)], {0: "b", 3: "a"}),
    "of two the warm one holds it": ([restarted("a", 0), pod("b", 0, created="2026-11-03T11:30:00Z")], {0: "b"}),
    "of two warm ones the older holds it": ([pod("a", 0, created="2026-11-03T11:30:00Z"), pod("b", 0)], {0: "b"}),
    "of two of one age the first by name holds it": ([pod("b", 0), pod("a", 0)], {0: "a"}),
}


@pytest.mark.parametrize("case", HOLDERS)
def test_holders(case):
    pods, expected = HOLDERS[case]
    assert {slot: each.name for slot, each in holders(pods).items()} == expected


def test_slots_are_routed_while_the_route_has_them_ready():
    states = {0: SlotState.READY, 1: SlotState.DRAINING, 2: SlotState.ABSENT}
    found = revision(pods=[pod("a", 0), pod("b", 1)], slots=states)
    assert found.routed == found.serving == {0}
