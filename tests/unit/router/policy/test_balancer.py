import math
from dataclasses import replace

import pytest

from promptgroup_contract.table import Engine, Policy, Sharing, SlotState
from promptgroup_router.apis.usage import Usage
from promptgroup_router.peers.datagram import Datagram, DatagramKind, encode
from promptgroup_router.policy.balancer import Balancer, NoMemberLeftError
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.gossip import LAST_TURN, REPEATS, REPORT_SECONDS, LoadReport, PlacementReport
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from support.tables import group, revision, slot, table


def opening(session):
    """The first turn of a session."""
    return Demand(session=session, prefix=11, prompt=3000, tier1=2000)


def following(session):
    """A later turn of it."""
    return Demand(session=session, prefix=11, prompt=3400, tier1=2000, history=3150, turn=3)


DEMAND, NEXT = opening(7), following(7)
ENGINE = Engine("one", kv_tokens=100_000, prefill_rate=10_000)


def view_with(slots=3, policy=Policy.EXPECTED_TTFT, incarnations=None):
    held = tuple(slot(index, incarnation=(incarnations or {}).get(index, "a")) for index in range(slots))
    return build_index(table(group("a", revision(slots=held, engine=ENGINE), policy=policy)))


def served(slots=3, policy=Policy.EXPECTED_TTFT, health=None):
    view = view_with(slots, policy)
    balancer = Balancer(health or Health())
    balancer.install(view, 0.0)
    return view.names["a"].revisions[0].candidates, balancer


def others(candidates, member):
    return [each.id for each in candidates.ready if each is not member]


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


def test_a_capacity_that_a_later_table_tells_holds_for_engines_that_are_known():
    def view(engine):
        return build_index(table(group("a", revision(slots=(slot(0, incarnation="a"),), engine=engine))))

    balancer = Balancer(Health())
    balancer.install(view(Engine("one")), 0.0)
    (replica,) = balancer.replicas.values()
    assert replica.costs.cache_tokens == math.inf
    balancer.install(view(ENGINE), 1.0)
    assert (replica.costs.kv_tokens, replica.costs.cache_tokens) == (100_000, 100_000)
    balancer.install(view(Engine("one")), 2.0)
    assert (replica.costs.kv_tokens, replica.costs.cache_tokens) == (100_000, 100_000)


def pooled(slots=3):
    """A balancer of engines that share a tier."""
    engine = Engine("one", kv_tokens=100_000, prefill_rate=10_000, copy_rate=100_000)
    view = build_index(table(group("a", revision(slots=slots, engine=engine, tokens=2000))))
    balancer = Balancer(Health())
    balancer.install(view, 0.0)
    return view.names["a"].revisions[0].candidates, balancer


def first_turn(candidates, balancer):
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.first_token(first, 0.4)
    balancer.end(first, Usage(3000, 2000, 150), 0.5)
    return first


def test_what_another_replica_computed_is_copied_and_is_no_backlog():
    candidates, balancer = pooled()
    first = first_turn(candidates, balancer)
    moved = balancer.pick(candidates, NEXT, 1.0, (first.member.id,))
    assert (moved.moved, moved.cached, moved.copied) == (True, 3150, 3150)
    costs = moved.replica.costs
    assert moved.sent.seconds == pytest.approx(costs.prefill(3150, 3400))
    assert moved.sent.due - 1.0 >= costs.copy(3150) + moved.sent.seconds


def test_at_home_and_for_a_session_that_nobody_knows_nothing_is_copied():
    candidates, balancer = pooled()
    first_turn(candidates, balancer)
    assert balancer.pick(candidates, NEXT, 1.0).copied == 0
    home = balancer.pick(candidates, following(8), 1.0)
    assert balancer.pick(candidates, following(9), 1.0, (home.member.id,)).copied == 0


def test_a_tier_that_is_away_is_known_by_what_engines_did_not_find_and_a_copy_teaches_no_rate():
    candidates, balancer = pooled()
    for session in range(40):
        first = balancer.pick(candidates, opening(session), 10.0 * session)
        balancer.end(first, Usage(3000, 2000, 150), 10.0 * session + 1)
        moved = balancer.pick(candidates, following(session), 10.0 * session + 2, (first.member.id,))
        copied, rate = moved.copied, moved.replica.costs.rate
        balancer.first_token(moved, 10.0 * session + 3)
        balancer.end(moved, Usage(3400, 2000, 10), 10.0 * session + 4)
        assert not copied or moved.replica.costs.rate == rate
    assert copied == 0


