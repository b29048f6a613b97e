"""Slots: one pod each, one of each, and as few moves as can be."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.plan.slots import assign, leaving
from support.builders import cold, pod, restarted

MAKERS = st.sampled_from([pod, pod, pod, cold, restarted])


@st.composite
def pods(draw):
    made = []
    for i in range(draw(st.integers(0, 8))):
        slot = draw(st.none() | st.integers(0, 6))
        made.append(
            draw(MAKERS)(
                f"p{i}",
                slot,
                created=f"2026-11-03T11:00:0{draw(st.integers(0, 3))}Z",
                deleting=draw(st.sampled_from([False, False, False, True])),
                in_flight=draw(st.sampled_from([None, 0, 2])),
            )
        )
    return made


WANTED = st.integers(0, 6)


def labelled(given_pods, held):
    """The pods once the assignment is written on them."""
    return [replace(each, slot=held.get(each.name)) if not each.deleting else each for each in given_pods]


@given(pods(), WANTED)
def test_no_slot_is_held_twice_and_no_pod_that_goes_holds_one(given_pods, wanted):
    held = assign(given_pods, wanted)
    assert len(set(held.values())) == len(held)
    assert set(held) <= {each.name for each in given_pods if not each.deleting}


@given(pods(), WANTED, st.randoms(use_true_random=False))
def test_the_order_of_the_pods_does_not_matter(given_pods, wanted, seed):
    other = list(given_pods)
    seed.shuffle(other)
    assert assign(other, wanted) == assign(given_pods, wanted)


@given(pods(), WANTED)
def test_an_assignment_that_is_written_stands(given_pods, wanted):
    held = assign(given_pods, wanted)
    assert assign(labelled(given_pods, held), wanted) == held


@given(pods(), WANTED)
def test_a_warm_holder_within_the_ring_is_never_moved(given_pods, wanted):
    held = assign(given_pods, wanted)
    claims = {}
    for each in given_pods:
        if each.is_warm and each.slot is not None and each.slot < wanted:
            claims.setdefault(each.slot, []).append(each)
    for slot, claimants in claims.items():
        first = min(claimants, key=lambda each: (each.created, each.name))
        assert held[first.name] == slot


@given(pods(), WANTED)
def test_no_slot_of_the_ring_is_without_a_warm_pod_while_one_has_none(given_pods, wanted):
    held = assign(given_pods, wanted)
    idle = [each for each in given_pods if each.is_warm and each.name not in held]
    warm = {held[each.name] for each in given_pods if each.is_warm and each.name in held}
    assert not idle or set(range(wanted)) <= warm


@given(pods(), WANTED)
def test_a_pod_moves_down_only_when_nothing_runs_on_it(given_pods, wanted):
    held = assign(given_pods, wanted)
    claimed = Counter(each.slot for each in given_pods if not each.deleting)
    for each in given_pods:
        if each.is_warm and each.slot is not None and each.slot >= wanted and claimed[each.slot] == 1:
            assert held.get(each.name) == each.slot or each.in_flight == 0


@given(pods(), WANTED, st.integers(0, 8))
def test_as_many_stay_as_are_wanted_at_most(given_pods, wanted, deployed):
    going = leaving(given_pods, assign(given_pods, wanted), wanted, deployed)
    alive = {each.name for each in given_pods if not each.deleting}
    assert going <= alive
    if deployed > wanted:
        assert len(alive - going) <= wanted
