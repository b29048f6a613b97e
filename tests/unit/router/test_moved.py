import pytest

from promptgroup_router.contract.table import SlotState
from promptgroup_router.moved import moved
from promptgroup_router.view import view_of
from support.tables import group, revision, slot, table


def share(before, after):
    return dict(moved(view_of(table(group("a", before))), view_of(table(group("a", after))))).get("chat/a")


def test_nothing_moves_when_pods_are_replaced_in_their_slots():
    before, after = (revision(slots=tuple(slot(i, incarnation=life) for i in range(4))) for life in "xy")
    assert share(before, after) == 0


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_new_slot_moves_its_share(count):
    assert share(revision(slots=count), revision(slots=count + 1)) == pytest.approx(1 / (count + 1), abs=0.05)


def test_a_slot_that_is_away_moves_its_own_keys():
    away = (slot(0), slot(1), slot(2, SlotState.ABSENT), slot(3))
    assert share(revision(slots=4), revision(slots=away)) == pytest.approx(1 / 4, abs=0.05)


def test_new_groups_and_new_revisions_have_no_before():
    assert share(revision("old"), revision("new")) == 0
    assert dict(moved(view_of(table(group("a"))), view_of(table(group("b"))))) == {}