def test_an_empty_pool_has_nothing_to_pick():
    candidates, balancer = served(slots=0)
    with pytest.raises(NoMemberLeftError):
        balancer.pick(candidates, DEMAND, 0.0)


def test_a_request_is_counted_from_the_pick_to_its_end_once():
    candidates, balancer = served()
    pick = balancer.pick(candidates, DEMAND, 0.0)
    assert balancer.loads == {pick.member.id: 1}
    before = pick.replica.tokens_written
    balancer.first_token(pick, 0.1)
    balancer.end(pick, Usage(3000, 2000, 100), 0.5)
    balancer.end(pick, Usage(3000, 2000, 100), 0.6)
    balancer.release(pick, 0.7)
    assert balancer.loads == {}
    assert pick.replica.tokens_written - before == 1100


def test_a_session_comes_back_to_where_its_history_is_and_says_what_should_be_cached():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    assert not first.moved
    balancer.first_token(first, 0.1)
    balancer.end(first, Usage(3000, 2000, 150), 0.5)
    second = balancer.pick(candidates, NEXT, 5.0)
    assert (second.member, second.moved, second.cached) == (first.member, False, 3150)


def test_without_usage_the_prediction_stands():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.end(first, None, 0.5)
    assert balancer.pick(candidates, NEXT, 5.0).cached == 3000


def test_a_session_that_is_moved_says_so_and_is_found_again_where_it_was():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.end(first, Usage(3000, 2000, 150), 0.1)
    moved = balancer.pick(candidates, NEXT, 1.0, (first.member.id,))
    assert moved.moved
    balancer.release(moved, 1.0)
    assert balancer.pick(candidates, NEXT, 1.1, (moved.member.id,)).cached == 3150


def test_another_process_behind_a_slot_has_cached_nothing_but_its_own_prompt():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.end(first, Usage(3000, 2000, 150), 0.1)
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
    assert balancer.replicas[taken.id].inherited == 1.0
    balancer.install(build_index(table(group("b"))), 2.0)
    balancer.install(view_with(incarnations={away.slot: "b"}), 3.0)
    assert balancer.replicas[away.id].inherited < 0


def test_a_slot_that_was_away_comes_back_with_an_empty_record():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.end(first, Usage(3000, 2000, 150), 0.1)
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
        balancer.end(pick, Usage(3000, 0, 10), 10.0 * session + 1)
    last = balancer.pick(candidates, DEMAND, 1000.0)
    balancer.end(last, Usage(3000, 2000, 150), 1001.0)
    if away:
        absent = slot(0, SlotState.ABSENT)
        balancer.install(build_index(table(group("a", revision(slots=(absent,), engine=ENGINE)))), 1002.0)
    view = view_with(1, incarnations={0: "b"})
    balancer.install(view, 1030.0)
    assert list(balancer.snapshot()) == []
    assert balancer.pick(view.names["a"].revisions[0].candidates, NEXT, 1030.0).cached == 0


@pytest.mark.parametrize("known", [True, False])
def test_a_request_that_ends_on_a_process_which_was_replaced_says_nothing_of_the_new_one(known):
    candidates, balancer = served(slots=1)
    if known:
        balancer.end(balancer.pick(candidates, DEMAND, 0.0), Usage(3000, 0, 150), 0.5)
    pick = balancer.pick(candidates, NEXT, 1.0)
    balancer.export(1.0)
    balancer.install(view_with(1, incarnations={0: "b"}), 2.0)
    balancer.first_token(pick, 3.0)
    balancer.end(pick, Usage(90_000, 0, 10), 4.0)
    assert list(balancer.snapshot()) == balancer.export(5.0)[0] == []


def books(balancer):
    def of(replica):
        costs, prefixes = replica.costs, list(replica.prefixes._entries.items())
        plain = (replica.key, replica.incarnation, replica.written, replica.since, replica.inherited, replica.step)
        return (*plain, prefixes, costs.kv_tokens, costs.rate)

    return {id_: of(replica) for id_, replica in balancer.replicas.items()}


