import pytest

from promptgroup_contract.table import Policy
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.balancer import Balancer, NoMemberLeftError
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from support.placements import DEMAND, ENGINE, asks, served
from support.tables import group, revision, table


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_goes_round_tried_and_ejected_slots_and_fails_open(policy):
    health = Health()
    candidates, balancer = served(policy=policy, health=health)
    first = balancer.pick(candidates, DEMAND, 0.0).member
    second = balancer.pick(candidates, DEMAND, 0.0, (first.id,)).member
    third = balancer.pick(candidates, DEMAND, 0.0, (first.id, second.id)).member
    assert {first.slot, second.slot, third.slot} == {0, 1, 2}
    with pytest.raises(NoMemberLeftError):
        balancer.pick(candidates, DEMAND, 0.0, (first.id, second.id, third.id))
    health.failed(first.id, "a", 0.0)
    health.failed(second.id, "a", 0.0)
    assert {balancer.pick(candidates, DEMAND, 0.0).member.slot for _ in range(5)} == {third.slot}
    health.failed(third.id, "a", 0.0)
    assert balancer.pick(candidates, DEMAND, 0.0) is not None
    assert balancer.pick(candidates, DEMAND, 99.0) is not None


def test_an_empty_pool_has_nothing_to_pick():
    candidates, balancer = served(slots=0)
    with pytest.raises(NoMemberLeftError):
        balancer.pick(candidates, DEMAND, 0.0)


def test_a_cache_that_is_full_of_live_sessions_makes_new_ones_wait_and_their_end_makes_room():
    candidates, balancer = served(slots=1)
    picks, session = [], 100
    while (pick := balancer.pick(candidates, Demand(session, 11, prompt=10_000, history=1), 0.0)) is not None:
        picks.append(pick)
        session += 1
    assert 6 <= len(picks) <= 8  # 0.8 of 100,000 tokens
    for pick in picks:
        balancer.placed.end(pick, None, 1.0)
    assert balancer.pick(candidates, Demand(session, 11, prompt=10_000), 2.0) is None
    assert balancer.pick(candidates, Demand(session, 11, prompt=10_000), 60.0) is not None


def turn_of(session, turn):
    prompt = 12_000 + 1000 * turn
    return Demand(session, 11, prompt=prompt, history=prompt - 1000 if turn else 0, turn=1 + 2 * turn)


def test_sessions_that_wait_do_not_keep_each_other_out_while_the_engine_is_idle():
    candidates, balancer = served(slots=1)
    turns, now, running = dict.fromkeys(range(1, 15), 0), 0.0, {}
    while max(turns.values()) < 6:
        for session in turns:
            if session not in running:
                pick = balancer.pick(candidates, turn_of(session, turns[session]), now)
                if pick is not None:
                    running[session] = pick
        assert len(running) >= 5, f"{len(running)} of {len(turns)} sessions run at {now}"
        now += 0.2
        for session, pick in running.items():
            balancer.placed.first_token(pick, now)
            balancer.placed.end(pick, Usage(pick.demand.prompt, int(pick.cached), 20), now)
            turns[session] += 1
        running.clear()


@pytest.mark.parametrize(("turn", "admitted"), [(0, False), (1, True)])
def test_sessions_between_two_turns_do_not_keep_an_engine_idle_but_no_new_one_takes_their_place(turn, admitted):
    candidates, balancer = served(slots=1)
    for session in range(1, 9):
        pick = balancer.pick(candidates, turn_of(session, 1), 0.0)
        balancer.placed.first_token(pick, 0.1)
        balancer.placed.end(pick, Usage(pick.demand.prompt, 0, 20), 0.2)
    assert (balancer.pick(candidates, turn_of(20, turn), 0.3) is not None) is admitted


def test_an_idle_replica_takes_whatever_comes_and_an_unknown_cache_keeps_nobody_waiting():
    candidates, balancer = served(slots=1)
    assert balancer.pick(candidates, Demand(1, 11, prompt=500_000), 0.0) is not None
    view = build_index(table(group("a", revision(slots=1))))
    unknown = Balancer(Health())
    unknown.install(view, 0.0)
    for session in range(50):
        assert unknown.pick(view.names["a"].revisions[0].candidates, Demand(session, 1, prompt=90_000), 0.0) is not None


def test_new_sessions_go_where_their_prefix_is_until_waiting_costs_more():
    candidates, balancer = served(slots=3)
    first = balancer.pick(candidates, asks(1), 0.0)
    balancer.placed.first_token(first, 0.9)
    balancer.placed.end(first, Usage(8200, 0, 10), 1.0)
    found = []
    for session in range(2, 5):
        found.append(balancer.pick(candidates, asks(session, shares=3), 10.0 * session))
        balancer.placed.end(found[-1], Usage(8200, 6000, 10), 10.0 * session + 1)
    assert {pick.member.id for pick in found} == {first.member.id}
    assert [pick.cached for pick in found] == [6000] * 3
    first.replica.send(10.0, 1000, 50.0, streamed=True)
    assert balancer.pick(candidates, asks(9), 50.0).member.id != first.member.id


def releasing():
    """A group of two revisions: one serves and lends, the other is judged."""
    serving = revision("old", slots=2, engine=ENGINE)
    canary = revision("new", slots=1, engine=ENGINE, lends=False, weight=10)
    view = build_index(table(group("a", serving, canary)))
    balancer = Balancer(Health())
    balancer.install(view, 0.0)
    old, new = (each.candidates for each in view.names["a"].revisions)
    return balancer, old, new


def test_a_busy_canary_keeps_its_requests_while_it_has_room():
    balancer, _, new = releasing()
    for session in range(8):
        assert balancer.pick(new, Demand(session, 11, prompt=8000, tier1=2000), 0.0).member in new.ready


def test_a_canary_without_room_overflows_to_the_revision_that_serves():
    balancer, old, new = releasing()
    new_replica = balancer.members.replicas[new.ready[0].id]
    new_replica.live.enter(1000, 12, 0, 0.99 * ENGINE.kv_tokens, returned=True)
    assert balancer.preview(new, DEMAND, 0.0).member in old.ready
    assert balancer.pick(new, DEMAND, 0.0).member in old.ready
    for member in old.ready:
        balancer.members.replicas[member.id].live.enter(1000, 12, 0, 0.99 * ENGINE.kv_tokens, returned=True)
    assert balancer.pick(new, Demand(session=8, prefix=11, prompt=3000, tier1=2000), 0.0) is None


def test_a_canary_whose_replica_was_tried_goes_to_the_revision_that_serves():
    balancer, old, new = releasing()
    tried = [new.ready[0].id]
    for _ in old.ready:
        tried.append(balancer.pick(new, DEMAND, 0.0, tried).member.id)
    assert set(tried[1:]) == {member.id for member in old.ready}
    with pytest.raises(NoMemberLeftError):
        balancer.pick(new, DEMAND, 0.0, tried)
