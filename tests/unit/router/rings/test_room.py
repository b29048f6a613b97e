import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.table import TableError
from promptgroup_router.rings.room import MOST, MOST_OF_NAMESPACE, NOTHING, Room, Size, size_of

HALF = Size(1, MOST_OF_NAMESPACE.slots // 2)


def test_a_namespace_takes_no_more_than_its_part():
    room = Room()
    room.take("a", "one", HALF)
    room.take("a", "two", HALF)
    with pytest.raises(TableError, match=r"a/three: the routes of namespace a would have 3 revisions and 32769 slots"):
        room.check("a", "three", Size(1, 1))
    room.check("b", "three", HALF)
    room.check("a", "two", HALF)  # a route in place of itself
    room.leave("a", "one")
    room.check("a", "three", HALF)


def test_all_namespaces_take_no_more_than_there_is():
    room = Room()
    for number in range(MOST.slots // MOST_OF_NAMESPACE.slots):
        room.take(f"n{number}", "all", Size(1, MOST_OF_NAMESPACE.slots))
    with pytest.raises(TableError, match="all namespaces"):
        room.check("last", "one", Size(1, 1))


def test_revisions_count_as_well():
    with pytest.raises(TableError, match="16385 revisions"):
        Room().check("a", "one", Size(MOST_OF_NAMESPACE.revisions + 1, 0))


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (None, NOTHING),
        ({"revisions": "x"}, NOTHING),
        ({"revisions": [{"slots": [1, 2]}, {"slots": 7}, None]}, Size(3, 2)),
    ],
)
def test_the_size_is_told_before_anything_is_decoded(spec, size):
    assert size_of(spec) == size


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 5) | st.none()), max_size=20))
def test_what_is_taken_is_the_sum_of_what_is_there(changes):
    room, there = Room(), {}
    for namespace, name, slots in changes:
        if slots is None:
            room.leave(namespace, name)
            there.pop((namespace, name), None)
        else:
            room.take(namespace, name, Size(1, slots))
            there[namespace, name] = slots
    assert room._all == Size(len(there), sum(there.values()))


@pytest.mark.parametrize(
    ("slots", "places"), [([{"ranks": 8}, {}], 9), ([{"ranks": True}, {"ranks": -3}, 7], 3), ([{"ranks": "8"}], 1)]
)
def test_each_rank_takes_room(slots, places):
    assert size_of({"revisions": [{"slots": slots}]}) == Size(1, places)