def test_what_a_table_adds_can_be_made_before_it_is_installed(monkeypatch):
    """So that a table of thousands of new replicas holds a router's loop for milliseconds alone."""
    view, (_, balancer), (_, plain) = view_with(5, incarnations={0: "b"}), served(), served()
    plain.install(view, 7.0)
    steps = sum(1 for _ in balancer.prepare(view, 7.0))
    assert steps > 5
    monkeypatch.setattr("promptgroup_router.policy.balancer.ReplicaLoad", None)
    balancer.install(view, 7.0)
    assert books(balancer) == books(plain)
    kinds = {id(replica.costs) for replica in balancer.replicas.values()}
    assert len(kinds) == 1  # replicas of one kind learn together


def test_what_was_made_for_another_table_is_not_taken():
    _, balancer = served()
    for _ in balancer.prepare(view_with(5, incarnations={0: "b", 4: "b"}), 3.0):
        pass
    balancer.install(view_with(5, incarnations={0: "c"}), 7.0)
    assert [replica.incarnation for replica in balancer.replicas.values()] == ["c", "a", "a", "a", "a"]


def test_a_table_that_changes_nothing_keeps_the_books():
    candidates, balancer = served()
    pick = balancer.pick(candidates, DEMAND, 0.0)
    balancer.install(view_with(), 1.0)
    assert balancer.loads == {pick.member.id: 1}
    balancer.release(pick, 1.0)
    assert balancer.loads == {}


def test_a_request_of_a_replica_that_is_gone_ends_without_harm():
    candidates, balancer = served()
    pick = balancer.pick(candidates, DEMAND, 0.0)
    balancer.install(build_index(table(group("b"))), 1.0)
    balancer.first_token(pick, 1.1)
    balancer.end(pick, Usage(3000, 0, 10), 1.2)
    assert balancer.loads == {}


def test_isolated_streams_correct_the_rate_and_crowded_ones_do_not():
    candidates, balancer = served(slots=1)
    costs = balancer.replicas[candidates.ready[0].id].costs
    before = costs.rate
    picks = [balancer.pick(candidates, DEMAND, 0.0) for _ in range(2)]
    for pick in picks:
        balancer.first_token(pick, 5.0)
        balancer.end(pick, Usage(3000, 0, 10), 6.0)
    assert costs.rate == before
    alone = balancer.pick(candidates, DEMAND, 10.0)
    balancer.first_token(alone, 15.0)
    balancer.end(alone, Usage(3000, 0, 10), 16.0)
    assert costs.rate < before
    slower = costs.rate
    whole = balancer.pick(candidates, Demand(8, 11, prompt=3000, streamed=False), 20.0)
    balancer.first_token(whole, 30.0)
    balancer.end(whole, Usage(3000, 0, 10), 30.0)
    assert costs.rate == slower


def test_a_cache_that_is_full_of_live_sessions_makes_new_ones_wait_and_their_end_makes_room():
    candidates, balancer = served(slots=1)
    picks, session = [], 100
    while (pick := balancer.pick(candidates, Demand(session, 11, prompt=10_000, history=1), 0.0)) is not None:
        picks.append(pick)
        session += 1
    assert 6 <= len(picks) <= 8  # 0.8 of 100,000 tokens
    for pick in picks:
        balancer.end(pick, None, 1.0)
    assert balancer.pick(candidates, Demand(session, 11, prompt=10_000), 2.0) is None
    assert balancer.pick(candidates, Demand(session, 11, prompt=10_000), 60.0) is not None


def test_an_idle_replica_takes_whatever_comes_and_an_unknown_cache_keeps_nobody_waiting():
    candidates, balancer = served(slots=1)
    assert balancer.pick(candidates, Demand(1, 11, prompt=500_000), 0.0) is not None
    view = build_index(table(group("a", revision(slots=1))))
    unknown = Balancer(Health())
    unknown.install(view, 0.0)
    for session in range(50):
        assert unknown.pick(view.names["a"].revisions[0].candidates, Demand(session, 1, prompt=90_000), 0.0) is not None


# --- Peers ----------------------------------------------------------------------------------------------------


