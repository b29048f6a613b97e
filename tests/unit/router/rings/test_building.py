from dataclasses import replace

import pytest

from promptgroup_contract.table import Engine, SlotState
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.building import build_index, index_steps, unchanged_steps
from support.tables import group, revision, slot, table

ENGINE = Engine("one", kv_tokens=100_000)


def groups(count, **fields):
    return [group(f"g{at}", revision(f"Prompt {at}. " * 3, 2, engine=ENGINE), **fields) for at in range(count)]


def changed(found, **fields):
    slots = (slot(0, SlotState.ABSENT), slot(1))
    return replace(found, revisions=(replace(found.revisions[0], slots=slots),), **fields)


def test_groups_that_have_not_changed_keep_their_entries_but_for_those_who_borrow_what_did():
    listed = groups(200)
    before = build_index(table(*listed))
    after = at_once(index_steps(table(changed(listed[0]), *listed[1:], version="v2"), before))
    same = [one is other for one, other in zip(before.groups, after.groups, strict=True)]
    assert not same[0]
    assert 20 < same.count(False) < 120, "those whose lenders include the slot that has left"
    assert after.names["g0"].revisions[0].candidates.ring is before.names["g0"].revisions[0].candidates.ring


def test_a_change_that_concerns_no_name_keeps_names_and_models_of_others():
    listed = [*groups(5), group("other", revision("x"), model="qwen")]
    before = build_index(table(*listed))
    after = at_once(index_steps(table(changed(listed[0]), *listed[1:], version="v2"), before))
    assert after.models["qwen"] is before.models["qwen"]
    assert after.parts.keepers is before.parts.keepers
    assert after.models["llama"].claims.match("", "Prompt 0. " * 3) is after.names["g0"].revisions[0]


@pytest.mark.parametrize("kept", [0, 3])
def test_what_leaves_is_found_no_more(kept):
    listed = groups(5)
    before = build_index(table(*listed))
    after = at_once(index_steps(table(*listed[:kept], group("x", revision("x")), version="v2"), before))
    assert after == build_index(table(*listed[:kept], group("x", revision("x")), version="v2"))
    assert "chat/g4" not in after.names


def test_the_same_table_again_is_the_last_one():
    last = table(group("a"), group("b", revision("B")))
    assert at_once(unchanged_steps(table(group("a"), group("b", revision("B"))), last)) is last


def test_groups_that_are_equal_stay_the_same_objects():
    last = table(group("a"), group("b", revision("B")))
    found = at_once(unchanged_steps(table(group("a"), group("b", revision("C")), version="v2"), last))
    assert found.groups[0] is last.groups[0]
    assert found == table(group("a"), group("b", revision("C")), version="v2")


def test_another_version_is_another_table():
    last = table()
    found = at_once(unchanged_steps(replace(last, version="v2"), last))
    assert (found.version, found.groups[0] is last.groups[0]) == ("v2", True)
