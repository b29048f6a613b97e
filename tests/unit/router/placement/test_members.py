import math

import pytest

from promptgroup_contract.table import Engine, SlotState
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.costs import SEQUENCES
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from support.placements import (
    DEMAND,
    ENGINE,
    NEXT,
    hosted,
    others,
    served,
    view_with,
)
from support.tables import group, revision, slot, table


def test_a_capacity_that_a_later_table_tells_holds_for_engines_that_are_known():
    def view(engine):
        return build_index(table(group("a", revision(slots=(slot(0, incarnation="a"),), engine=engine))))

    balancer = Balancer(Health())
    balancer.install(view(Engine("one")), 0.0)
    (replica,) = balancer.members.replicas.values()
    assert replica.costs.cache_tokens == math.inf
    balancer.install(view(ENGINE), 1.0)
    assert (replica.costs.kv_tokens, replica.costs.cache_tokens) == (100_000, 100_000)
    balancer.install(view(Engine("one")), 2.0)
    assert (replica.costs.kv_tokens, replica.costs.cache_tokens) == (100_000, 100_000)


@pytest.mark.parametrize(
    ("tables", "expected"),
    [([48], 48), ([0], SEQUENCES), ([0, 48], 48), ([48, 0], 48)],
    ids=["told", "not told", "told by a later table", "told by an earlier table"],
)
def test_an_engine_runs_as_many_requests_as_the_table_tells_or_as_is_usual(tables, expected):
    balancer = Balancer(Health())
    for told in tables:
        engine = Engine("one", max_sequences=told)
        balancer.install(build_index(table(group("a", revision(slots=2, engine=engine)))), 0.0)
    assert {replica.costs.sequences for replica in balancer.members.replicas.values()} == {expected}


def test_another_process_behind_a_slot_has_cached_nothing_but_its_own_prompt():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.placed.end(first, Usage(3000, 2000, 150), 0.1)
    view = view_with(incarnations={first.member.slot: "b"})
    balancer.install(view, 1.0)
    candidates = view.names["a"].revisions[0].candidates
    again = balancer.pick(
        candidates, NEXT, 1.0, others(candidates, next(m for m in candidates.ready if m.slot == first.member.slot))
    )
    assert again.cached == 0
    own = view.names["a"].revisions[0].prefix
    warm = Demand(session=99, prefix=own, prompt=3000, tier1=2000)
    assert balancer.pick(candidates, warm, 1.0, others(candidates, again.member)).cached == 2000


def test_only_a_process_that_took_over_from_another_without_a_gap_inherits_its_sessions():
    candidates, balancer = served()
    taken, away = candidates.ready[:2]
    balancer.install(view_with(incarnations={taken.slot: "b"}), 1.0)
    assert balancer.members.replicas[taken.id].inherited == 1.0
    balancer.install(build_index(table(group("b"))), 2.0)
    balancer.install(view_with(incarnations={away.slot: "b"}), 3.0)
    assert balancer.members.replicas[away.id].inherited < 0


def test_a_slot_that_was_away_comes_back_with_an_empty_record():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.placed.end(first, Usage(3000, 2000, 150), 0.1)
    balancer.install(build_index(table(group("b"))), 1.0)
    view = view_with(incarnations={first.member.slot: "b"})
    balancer.install(view, 2.0)
    candidates = view.names["a"].revisions[0].candidates
    member = next(each for each in candidates.ready if each.slot == first.member.slot)
    assert balancer.pick(candidates, NEXT, 2.0, others(candidates, member)).cached == 0


@pytest.mark.parametrize("away", [True, False])
def test_nothing_is_believed_of_a_process_whose_slot_another_one_has_however_much_it_had_written(away):
    candidates, balancer = served(slots=1)
    for session in range(100):
        pick = balancer.pick(candidates, Demand(session, 12, prompt=3000), 10.0 * session)
        balancer.placed.end(pick, Usage(3000, 0, 10), 10.0 * session + 1)
    last = balancer.pick(candidates, DEMAND, 1000.0)
    balancer.placed.end(last, Usage(3000, 2000, 150), 1001.0)
    if away:
        absent = slot(0, SlotState.ABSENT)
        balancer.install(build_index(table(group("a", revision(slots=(absent,), engine=ENGINE)))), 1002.0)
    view = view_with(1, incarnations={0: "b"})
    balancer.install(view, 1030.0)
    assert list(balancer.peers.snapshot()) == []
    assert balancer.pick(view.names["a"].revisions[0].candidates, NEXT, 1030.0).cached == 0


def books(balancer):
    def of(replica):
        costs, prefixes = replica.costs, list(replica.prefixes._entries.items())
        plain = (replica.key, replica.incarnation, replica.written, replica.since, replica.inherited, replica.step)
        return (*plain, prefixes, costs.kv_tokens, costs.rate)

    return {id_: of(replica) for id_, replica in balancer.members.replicas.items()}


def test_what_a_table_adds_can_be_made_before_it_is_installed(monkeypatch):
    """So that a table of thousands of new replicas holds a router's loop for milliseconds alone."""
    view, (_, balancer), (_, plain) = view_with(5, incarnations={0: "b"}), served(), served()
    plain.install(view, 7.0)
    steps = sum(1 for _ in balancer.members.prepare(view, 7.0))
    assert steps > 5
    monkeypatch.setattr("promptgroup_router.placement.members.ReplicaLoad", None)
    balancer.install(view, 7.0)
    assert books(balancer) == books(plain)
    kinds = {id(replica.costs) for replica in balancer.members.replicas.values()}
    assert len(kinds) == 1  # replicas of one kind learn together


def test_what_was_made_for_another_table_is_not_taken():
    _, balancer = served()
    for _ in balancer.members.prepare(view_with(5, incarnations={0: "b", 4: "b"}), 3.0):
        pass
    balancer.install(view_with(5, incarnations={0: "c"}), 7.0)
    assert [replica.incarnation for replica in balancer.members.replicas.values()] == ["c", "a", "a", "a", "a"]


def test_a_table_that_changes_nothing_keeps_the_books():
    candidates, balancer = served()
    pick = balancer.pick(candidates, DEMAND, 0.0)
    balancer.install(view_with(), 1.0)
    assert balancer.placed.loads == {pick.member.id: 1}
    balancer.placed.release(pick, 1.0)
    assert balancer.placed.loads == {}


def test_groups_on_one_engine_see_the_load_of_each_other_there():
    view, balancer = hosted("a", "b"), Balancer(Health())
    balancer.install(view, 0.0)
    mine, theirs = (view.names[name].revisions[0].candidates for name in "ab")
    first = balancer.pick(mine, DEMAND, 0.0)
    (same,) = (each for each in theirs.ready if each.slot == first.member.slot)
    assert balancer.members.replicas[same.id] is first.replica
    assert balancer.members.replicas[same.id].load == 1
    assert balancer.placed.loads == {first.member.id: 1}
    assert (balancer.placed.live(mine), balancer.placed.live(theirs)) == (1, 0)
    balancer.placed.end(first, Usage(3000, 2000, 150), 0.5)
    assert balancer.placed.loads == {}


def test_a_group_that_comes_to_an_engine_takes_over_what_is_known_of_it():
    balancer = Balancer(Health())
    balancer.install(hosted("b"), 0.0)
    before = set(map(id, balancer.members.replicas.values()))
    balancer.install(hosted("a", "b"), 1.0)
    assert set(map(id, balancer.members.replicas.values())) == before
    assert len(balancer.members.replicas) == 4
    balancer.install(hosted("a"), 2.0)
    assert set(map(id, balancer.members.replicas.values())) == before