def pair(slots=3):
    candidates, one = served(slots)
    two = Balancer(Health())
    two.install(view_with(slots), 0.0)
    return candidates, one, two


def exchange(one, two, now):
    two.merge(1, *one.export(now), now)


def test_a_session_of_a_peer_is_found_where_the_peer_has_put_it():
    candidates, one, two = pair()
    first = one.pick(candidates, DEMAND, 0.0)
    exchange(one, two, 0.05)
    one.first_token(first, 0.1)
    one.end(first, Usage(3000, 2000, 150), 0.5)
    exchange(one, two, 0.55)
    second = two.pick(candidates, NEXT, 3.0)
    assert (second.member.id, second.cached, second.moved) == (first.member.id, 3150, False)


MARKS = [101, 102, 103, 104]


def asks(session, *, shares=4, prompt=8200):
    """A new session whose prompt begins with so many of MARKS."""
    marks = [*MARKS[:shares], *(session * 1000 + place for place in range(4 - shares))]
    return Demand(session, session, prompt=prompt, marks=marks, lengths=[2000, 4000, 6000, 8000])


def test_new_sessions_go_where_their_prefix_is_until_waiting_costs_more():
    candidates, balancer = served(slots=3)
    first = balancer.pick(candidates, asks(1), 0.0)
    balancer.first_token(first, 0.9)
    balancer.end(first, Usage(8200, 0, 10), 1.0)
    found = []
    for session in range(2, 5):
        found.append(balancer.pick(candidates, asks(session, shares=3), 10.0 * session))
        balancer.end(found[-1], Usage(8200, 6000, 10), 10.0 * session + 1)
    assert {pick.member.id for pick in found} == {first.member.id}
    assert [pick.cached for pick in found] == [6000] * 3
    first.replica.send(10.0, 1000, 50.0, streamed=True)
    assert balancer.pick(candidates, asks(9), 50.0).member.id != first.member.id


def test_a_prompt_that_is_given_up_before_its_first_byte_is_not_believed_cached():
    candidates, balancer = served()
    gone = balancer.pick(candidates, asks(1), 0.0)
    balancer.release(gone, 0.1)
    assert gone.replica.prefixes.longest(MARKS) == 0


def test_single_questions_on_one_prefix_do_not_fill_the_working_set():
    candidates, balancer = served(slots=1)
    first = balancer.pick(candidates, asks(1), 0.0)
    balancer.first_token(first, 0.9)
    balancer.end(first, Usage(8200, 0, 10), 1.0)
    picks = [balancer.pick(candidates, asks(session), 1.0) for session in range(2, 40)]
    assert None not in picks  # 312,000 tokens of prompts, most of which are one prefix


def test_a_prefix_of_a_peer_is_found_where_the_peer_has_put_it():
    candidates, one, two = pair()
    exchange(one, two, 0.0)
    first = one.pick(candidates, asks(1), 0.0)
    two.merge_prefixes(one.export_prefixes())
    exchange(one, two, 0.05)
    assert one.export_prefixes() == []
    second = two.pick(candidates, asks(2), 20.0)
    assert (second.member.id, second.cached) == (first.member.id, 8000)


def test_a_tier_1_prefix_that_a_peer_has_computed_is_found_there():
    candidates, one, two = pair()
    exchange(one, two, 0.0)
    first = one.pick(candidates, Demand(1, 77, prompt=2100, tier1=2000), 0.0)
    two.merge_prefixes(one.export_prefixes())
    assert [id_ for id_, replica in two.replicas.items() if 77 in replica.prefixes] == [first.member.id]


def test_a_system_prompt_with_marks_is_cached_at_a_peer_s_replica_as_long_as_its_marks_are():
    candidates, one, two = pair(slots=1)
    exchange(one, two, 0.0)
    asked = [replace(asks(session), prefix=9, tier1=8000) for session in (1, 2)]
    first = one.pick(candidates, asked[0], 0.0)
    two.merge_prefixes(one.export_prefixes())
    one.first_token(first, 0.9)
    replica = two.replicas[first.member.id]
    replica.wrote(replica.costs.kv_tokens)
    one.end(first, Usage(8200, 0, 10), 9.0)
    exchange(one, two, 9.0)
    assert two.pick(candidates, asked[1], 9.1).cached == 0


