"""Slots: one pod each, one of each, as few moves as can be, and the least lost with those that leave."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.table import SlotState
from promptgroup_operator.plan.slots import assign, leaving
from promptgroup_operator.rollout.retained_slots import keep_order, ring
from promptgroup_operator.world.samples import SlotUse
from promptgroup_operator.world.snapshot import LEADER_WORKER_SET, holders
from support.builders import ago, cold, pod, restarted, revision

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


RINGS = st.frozensets(st.integers(0, 6))


def labelled(given_pods, held):
    """The pods once the assignment is written on them."""
    return [replace(each, slot=held.get(each.name)) if not each.deleting else each for each in given_pods]


@given(pods(), RINGS)
def test_no_slot_is_held_twice_and_no_pod_that_goes_holds_one(given_pods, ring):
    held = assign(given_pods, ring)
    assert len(set(held.values())) == len(held)
    assert set(held) <= {each.name for each in given_pods if not each.deleting}


@given(pods(), RINGS, st.randoms(use_true_random=False))
def test_the_order_of_the_pods_does_not_matter(given_pods, ring, seed):
    other = list(given_pods)
    seed.shuffle(other)
    assert assign(other, ring) == assign(given_pods, ring)


@given(pods(), RINGS)
def test_an_assignment_that_is_written_stands(given_pods, ring):
    held = assign(given_pods, ring)
    assert assign(labelled(given_pods, held), ring) == held


@given(pods(), RINGS)
def test_a_warm_holder_within_the_ring_is_never_moved(given_pods, ring):
    held = assign(given_pods, ring)
    claims = {}
    for each in given_pods:
        if each.is_warm and each.slot in ring:
            claims.setdefault(each.slot, []).append(each)
    for slot, claimants in claims.items():
        first = min(claimants, key=lambda each: (each.created, each.name))
        assert held[first.name] == slot


@given(pods(), RINGS)
def test_no_slot_of_the_ring_is_without_a_warm_pod_while_one_has_none(given_pods, ring):
    held = assign(given_pods, ring)
    idle = [each for each in given_pods if each.is_warm and each.name not in held]
    warm = {held[each.name] for each in given_pods if each.is_warm and each.name in held}
    assert not idle or ring <= warm


@given(pods(), RINGS)
def test_a_pod_outside_of_the_ring_moves_only_when_nothing_runs_on_it(given_pods, ring):
    held = assign(given_pods, ring)
    claimed = Counter(each.slot for each in given_pods if not each.deleting)
    for each in given_pods:
        if each.is_warm and each.slot is not None and each.slot not in ring and claimed[each.slot] == 1:
            assert held.get(each.name) == each.slot or each.in_flight == 0


@given(pods(), RINGS, st.integers(0, 8))
def test_as_many_stay_as_are_wanted_at_most(given_pods, ring, deployed):
    going = leaving(given_pods, assign(given_pods, ring), ring, deployed)
    alive = {each.name for each in given_pods if not each.deleting}
    assert going <= alive
    if deployed > len(ring):
        assert len(alive - going) <= len(ring)


# --- which slots stay ------------------------------------------------------------------------------------------

USE = st.dictionaries(st.integers(0, 6), st.builds(SlotUse, st.just(1), st.integers(0, 9), st.integers(0, 3)))
STATES = st.dictionaries(st.integers(0, 6), st.sampled_from(SlotState))
SIZES = st.integers(0, 8)


@st.composite
def revisions(draw):
    marked = [
        replace(each, draining_since=draw(st.sampled_from([None, None, ago(seconds=5)]))) for each in draw(pods())
    ]
    return revision(pods=marked, slots=draw(STATES), use=draw(USE))


@given(revisions(), SIZES)
def test_a_ring_has_its_size_and_takes_free_numbers_from_below(found, size):
    made = ring(keep_order(found), size)
    assert len(made) == size
    standing = set(keep_order(found))
    new = made - standing
    assert not new or standing <= made
    assert all(number in made for slot in new for number in range(slot))


@given(revisions(), st.integers(0, 8), st.integers(0, 8))
def test_a_smaller_ring_is_a_part_of_the_larger_one(found, size, other):
    order = keep_order(found)
    small, large = sorted((size, other))
    assert ring(order, small) <= ring(order, large)


@given(revisions(), SIZES)
def test_no_slot_stays_whose_loss_costs_less_than_that_of_one_that_leaves(found, size):
    held = holders(found.pods)
    made = ring(keep_order(found), size)

    def free_to_choose(slot):
        return held[slot].is_warm and held[slot].draining_since is None and found.slots.get(slot) != SlotState.DRAINING

    kept = [found.use.get(slot, SlotUse()) for slot in made & held.keys() if free_to_choose(slot)]
    gone = [found.use.get(slot, SlotUse()) for slot in held.keys() - made if free_to_choose(slot)]
    if kept and gone:
        assert min((use.tokens, use.requests) for use in kept) >= max((use.tokens, use.requests) for use in gone)


@pytest.mark.heavy
@given(revisions(), SIZES, USE, USE)
def test_what_is_chosen_stays_chosen_whatever_routers_say_then(found, size, then, later):
    """The choice stands in the route first, and on the pods after that; every pass decides anew."""
    chosen = ring(keep_order(found), size)
    held = holders(found.pods)
    route = {slot: SlotState.READY if slot in held else SlotState.ABSENT for slot in chosen}
    route |= dict.fromkeys(held.keys() - chosen, SlotState.DRAINING)
    told = replace(found, slots=route, use=then, pods=tuple(replace(each, draining_since=None) for each in found.pods))
    assert ring(keep_order(told), size) == chosen
    marked = tuple(replace(each, draining_since=None if each.slot in chosen else ago(seconds=1)) for each in found.pods)
    assert ring(keep_order(replace(told, use=later, pods=marked)), size) == chosen
    assert ring(keep_order(replace(told, use=later, pods=marked, slots={})), size) >= chosen & held.keys()


@given(revisions(), SIZES)
def test_without_figures_the_highest_of_equals_go(found, size):
    quiet = replace(found, use={}, slots={}, pods=tuple(each for each in found.pods if each.is_warm))
    standing = sorted(each.slot for each in holders(quiet.pods).values() if each.draining_since is None)
    if size <= len(standing):
        assert ring(keep_order(quiet), size) == set(standing[:size])


# --- of a LeaderWorkerSet --------------------------------------------------------------------------------------


@st.composite
def leader_worker_sets(draw):
    """Its leaders have ordinals, in any order of slots."""
    found = draw(revisions())
    ordinals = draw(st.permutations(range(len(found.pods))))
    leaders = [replace(each, ordinal=ordinal) for each, ordinal in zip(found.pods, ordinals, strict=True)]
    return replace(found, workload=LEADER_WORKER_SET, pods=tuple(leaders))


@given(leader_worker_sets(), SIZES)
def test_a_leader_whose_slot_stays_has_a_lower_ordinal_than_any_whose_slot_leaves(found, size):
    held = holders(found.pods)
    made = ring(keep_order(found), size)
    assert len(made) == size
    kept = [held[slot].ordinal for slot in made & held.keys()]
    gone = [held[slot].ordinal for slot in held.keys() - made]
    assert not kept or not gone or max(kept) < min(gone)


@given(leader_worker_sets(), SIZES)
def test_the_leaders_of_the_slots_that_leave_are_those_that_a_stateful_set_removes(found, size):
    """All leaders hold a slot, as in a group at rest that shrinks."""
    leaders = [
        replace(each, slot=slot, deleting=False, ordinal=len(found.pods) - 1 - slot)
        for slot, each in enumerate(found.pods)
    ]
    rest = replace(found, pods=tuple(leaders), slots={each.slot: SlotState.READY for each in leaders})
    made = ring(keep_order(rest), min(size, len(leaders)))
    assert {each.ordinal for each in leaders if each.slot in made} == set(range(min(size, len(leaders))))
