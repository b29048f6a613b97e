import pytest

from promptgroup_contract.table import RoutingTable
from promptgroup_router.base.steps import at_once
from promptgroup_router.routing.sound_part import sound_part
from support.tables import group, revision, slot, table

BAD = group("b", revision(slots=(slot(1 << 64, address="10.0.0.1:8000"),)))
"""A group that decoding refuses, and at which the router would fail."""


@pytest.mark.parametrize("last", [RoutingTable(), table(group("b"), group("gone"))], ids=["new", "known"])
def test_a_group_at_which_the_router_fails_keeps_its_last_value_or_is_left_out(last):
    found, faults = at_once(sound_part(table(group("a"), BAD, group("c"), version="v2"), last))
    assert list(faults) == ["chat/b"]
    assert isinstance(faults["chat/b"], OverflowError)
    kept = [each for each in last.groups if each.name == "b"]
    assert found == table(group("a"), *kept, group("c"), version="v2")


def test_a_group_that_is_served_is_not_tried_again():
    assert at_once(sound_part(table(BAD), table(BAD))) == (table(BAD), {})