def admitted(balancer):
    return {id_: replica.admitted for id_, replica in balancer.replicas.items()}


def test_a_session_that_a_peer_has_sent_takes_its_room_before_its_first_token():
    candidates, one, two = pair(slots=1)
    exchange(one, two, 0.0)
    gone, stays = one.pick(candidates, asks(1), 0.0), one.pick(candidates, asks(2, shares=0), 0.0)
    exchange(one, two, 0.05)
    assert admitted(two) == admitted(one) == {gone.member.id: 2 * 8350}
    one.first_token(stays, 0.1)
    one.release(gone, 0.1)
    exchange(one, two, 0.15)
    assert admitted(two) == admitted(one) == {gone.member.id: 8350}
    assert stays.replica.unplaced == 0


def test_what_sessions_share_is_not_their_own_at_a_router_that_heard_of_them_either():
    candidates, one, two = pair(slots=1)
    exchange(one, two, 0.0)
    for session in (1, 2):
        pick = one.pick(candidates, asks(session), 0.0)
        one.first_token(pick, 0.1)
        one.end(pick, Usage(8200, 8000, 10), 0.2)
    two.merge_prefixes(one.export_prefixes())
    exchange(one, two, 0.25)
    later = Demand(2, 2, prompt=8400, history=8210, turn=3, marks=asks(2).marks, lengths=asks(2).lengths)
    before = admitted(two)[pick.member.id]
    again = two.pick(candidates, later, 0.3)
    assert again.shared == 8000
    assert admitted(two)[pick.member.id] - before <= 8400 - 8000 + 150


def test_a_session_that_a_peer_tells_of_no_more_takes_no_room_for_ever():
    candidates, one, two = pair(slots=1)
    exchange(one, two, 0.0)
    pick = one.pick(candidates, asks(1), 0.0)
    exchange(one, two, 0.05)
    two.expire_loads(0.05 + REPORT_SECONDS)
    assert admitted(two) == {pick.member.id: 8350}
    two.expire_loads(0.1 + REPORT_SECONDS)
    assert admitted(two) == {pick.member.id: 0}


def test_a_peers_load_is_avoided_like_ones_own_until_it_is_gone():
    candidates, one, two = pair(slots=2)
    busy = one.pick(candidates, Demand(1, 11, prompt=50_000), 0.0).member
    exchange(one, two, 0.05)
    fresh = [two.pick(candidates, Demand(session, 12, prompt=4000), 0.1) for session in range(100, 103)]
    assert all(pick.member.id != busy.id for pick in fresh)
    for pick in fresh:
        two.release(pick, 0.1)
    two.drop_peer(1)
    assert {two.pick(candidates, Demand(session, 12, prompt=4000), 0.1).member.id for session in range(100, 120)} == {
        each.id for each in candidates.ready
    }


def test_an_older_turn_never_overrides_a_newer_one():
    candidates, one, two = pair()
    stale = one.pick(candidates, DEMAND, 0.0)
    one.first_token(stale, 0.0)
    late = one.export(0.0)
    one.end(stale, None, 0.1)
    newer = two.pick(candidates, NEXT, 1.0, (stale.member.id,))
    two.first_token(newer, 1.0)
    two.merge(1, *late, 1.1)
    assert two.locations.get_fresh(7, 1.1).member == newer.member.id


def test_peers_follow_a_session_whose_client_compacts_its_history():
    candidates, one, two = pair()
    exchange(one, two, 0.0)
    exchange(two, one, 0.0)
    long, short = following(7), following(7)
    long.turn = 50
    for router, demand, member in ((one, long, 0), (one, short, 1), (two, short, 2), (one, short, 1)):
        alone = candidates.only(candidates.ready[member])
        pick = router.pick(alone, demand, 1.0)
        router.first_token(pick, 1.1)
        router.end(pick, Usage(3400, 0, 10), 1.2)
        exchange(one, two, 1.3)
        exchange(two, one, 1.3)
        for each in (one, two):
            place = each.locations.get(7)
            assert (place.member, place.tokens) == (candidates.ready[member].id, 3410)


