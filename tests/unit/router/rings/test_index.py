from dataclasses import replace

import pytest

from promptgroup_contract.access import ANYBODY
from promptgroup_contract.caller_rules import CallerRules, EngineField
from promptgroup_contract.table import Engine, SlotState
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.index import LENDERS
from support.keys import BY_KEY
from support.tables import SYSTEM, group, revision, slot, table


def test_groups_are_found_by_full_name_and_the_oldest_by_its_short_name():
    old = group("b", namespace="other", model="x", created="2026-01-01T00:00:00Z")
    view = build_index(table(group("a"), group("b"), old))
    assert {name: found.label for name, found in view.names.items()} == {
        "chat/a": "chat/a",
        "a": "chat/a",
        "chat/b": "chat/b",
        "other/b": "other/b",
        "b": "other/b",
    }


def test_a_member_keeps_its_identity_through_states_and_pods():
    before = build_index(table(group("a", revision(slots=(slot(0, address="1.1.1.1:1", incarnation="x"),)))))
    after = build_index(table(group("a", revision(slots=(slot(0, address="2.2.2.2:1", incarnation="y"),)))))
    (one,), (other,) = (view.names["a"].revisions[0].candidates.ready for view in (before, after))
    assert one.id == other.id
    assert (one.address, other.address) == ("1.1.1.1:1", "2.2.2.2:1")
    assert one.label == f"chat/a/{revision().fingerprint[:8]}/0"


def test_slots_that_are_away_keep_their_place_and_get_nothing():
    full = build_index(table(group("a", revision(slots=3)))).names["a"].revisions[0].candidates
    states = (slot(0), slot(1, SlotState.DRAINING), slot(2, SlotState.ABSENT))
    partial = build_index(table(group("a", revision(slots=states)))).names["a"].revisions[0].candidates
    for key in range(50):
        home = next(full.order(key)).slot
        choices = [member.slot for member in partial.order(key)]
        assert choices == [0]
        if home == 0:
            assert next(partial.order(key)).slot == home
    assert [member.slot for member in partial.ready] == [0]


def claimed(view, system="", tools=""):
    found = view.models["llama"].claims.match(tools, system)
    return found.label if found is not None else None


def test_a_prompt_without_text_and_tools_claims_nothing():
    view = build_index(table(group("c", revision("")), group("d", revision("", tools="[1]"))))
    assert claimed(view, "anything") is None
    assert claimed(view, "anything", tools="[1]") == "chat/d"


def test_of_two_groups_with_one_prompt_the_older_keeps_it():
    young = group("a", created="2026-11-05T00:00:00Z")
    old = group("b", created="2026-11-04T00:00:00Z")
    undated = group("c", created="")
    view = build_index(table(young, old, undated))
    assert claimed(view, SYSTEM) == "chat/b"
    assert [(conflict.group, conflict.keeper) for conflict in view.conflicts] == [
        ("chat/a", "chat/b"),
        ("chat/c", "chat/b"),
    ]


def test_of_two_groups_of_one_age_the_first_by_name_keeps_it():
    view = build_index(table(group("b"), group("a")))
    assert claimed(view, SYSTEM) == "chat/a"


def test_one_prompt_in_two_namespaces_is_no_conflict():
    view = build_index(table(group("a"), group("b", namespace="other")))
    assert view.conflicts == ()
    assert list(view.models["llama"].tenants) == ["chat", "other"]


def test_requests_that_match_nothing_stay_in_a_namespace():
    view = build_index(table(group("a"), group("b", namespace="other")))
    for namespace, tenant in view.models["llama"].tenants.items():
        assert {member.group.partition("/")[0] for member in tenant.candidates.members} == {namespace}


def test_one_prompt_for_two_models_is_no_conflict():
    view = build_index(table(group("a"), group("b", model="other")))
    assert view.conflicts == ()


