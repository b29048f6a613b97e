from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.building import build_index, index_steps
from promptgroup_router.rings.group_entries import own_steps
from support.tables import group, revision, slot, table


def test_members_that_are_as_before_are_the_same_objects():
    before = build_index(table(group("a", revision(slots=(slot(0), slot(1))))))
    now = group("a", revision(slots=(slot(0), slot(1, incarnation="b"))))
    [(ready, draining)] = at_once(own_steps(now, "chat/a", before.names["a"]))
    had = before.names["a"].revisions[0].candidates.ready
    assert ready[0] is had[0]
    assert (ready[1].incarnation, draining) == ("b", ())


def test_a_prompt_is_prepared_once():
    before = build_index(table(group("a", revision(slots=1))))
    after = at_once(index_steps(table(group("a", revision(slots=2)), version="v2"), before))
    one, other = (view.names["a"].revisions[0].preamble for view in (before, after))
    assert one is other