def test_the_number_of_a_turn_grows_to_what_a_datagram_holds_and_stays_there():
    candidates, one, two = pair()
    exchange(one, two, 0.0)
    demand = following(7)
    for turn, expected in ((LAST_TURN - 1, LAST_TURN - 1), (3, LAST_TURN), (5, LAST_TURN), (LAST_TURN, LAST_TURN)):
        demand.turn = turn
        pick = one.pick(candidates, demand, 1.0)
        one.first_token(pick, 1.0)
        exchange(one, two, 1.0)
        assert (two.locations.get(7).turn, two.locations.get(7).member) == (expected, pick.member.id)


def test_what_a_peer_says_of_replicas_that_are_not_known_is_passed_over():
    candidates, one, two = pair()
    one.pick(candidates, DEMAND, 0.0)
    two.install(build_index(table(group("b"))), 0.0)
    exchange(one, two, 0.1)
    assert len(two.locations) == 0


def test_what_a_peer_tells_of_replicas_that_are_not_in_the_table_is_nothing():
    _, balancer = served()
    placement, load = PlacementReport(7, 12345, 11, 3, 3000), LoadReport(12345, 2, 6000, 0.5, 0.1, 3000)
    balancer.merge(1, [placement], [load], 1.0)
    balancer.restore([placement], 1.0)
    assert len(balancer.locations) == 0
    assert not any(replica.peer_in_flight or replica.live for replica in balancer.replicas.values())


def test_a_router_that_starts_takes_over_the_records_of_a_peer():
    candidates, one, two = pair()
    for session in range(20):
        pick = one.pick(candidates, Demand(session, 11, prompt=3000, tier1=2000), 0.0)
        one.end(pick, Usage(3000, 2000, 150), 0.1)
    two.restore(list(one.snapshot()), 5.0)
    assert not any(replica.live for replica in two.replicas.values())
    for session in range(20):
        pick = two.pick(candidates, Demand(session, 11, prompt=3400, tier1=2000, history=3150, turn=3), 5.0)
        assert (pick.cached, pick.moved) == (3150, False)
        two.release(pick, 5.0)


def test_records_that_are_not_believed_any_more_are_not_told():
    candidates, balancer = served(slots=1)
    old = balancer.pick(candidates, DEMAND, 0.0)
    balancer.end(old, Usage(3000, 0, 10), 0.1)
    for session in range(100, 140):
        pick = balancer.pick(candidates, Demand(session, 12, prompt=3000), 10.0 * session)
        balancer.end(pick, Usage(3000, 0, 10), 10.0 * session + 1)
    told = [report.session for report in balancer.snapshot()]
    assert 7 not in told
    assert told[0] == 139


def test_load_is_told_while_there_is_some_and_that_there_is_none_in_several_ticks():
    candidates, balancer = served()
    for _ in range(REPEATS):
        balancer.export(0.0)
    assert balancer.export(0.1) == ([], [])
    pick = balancer.pick(candidates, DEMAND, 0.2)
    balancer.first_token(pick, 0.2)
    placements, loads = balancer.export(0.3)
    assert [(report.session, report.turn, report.tokens) for report in placements] == [(7, 1, 3000)]
    assert [load.in_flight for load in loads] == [1]
    balancer.end(pick, None, 0.4)
    for _ in range(REPEATS):
        assert [load.in_flight for load in balancer.export(0.5)[1]] == [0]
    assert balancer.export(0.6) == ([], [])


@pytest.mark.parametrize("lost", [1, REPEATS - 1, 1000])
@pytest.mark.parametrize("began", [False, True])
def test_a_load_whose_end_was_not_heard_of_is_no_load_for_ever(lost, began):
    candidates, one, two = pair()
    pick = one.pick(candidates, DEMAND, 0.0)
    if began:
        one.first_token(pick, 0.0)
    exchange(one, two, 0.0)
    replica = two.replicas[pick.member.id]
    one.release(pick, 0.0)
    for tick in range(1, 121):
        now = tick / 20
        told = one.export(now)
        if tick > lost:
            two.merge(1, *told, now)
        two.expire_loads(now)
        idle = tick > min(lost, REPORT_SECONDS * 20)
        assert (replica.load, replica.pending > 0) == ((0, False) if idle else (1, not began))