def test_a_models_pool_is_every_ready_slot_of_its_groups():
    view = build_index(
        table(group("a", revision("x", 2)), group("b", revision("y", (slot(0), slot(1, SlotState.ABSENT)))))
    )
    candidates = view.models["llama"].first.candidates
    assert sorted(member.label.split("/")[1] + member.label[-1] for member in candidates.ready) == ["a0", "a1", "b0"]
    orders = [[member.id for member in candidates.order(key)] for key in range(20)]
    assert all(sorted(order) == sorted(member.id for member in candidates.ready) for order in orders)
    assert len({order[0] for order in orders}) > 1


def test_a_prompt_whose_text_is_not_known_has_no_preamble():
    assert build_index(table(group("a", revision(known=False)))).names["a"].revisions[0].preamble is None


def _lenders(view, short_name):
    revision = next(each for each in view.names[short_name].revisions)
    return {member.group for member in revision.candidates.members if member not in revision.candidates.ready}


def test_a_revision_that_does_not_lend_borrows_and_is_not_borrowed_from():
    alike = {"engine": Engine(settings="s")}
    serving = revision("A", 1, **alike)
    old = revision("B", 1, lends=False, weight=0, **alike)
    view = build_index(table(group("one", serving), group("two", old)))
    assert (_lenders(view, "one"), _lenders(view, "two")) == (set(), {"chat/one"})


@pytest.mark.parametrize(
    ("one", "two", "lend"),
    [
        (None, None, True),
        (BY_KEY, BY_KEY, True),
        (BY_KEY, None, False),
        (BY_KEY, ANYBODY, False),
        (BY_KEY, replace(BY_KEY, callers=("team-a",)), False),
        (BY_KEY, replace(BY_KEY, secrets=("others",)), False),
    ],
)
def test_groups_lend_only_where_whoever_may_use_the_one_may_use_the_other(one, two, lend):
    alike = {"engine": Engine("same")}
    view = build_index(
        table(
            group("one", revision("A", 1, **alike), access=one),
            group("two", revision("B", 1, **alike), access=two),
        )
    )
    assert (_lenders(view, "one"), _lenders(view, "two")) == (({"chat/two"}, {"chat/one"}) if lend else (set(), set()))


def test_requests_without_a_group_go_to_replicas_that_lend_and_to_others_only_where_there_are_none():
    serving, old = revision("A", 1), revision("B", 1, lends=False, weight=0)
    (member,) = build_index(table(group("support", serving, old))).models["llama"].first.candidates.members
    assert member.fingerprint == serving.fingerprint
    (member,) = build_index(table(group("support", old))).models["llama"].first.candidates.members
    assert member.fingerprint == old.fingerprint


def test_two_indexes_of_one_table_are_equal_and_say_what_differs_otherwise():
    served = table(group("a", revision("A", engine=Engine(settings="s"))), group("b", revision("B", 2)))
    assert build_index(served) == build_index(served)
    smaller = build_index(table(group("a", revision("A", 2))))
    assert smaller.groups[0].revisions[0].candidates != build_index(served).groups[0].revisions[0].candidates


def test_overflow_crosses_the_revisions_of_one_group_only_where_nothing_else_can_serve():
    alike = {"engine": Engine(settings="s")}
    serving, canary = revision("A", 2, **alike), revision("B", 1, lends=False, weight=10, **alike)
    neighbour = group("other", revision("C", 1, **alike))
    view = build_index(table(group("one", serving, canary), neighbour))
    old, new = (each.candidates for each in view.names["one"].revisions)
    assert [member.group for member in new.lent] == ["chat/other"]
    assert new.last_resort.members == old.ready
    assert [member.group for member in old.lent] == ["chat/other"]
    assert old.last_resort is None
    # a revision without a replica has nothing to be judged by
    empty = revision("B", 0, lends=False, weight=10, **alike)
    view = build_index(table(group("one", serving, empty)))
    assert view.names["one"].revisions[1].candidates.lent == old.ready


