"""What makes a ring worth having: homes that move only when they must, and then as few as possible."""

import json
from collections import Counter
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.table import MOST_RANKS, MOST_SLOT
from promptgroup_router.rings.ids import ring_place
from promptgroup_router.rings.ring import Ring, preference, ring_of

GOLDEN = Path(__file__).parents[1] / "golden/rings.json"

places = st.builds(ring_place, st.integers(0, MOST_SLOT), st.none() | st.integers(0, MOST_RANKS - 1))
slots = st.frozensets(places, min_size=1, max_size=24)
keys = st.integers(0, 2**64 - 1)
SAMPLE = [xxhash.xxh3_64_intdigest(number.to_bytes(4, "little"), seed=7) for number in range(20_000)]


@given(slots=slots, key=keys, data=st.data())
def test_the_order_in_which_slots_are_given_does_not_matter(
    slots: frozenset[int], key: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(sorted(slots)))
    assert Ring(shuffled) == Ring(slots)
    assert list(Ring(shuffled).order(key)) == list(Ring(slots).order(key))


@given(slots=slots, key=keys)
def test_every_slot_is_a_choice_once(slots: frozenset[int], key: int) -> None:
    order = list(Ring(slots).order(key))
    assert sorted(order) == sorted(slots)
    assert Ring(slots).home(key) == order[0]


@given(slots=slots, key=keys, data=st.data())
def test_losing_a_slot_moves_only_its_keys_and_they_go_to_their_next_choice(
    slots: frozenset[int], key: int, data: st.DataObject
) -> None:
    lost = data.draw(st.sampled_from(sorted(slots)))
    left = [slot for slot in Ring(slots).order(key) if slot != lost]
    assert Ring(slots - {lost}) != Ring(slots)
    assert list(Ring(slots - {lost}).order(key)) == left


@pytest.mark.heavy
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 16, 32])
def test_a_new_slot_takes_its_share_and_all_that_moves(count: int) -> None:
    before, after = Ring(range(count)), Ring(range(count + 1))
    moved = [(before.home(key), after.home(key)) for key in SAMPLE if before.home(key) != after.home(key)]
    assert {new for _, new in moved} == {count}
    share = 1 / (count + 1)
    deviation = (share * (1 - share) / len(SAMPLE)) ** 0.5
    assert abs(len(moved) / len(SAMPLE) - share) < 4 * deviation


def test_ranks_hold_equal_shares() -> None:
    ring = Ring(ring_place(slot, rank) for slot in range(3) for rank in range(4))
    held = Counter(ring.home(key) for key in SAMPLE)
    assert all(abs(count / len(SAMPLE) - 1 / 12) < 0.01 for count in held.values())
    assert len(held) == 12


@pytest.mark.parametrize("count", [2, 4, 8, 32])
def test_slots_hold_equal_shares(count: int) -> None:
    held = Counter(Ring(range(count)).home(key) for key in SAMPLE)
    mean = len(SAMPLE) / count
    assert all(abs(held[slot] - mean) < 4.5 * mean**0.5 for slot in range(count))


def test_keys_of_a_lost_slot_spread_over_the_others() -> None:
    spread = Counter(list(Ring(range(5)).order(key))[1] for key in SAMPLE if Ring(range(5)).home(key) == 2)
    mean = spread.total() / 4
    assert set(spread) == {0, 1, 3, 4}
    assert all(abs(count - mean) < 4.5 * mean**0.5 for count in spread.values())


def test_an_empty_ring_has_no_home() -> None:
    assert Ring([]).home(1) is None
    assert list(preference([], 1)) == []


def test_rings_of_the_same_slots_are_one_object() -> None:
    assert ring_of(frozenset({1, 2})) is ring_of(frozenset({2, 1}))


def test_vectors_hold_in_every_process_and_version() -> None:
    for case in json.loads(GOLDEN.read_text()):
        assert list(Ring(case["slots"]).order(int(case["key"], 16))) == case["order"]