def test_a_load_that_is_told_in_each_tick_does_not_expire():
    candidates, one, two = pair()
    pick = one.pick(candidates, DEMAND, 0.0)
    for tick in range(300):
        exchange(one, two, tick / 20)
        two.expire_loads(tick / 20)
    assert two.replicas[pick.member.id].load == 1


def test_clients_that_hang_up_before_the_first_byte_leave_no_record():
    candidates, balancer = served()
    balancer.export(0.0)
    for session in range(100):
        for demand in (
            Demand(session, 11, prompt=3000, tier1=2000),
            Demand(session, 11, 3400, 2000, history=3150, turn=3),
        ):
            balancer.release(balancer.pick(candidates, demand, 0.0), 0.1)
    assert len(balancer.locations) == 0
    assert balancer.sessions.totals(0.1) == {}
    assert balancer.export(0.2)[0] == []


def test_a_session_counts_once_it_has_come_back_and_with_its_answer_when_that_is_known():
    candidates, balancer = served()
    balancer.end(balancer.pick(candidates, DEMAND, 0.0), Usage(3000, 0, 100), 1.0)
    assert balancer.sessions.totals(1.0) == {}
    pick = balancer.pick(candidates, NEXT, 2.0)
    assert balancer.sessions.totals(2.0) == {11: (1, 1400)}
    balancer.end(pick, Usage(3400, 3100, 200), 3.0)
    assert balancer.sessions.totals(3.0) == {11: (1, 1600)}


def test_a_session_that_another_router_serves_on_is_on_its_books():
    (candidates, one), (_, other) = served(), served()
    other.export(0.0)
    one.first_token(one.pick(candidates, NEXT, 0.0), 0.0)
    assert one.sessions.totals(0.0) == {11: (1, 1400)}
    other.first_token(other.pick(candidates, NEXT, 1.0), 1.0)
    placements, _ = other.export(1.0)
    one.merge(1, placements, [], 1.0)
    assert one.sessions.totals(1.0) == {}
    assert other.sessions.totals(1.0) == {11: (1, 1400)}


# --- Releases ---------------------------------------------------------------------------------------------------


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
    new_replica = balancer.replicas[new.ready[0].id]
    new_replica.live.enter(1000, 12, 0, 0.99 * ENGINE.kv_tokens, returned=True)
    assert balancer.preview(new, DEMAND, 0.0).member in old.ready
    assert balancer.pick(new, DEMAND, 0.0).member in old.ready
    for member in old.ready:
        balancer.replicas[member.id].live.enter(1000, 12, 0, 0.99 * ENGINE.kv_tokens, returned=True)
    assert balancer.pick(new, Demand(session=8, prefix=11, prompt=3000, tier1=2000), 0.0) is None


def test_a_canary_whose_replica_was_tried_goes_to_the_revision_that_serves():
    balancer, old, new = releasing()
    tried = [new.ready[0].id]
    for _ in old.ready:
        tried.append(balancer.pick(new, DEMAND, 0.0, tried).member.id)
    assert set(tried[1:]) == {member.id for member in old.ready}
    with pytest.raises(NoMemberLeftError):
        balancer.pick(new, DEMAND, 0.0, tried)


def test_a_client_that_hangs_up_before_the_first_byte_leaves_no_trace_in_the_working_set():
    candidates, balancer = served()
    for session in range(200):
        pick = balancer.pick(candidates, Demand(session, prefix=11, prompt=3000, tier1=2000), 0.0)
        balancer.release(pick, 0.0)
    assert [(len(each.live), each.live.tokens, each.live.returning) for each in balancer.replicas.values()] == [
        (0, 0.0, [0.0, 1.0])
    ] * 3


def test_who_was_served_stays_in_the_working_set_when_another_request_of_its_is_given_up():
    candidates, balancer = served()
    one, other = balancer.pick(candidates, DEMAND, 0.0), balancer.pick(candidates, DEMAND, 0.0)
    balancer.first_token(one, 0.1)
    balancer.release(other, 0.2)
    live = one.replica.live
    assert live.in_flight(DEMAND.session)
    balancer.end(one, None, 0.3)
    assert DEMAND.session in live


