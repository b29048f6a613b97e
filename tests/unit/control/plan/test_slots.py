import pytest

from promptgroup_operator.plan.slots import assign, leaving
from support.builders import ago, cold, pod, restarted, starting

OLD, NEW = "2026-11-03T10:00:00Z", "2026-11-03T11:30:00Z"

ASSIGNED = {
    "no pods hold nothing": ([], 2, {}),
    "holders keep their slots": ([pod("a", 1), pod("b", 0)], 2, {"a": 1, "b": 0}),
    "a cold pod gets none": ([cold("a")], 1, {}),
    "a pod that starts gets none": ([starting("a")], 1, {}),
    # 1
    "a terminating pod holds nothing": ([pod("a", 0, deleting=True)], 1, {}),
    "its slot is free at once for the pod that replaces it": (
        [pod("a", 0, deleting=True), pod("b", None), pod("c", 1)],
        2,
        {"b": 0, "c": 1},
    ),
    # 2
    "of two that claim one slot the warm one keeps it": (
        [restarted("a", 0, created=OLD), pod("b", 0, created=NEW)],
        1,
        {"b": 0},
    ),
    "of two warm ones the older keeps it, the other takes a free one": (
        [pod("a", 0, created=NEW), pod("b", 0, created=OLD)],
        2,
        {"b": 0, "a": 1},
    ),
    "of two warm ones of one age the first by name keeps it": ([pod("b", 0), pod("a", 0)], 1, {"a": 0}),
    # 3
    "warm pods take the lowest free slots, the oldest first": (
        [pod("a", None, created=NEW), pod("b", None, created=OLD), pod("c", 1)],
        4,
        {"c": 1, "b": 0, "a": 2},
    ),
    "a warm pod waits while every slot has a warm holder": ([pod("a", 0), pod("b", None)], 1, {"a": 0}),
    "a cold holder keeps its slot while another is free": ([restarted("a", 0), pod("b", None)], 2, {"a": 0, "b": 1}),
    # 4
    "without a free slot a warm pod takes a cold holder's": ([restarted("a", 0), pod("b", None)], 1, {"b": 0}),
    "each takes another cold holder's": (
        [restarted("a", 0), restarted("b", 1), pod("c", None), pod("d", None)],
        2,
        {"c": 0, "d": 1},
    ),
    "a cold holder above the ring is not displaced": (
        [pod("a", 0), restarted("b", 1), pod("c", None)],
        1,
        {"a": 0, "b": 1},
    ),
    # 5
    "a pod above the ring keeps its slot while requests run on it": ([pod("b", 1, in_flight=3)], 1, {"b": 1}),
    "a pod above the ring keeps its slot while nobody knows what runs on it": ([pod("b", 1)], 1, {"b": 1}),
    "an idle pod above the ring moves down to a free slot": ([pod("b", 1, in_flight=0)], 1, {"b": 0}),
    "a cold pod above the ring moves down to a free slot": ([restarted("b", 1)], 1, {"b": 0}),
    "of several the lowest moves first": ([pod("b", 2, in_flight=0), pod("c", 1, in_flight=0)], 1, {"c": 0, "b": 2}),
    "none moves down when no slot is free": ([pod("a", 0), pod("b", 1, in_flight=0)], 1, {"a": 0, "b": 1}),
    "a pod that moves down goes before one that never had a slot": (
        [pod("a", None, created=OLD), pod("b", 1, in_flight=0)],
        1,
        {"b": 0},
    ),
    "a ring of nothing keeps its holders while they drain": ([pod("a", 0), pod("b", None)], 0, {"a": 0}),
}


@pytest.mark.parametrize("case", ASSIGNED)
def test_assign(case):
    pods, wanted, expected = ASSIGNED[case]
    assert assign(pods, frozenset(range(wanted))) == expected


@pytest.mark.parametrize("case", ASSIGNED)
def test_the_order_of_the_pods_does_not_matter(case):
    pods, wanted, expected = ASSIGNED[case]
    assert assign(pods[::-1], frozenset(range(wanted))) == expected


HOLES = {
    "holders keep their slots": ([pod("a", 0), pod("c", 2)], {0, 2}, {"a": 0, "c": 2}),
    "the one that drains keeps its slot": ([pod("a", 0), pod("b", 1), pod("c", 2)], {0, 2}, {"a": 0, "b": 1, "c": 2}),
    "a warm pod fills a hole": ([pod("a", 0), pod("c", 2), pod("d", None)], {0, 1, 2}, {"a": 0, "c": 2, "d": 1}),
    "an idle one that drains takes a slot that was left": (
        [pod("b", 1, in_flight=0), pod("c", 2)],
        {0, 2},
        {"b": 0, "c": 2},
    ),
    "a cold holder outside of the ring is not displaced": (
        [pod("a", 0), restarted("b", 1), pod("c", 2), pod("d", None)],
        {0, 2},
        {"a": 0, "b": 1, "c": 2},
    ),
}


@pytest.mark.parametrize("case", HOLES)
def test_a_ring_with_holes(case):
    pods, ring, expected = HOLES[case]
    assert assign(pods, frozenset(ring)) == assign(pods[::-1], frozenset(ring)) == expected


def test_only_pods_outside_of_a_ring_with_holes_leave():
    pods = [pod("a", 0), pod("b", 1), pod("c", 2)]
    assert leaving(pods, {"a": 0, "b": 1, "c": 2}, frozenset({0, 2}), 3) == {"b"}


MARKED = {"draining_since": ago(seconds=9)}

LEAVING = {
    "nobody leaves a ring of the wanted size": ([pod("a", 0), pod("b", 1)], 2, 2, set()),
    "those above the ring leave": ([pod("a", 0), pod("b", 1)], 1, 2, {"b"}),
    "those above the ring leave although the Deployment is small already": ([pod("a", 0), pod("b", 1)], 1, 1, {"b"}),
    "a pod beside the ring leaves when fewer are wanted": ([pod("a", 0), pod("b", None)], 1, 2, {"b"}),
    "a cold pod beside the ring leaves when fewer are wanted": ([pod("a", 0), starting("b")], 1, 2, {"b"}),
    "the new pod of an update stays": ([pod("a", 0), starting("b")], 1, 1, set()),
    "a pod that was told to go does": ([pod("a", 0), pod("b", None, **MARKED)], 1, 1, {"b"}),
    "a pod that was told to go stays when it is needed after all": (
        [pod("a", 0), pod("b", None, **MARKED)],
        2,
        2,
        set(),
    ),
    "a terminating pod is gone": ([pod("a", 0), pod("b", 1, deleting=True)], 1, 2, set()),
    "all leave for a ring of nothing": ([pod("a", 0), pod("b", None), starting("c")], 0, 3, {"a", "b", "c"}),
}


@pytest.mark.parametrize("case", LEAVING)
def test_leaving(case):
    pods, wanted, deployed, expected = LEAVING[case]
    ring = frozenset(range(wanted))
    assert leaving(pods, assign(pods, ring), ring, deployed) == expected
