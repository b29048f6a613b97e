import pytest

from promptgroup_contract.table import SlotState
from promptgroup_operator.rollout.retained_slots import keep_order, ring
from promptgroup_operator.world.samples import SlotUse
from promptgroup_operator.world.snapshot import LEADER_WORKER_SET
from support.builders import ago, pod, restarted, revision

MARKED = {"draining_since": ago(seconds=3)}
THREE = [pod("a", 0), pod("b", 1), pod("c", 2)]
READY, DRAINING, ABSENT = SlotState.READY, SlotState.DRAINING, SlotState.ABSENT


def tokens(**by_slot):
    """What routers say: s1=500 is 500 tokens on slot 1."""
    return {int(name[1:]): SlotUse(1, count, 0) for name, count in by_slot.items()}


ORDERS = {
    "without figures the lowest are kept, as ever": (THREE, {}, [0, 1, 2]),
    "most tokens are kept first": (THREE, tokens(s0=10, s1=5, s2=20), [2, 0, 1]),
    "a slot of which nothing is known has nothing": (THREE, tokens(s1=5), [1, 0, 2]),
    "with as many tokens the one with more requests is kept": (
        THREE,
        {0: SlotUse(requests=1), 1: SlotUse(requests=3), 2: SlotUse(requests=2)},
        [1, 2, 0],
    ),
    "tokens count more than requests": ([pod("a", 0), pod("b", 1)], {0: SlotUse(0, 1, 0), 1: SlotUse(9, 0, 9)}, [0, 1]),
    "the number of sessions does not count": (THREE, {2: SlotUse(sessions=9)}, [0, 1, 2]),
    "a cold replica goes before one that holds nothing": (
        [restarted("a", 0), pod("b", 1)],
        tokens(s0=999),
        [1, 0],
    ),
    "one that was told to go goes, whatever it has": ([pod("a", 0, **MARKED), pod("b", 1)], tokens(s0=999), [1, 0]),
    "even if it is the warm one": ([pod("a", 0, **MARKED), restarted("b", 1)], {}, [1, 0]),
    "pods without a slot have none": ([pod("a", None), pod("b", 4)], {}, [4]),
    "one that terminates has none": ([pod("a", 0, deleting=True), pod("b", 1)], {}, [1, 0]),
}


@pytest.mark.parametrize("case", ORDERS)
def test_the_order_in_which_slots_are_kept(case):
    pods, use, expected = ORDERS[case]
    assert keep_order(revision(pods=pods, use=use)) == expected


STANDING = {
    "a slot that nobody holds is of the ring, and the first to go": ([pod("a", 1)], {0: ABSENT, 1: READY}, [1, 0]),
    "one that drains in the route was chosen": (THREE, {0: DRAINING, 1: READY, 2: READY}, [1, 2, 0]),
    "one that drained and is gone is free": ([pod("b", 1)], {0: DRAINING, 1: READY}, [1]),
    "without a route the pods' slots are the ring": ([pod("a", 3), pod("b", 1, **MARKED)], {}, [3, 1]),
    "a slot that the route does not have yet is of the ring": (THREE, {0: READY}, [0, 1, 2]),
}


@pytest.mark.parametrize("case", STANDING)
def test_the_ring_is_what_the_route_and_the_pods_say(case):
    pods, slots, expected = STANDING[case]
    assert keep_order(revision(pods=pods, slots=slots)) == expected


@pytest.mark.parametrize(
    ("order", "size", "expected"),
    [
        ([], 3, {0, 1, 2}),
        ([0, 1, 2], 3, {0, 1, 2}),
        ([2, 0, 1], 2, {0, 2}),
        ([2, 0, 1], 0, set()),
        ([3, 0, 2], 4, {0, 1, 2, 3}),
        ([7], 3, {0, 1, 7}),
        ([2, 0, 1], 5, {0, 1, 2, 3, 4}),
    ],
)
def test_a_ring_keeps_the_first_and_fills_the_lowest_holes(order, size, expected):
    assert ring(order, size) == expected


def test_a_leader_worker_set_leaves_no_choice():
    leaders = [pod("a-0", 1, ordinal=0), pod("a-1", 2, ordinal=1), pod("a-2", 0, ordinal=2)]
    found = revision(pods=leaders, use=tokens(s0=999), workload=LEADER_WORKER_SET)
    assert keep_order(found) == [1, 2, 0]
    gone = {2: DRAINING, 3: DRAINING, 1: READY}
    assert keep_order(revision(pods=leaders[:1], slots=gone, workload=LEADER_WORKER_SET)) == [1]