@pytest.mark.parametrize("told", [(2**64 - 1, 0), (0, 2**64 - 1), (2**64 - 1, 5, 2**63, 0)])
def test_absurd_numbers_of_a_peer_break_nothing_and_end_with_it(told):
    candidates, balancer = served()
    replica = next(iter(balancer.replicas.values()))
    before = replica.tokens_written
    for moment, written in enumerate(told):
        placement = PlacementReport(99, replica.key, 11, 65_535, 2**32 - 1)
        load = LoadReport(replica.key, 65_535, 2**32 - 1, 4294.9, 4294.9, written, 2**32 - 1)
        balancer.merge(1, [placement], [load], float(moment))
        assert 0 <= replica.tokens_written - before <= len(told) * replica.costs.kv_tokens
        assert replica.live.tokens <= replica.costs.kv_tokens
        assert replica.admitted <= 2 * replica.costs.kv_tokens
    balancer.drop_peer(1)
    assert (replica.pending, replica.peer_unplaced) == (0, 0)
    assert balancer.pick(candidates, DEMAND, 10.0) is not None
    placements, loads = balancer.export(11.0)
    assert encode(Datagram(DatagramKind.TICK, 1, 1, 0.0, placements, loads), b"k" * 32)


def hosted(*names, slots=2):
    """The index of groups whose slots are the same engines."""
    held = tuple(slot(index, address=f"10.0.0.{index}:8000", incarnation=f"c{index}") for index in range(slots))
    revisions = {name: revision(f"prompt of {name}", slots=held, engine=ENGINE, tokens=2000) for name in names}
    groups = (group(name, each, sharing=Sharing.DEDICATED) for name, each in revisions.items())
    return build_index(table(*groups))


def test_groups_on_one_engine_see_the_load_of_each_other_there():
    view, balancer = hosted("a", "b"), Balancer(Health())
    balancer.install(view, 0.0)
    mine, theirs = (view.names[name].revisions[0].candidates for name in "ab")
    first = balancer.pick(mine, DEMAND, 0.0)
    (same,) = (each for each in theirs.ready if each.slot == first.member.slot)
    assert balancer.replicas[same.id] is first.replica
    assert balancer.replicas[same.id].load == 1
    assert balancer.loads == {first.member.id: 1}
    assert (balancer.live(mine), balancer.live(theirs)) == (1, 0)
    balancer.end(first, Usage(3000, 2000, 150), 0.5)
    assert balancer.loads == {}


def test_a_group_that_comes_to_an_engine_takes_over_what_is_known_of_it():
    balancer = Balancer(Health())
    balancer.install(hosted("b"), 0.0)
    before = set(map(id, balancer.replicas.values()))
    balancer.install(hosted("a", "b"), 1.0)
    assert set(map(id, balancer.replicas.values())) == before
    assert len(balancer.replicas) == 4
    balancer.install(hosted("a"), 2.0)
    assert set(map(id, balancer.replicas.values())) == before


def test_peers_are_told_of_each_engine_once_and_of_sessions_by_the_group_that_has_them():
    view = hosted("a", "b")
    here, there = Balancer(Health()), Balancer(Health())
    for each in (here, there):
        each.install(view, 0.0)
        each.export(0.0)
    theirs = view.names["b"].revisions[0].candidates
    pick = here.pick(theirs, DEMAND, 0.0)
    here.first_token(pick, 0.1)
    placements, loads = here.export(0.2)
    assert len(loads) == len({load.member for load in loads}) == 2
    there.merge(1, placements, loads, 0.2)
    assert there.locations.get(DEMAND.session).member == pick.member.id
    assert there.replicas[pick.member.id].load == 1


def test_of_two_reports_of_one_turn_the_later_one_counts():
    candidates, one, _ = pair()
    first, second = (one.replicas[each.id] for each in candidates.ready[:2])
    one.merge(1, [PlacementReport(7, first.key, 11, 3, 3000)], [], 0.0)
    one.merge(2, [PlacementReport(7, second.key, 11, 3, 4000)], [], 0.1)
    place = one.locations.get(7)
    assert (place.member, place.turn, place.tokens) == (candidates.ready[1].id, 3, 4000)
    one.merge(2, [PlacementReport(7, first.key, 11, 2, 5000)], [], 0.2)
    assert one.locations.get(7).member == candidates.ready[1].id
