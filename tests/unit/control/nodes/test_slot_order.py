import pytest

from promptgroup_operator.nodes.slot_order import by_ordinal
from promptgroup_operator.world.snapshot import holders
from support.builders import pod


def leader(ordinal, slot, **fields):
    return pod(f"support-{ordinal}", slot, ordinal=ordinal, **fields)


ORDERS = {
    "slots that equal ordinals": ([leader(0, 0), leader(1, 1)], {0, 1}, [0, 1]),
    "the slot of the highest ordinal goes first": ([leader(0, 2), leader(1, 0), leader(2, 1)], {0, 1, 2}, [2, 0, 1]),
    "a slot without a leader waits for the one that starts": ([leader(1, 0)], {0, 1}, [1, 0]),
    "slots beyond the leaders wait for the next ones": ([leader(0, 1)], {0, 1, 2}, [1, 0, 2]),
    "one that terminates holds nothing": ([leader(0, 1, deleting=True), leader(1, 0)], {0, 1}, [1, 0]),
    "nothing": ([], set(), []),
}


@pytest.mark.parametrize("case", ORDERS)
def test_the_order_in_which_slots_stay(case):
    pods, slots, expected = ORDERS[case]
    assert by_ordinal(slots, holders(pods)) == expected
