from dataclasses import replace

from promptgroup_contract.table import Engine, SlotState
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.renewal import renewed
from support.tables import group, revision, slot, table

ENGINE = Engine("one", kv_tokens=100_000, prefill_rate=10_000)


def view_of(*states, incarnation="a", address="", more=()):
    held = tuple(slot(index, state, address, incarnation) for index, state in enumerate(states))
    return build_index(table(group("a", revision(slots=held, engine=ENGINE)), *more))


READY, ABSENT, DRAINING = SlotState.READY, SlotState.ABSENT, SlotState.DRAINING
BEFORE = view_of(READY, READY)
CANDIDATES = BEFORE.names["a"].revisions[0].candidates


def slots(candidates):
    return [member.slot for member in candidates.members]


def test_members_that_have_left_or_drain_are_dropped_and_none_is_added():
    for state in (ABSENT, DRAINING):
        left = renewed(CANDIDATES, view_of(READY, state, READY))
        assert (slots(left), [member.slot for member in left.order(7)]) == ([0], [0])
    assert slots(renewed(CANDIDATES, build_index(table(group("b"))))) == []


def test_a_slot_is_reached_at_the_address_of_the_process_that_has_it_now():
    view = view_of(READY, READY, incarnation="b", address="10.9.9.9:8000")
    assert renewed(CANDIDATES, view).members == view.names["a"].revisions[0].candidates.members


def test_members_that_drain_are_left_where_no_other_is():
    assert slots(renewed(CANDIDATES, view_of(DRAINING, ABSENT))) == [0]
    assert slots(renewed(CANDIDATES.only(CANDIDATES.ready[1]), view_of(READY, DRAINING))) == [1]
    first, second = (CANDIDATES.only(each) for each in CANDIDATES.ready)
    both = replace(first, last_resort=second)
    assert slots(renewed(both, view_of(DRAINING, ABSENT))) == [0], "the last resort has nobody left"
    assert slots(renewed(both, view_of(DRAINING, READY))) == [], "the last resort has somebody"


def test_lent_members_and_the_last_resort_are_brought_up_to_the_table_too():
    lender = group("b", revision("lends", slots=2, engine=ENGINE))
    lent = view_of(READY, READY, more=(lender,)).names["a"].revisions[0].candidates
    assert len(lent.lent) == 2
    assert renewed(lent, BEFORE).lent == ()
    last = replace(CANDIDATES, last_resort=replace(CANDIDATES, ready=(), lent=CANDIDATES.ready))
    assert slots(renewed(last, view_of(READY, ABSENT)).last_resort) == [0]
    assert renewed(last, build_index(table(group("b")))).last_resort is None