def test_of_many_groups_that_share_each_borrows_a_few_and_every_replica_is_lent():
    count = 3 * LENDERS
    alike = {"engine": Engine(settings="s")}
    groups = [group(f"g{number}", revision(f"prompt {number}", 1, **alike)) for number in range(count)]
    view = build_index(table(*groups))
    lent = {each.label: each.revisions[0].candidates.lent for each in view.groups}
    assert {len(members) for members in lent.values()} == {LENDERS}
    assert not any(member.group == label for label, members in lent.items() for member in members)
    assert len({member.id for members in lent.values() for member in members}) == count
    other_order = build_index(table(*groups[::-1]))
    assert {each.label: each.revisions[0].candidates.lent for each in other_order.groups} == lent


def undeclared(*rules):
    """The rules for prompts that no group of a pool declares."""
    groups = [group(f"g{n}", callers=each) for n, each in enumerate(rules)]
    return build_index(table(*groups)).models["llama"].tenants["chat"].candidates.rules


@pytest.mark.parametrize(
    ("apis", "left"),
    [
        ([None, None], None),
        ([None, {"chat"}], {"chat"}),
        ([{"chat", "text"}, {"chat"}, None], {"chat"}),
        ([{"chat"}, {"text"}], set()),
        ([{"chat"}, {"text"}, None], set()),
    ],
)
def test_undeclared_prompts_are_isolated_if_any_group_of_the_pool_isolates(apis, left):
    rules = undeclared(*(CallerRules(salted=each if each is None else frozenset(each)) for each in apis))
    assert rules.salted == left
    assert rules.isolates is (left is not None)


def test_undeclared_prompts_get_no_field_nor_header_that_a_group_of_the_pool_allows():
    loose = CallerRules(allowed=frozenset(EngineField), headers=frozenset(("x-tenant",)))
    for groups in ([loose], [loose, CallerRules()], [loose, loose]):
        rules = undeclared(*groups)
        assert not rules.allowed
        assert not rules.headers


def test_each_rank_of_an_engine_is_a_member_and_a_place_on_the_ring():
    slots = (slot(0, ranks=2), slot(1), slot(2, SlotState.ABSENT, ranks=2))
    found = build_index(table(group("a", revision(slots=slots)))).names["a"].revisions[0].candidates
    assert [(member.slot, member.rank, member.address) for member in found.ready] == [
        (0, 0, "10.0.0.1:8000"),
        (0, 1, "10.0.0.1:8000"),
        (1, None, "10.0.0.2:8000"),
    ]
    assert len({member.id for member in found.ready}) == 3
    assert {member.slot_id for member in found.ready} == {member.id.partition(".")[0] for member in found.ready}
    assert found.ready[1].label == f"chat/a/{revision().fingerprint[:8]}/0.1"
    homes = {next(found.ring.order(key)) for key in range(200)}
    assert len(homes) == 5  # those of the absent slot keep their places
    assert {next(found.order(key)).id for key in range(200)} == {member.id for member in found.ready}


def test_ranks_that_come_move_no_session_between_slots():
    one, four = (
        build_index(table(group("a", revision(slots=(slot(0, ranks=ranks), slot(1, ranks=ranks))))))
        .names["a"]
        .revisions[0]
        .candidates
        for ranks in (1, 4)
    )
    stayed = [next(one.order(key)).slot for key in range(400) if next(four.order(key)).rank == 0]
    assert stayed == [next(four.order(key)).slot for key in range(400) if next(four.order(key)).rank == 0]


def test_the_apis_on_which_engines_choose_the_rank_are_those_of_any_group_of_the_model():
    made = replace(revision(slots=(slot(0, ranks=2),)), engine=Engine(unranked=frozenset(("responses",))))
    view = build_index(table(group("a", made), group("b", revision("Another."))))
    assert view.models["llama"].tenants["chat"].candidates.unranked == {"responses"}
    assert view.names["b"].revisions[0].candidates.unranked == frozenset()
