from dataclasses import replace

from promptgroup_router.base.steps import at_once
from promptgroup_router.feed.unchanged import unchanged_steps
from support.tables import group, revision, table


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
