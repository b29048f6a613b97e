from dataclasses import replace

import pytest

from promptgroup_router.apis.usage import Usage
from promptgroup_router.peers.datagram import Datagram, DatagramKind, encode
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.gossip import LAST_TURN, REPEATS, REPORT_SECONDS, LoadReport, PlacementReport
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from support.placements import DEMAND, NEXT, asks, following, hosted, pair, served
from support.tables import group, table


def exchange(one, two, now):
    two.peers.merge(1, *one.peers.export(now), now)


def test_a_session_of_a_peer_is_found_where_the_peer_has_put_it():
    candidates, one, two = pair()
    first = one.pick(candidates, DEMAND, 0.0)
    exchange(one, two, 0.05)
    one.placed.first_token(first, 0.1)
    one.placed.end(first, Usage(3000, 2000, 150), 0.5)
    exchange(one, two, 0.55)
    second = two.pick(candidates, NEXT, 3.0)
    assert (second.member.id, second.cached, second.moved) == (first.member.id, 3150, False)


def test_a_session_of_a_peer_begins_with_its_prefix_once_however_many_turns_it_has():
    candidates, one, two = pair()
    own = two.pick(candidates, replace(DEMAND, session=8), 0.0)
    exchange(one, two, 0.0)
    for demand, now in ((DEMAND, 1.0), (NEXT, 3.0)):
        pick = one.pick(candidates, demand, now)
        one.placed.first_token(pick, now + 0.2)
        one.placed.end(pick, Usage(3000, 2000, 150), now + 0.5)
        exchange(one, two, now + 0.6)
    assert own.replica.costs.in_use.sessions[DEMAND.prefix] == 2


def test_a_prefix_of_a_peer_is_found_where_the_peer_has_put_it():
    candidates, one, two = pair()
    exchange(one, two, 0.0)
    first = one.pick(candidates, asks(1), 0.0)
    two.peers.merge_prefixes(one.peers.export_prefixes())
    exchange(one, two, 0.05)
    assert one.peers.export_prefixes() == []
    second = two.pick(candidates, asks(2), 20.0)
    assert (second.member.id, second.cached) == (first.member.id, 8000)


@pytest.mark.parametrize(("tokens", "calls"), [(30_000, 1), (3000, 0)])
def test_a_long_prefill_is_urgent_once_there_are_peers(tokens, calls):
    candidates, one, two = pair()
    urgent = []
    one.peers.on_urgent(lambda: urgent.append(tokens))
    one.pick(candidates, Demand(1, 77, prompt=30_000), 0.0)
    exchange(one, two, 0.05)
    assert urgent == []
    one.pick(candidates, Demand(2, 78, prompt=tokens), 0.1)
    assert len(urgent) == calls


def test_a_tier_1_prefix_that_a_peer_has_computed_is_found_there():
    candidates, one, two = pair()
    exchange(one, two, 0.0)
    first = one.pick(candidates, Demand(1, 77, prompt=2100, tier1=2000), 0.0)
    two.peers.merge_prefixes(one.peers.export_prefixes())
    assert [id_ for id_, replica in two.members.replicas.items() if 77 in replica.prefixes] == [first.member.id]


@pytest.mark.interpreted
def test_a_system_prompt_with_marks_is_cached_at_a_peer_s_replica_as_long_as_its_marks_are():
    candidates, one, two = pair(slots=1)
    exchange(one, two, 0.0)
    asked = [replace(asks(session), prefix=9, tier1=8000) for session in (1, 2)]
    first = one.pick(candidates, asked[0], 0.0)
    two.peers.merge_prefixes(one.peers.export_prefixes())
    one.placed.first_token(first, 0.9)
    replica = two.members.replicas[first.member.id]
    replica.wrote(replica.costs.kv_tokens)
    one.placed.end(first, Usage(8200, 0, 10), 9.0)
    exchange(one, two, 9.0)
    assert two.pick(candidates, asked[1], 9.1).cached == 0


def admitted(balancer):
    return {id_: replica.admitted for id_, replica in balancer.members.replicas.items()}


def test_a_session_that_a_peer_has_sent_takes_its_room_before_its_first_token():
    candidates, one, two = pair(slots=1)
    exchange(one, two, 0.0)
    gone, stays = one.pick(candidates, asks(1), 0.0), one.pick(candidates, asks(2, shares=0), 0.0)
    exchange(one, two, 0.05)
    assert admitted(two) == admitted(one) == {gone.member.id: 2 * 8350}
    one.placed.first_token(stays, 0.1)
    one.placed.release(gone, 0.1)
    exchange(one, two, 0.15)
    assert admitted(two) == admitted(one) == {gone.member.id: 8350}
    assert stays.replica.unplaced == 0


def test_what_sessions_share_is_not_their_own_at_a_router_that_heard_of_them_either():
    candidates, one, two = pair(slots=1)
    exchange(one, two, 0.0)
    for session in (1, 2):
        pick = one.pick(candidates, asks(session), 0.0)
        one.placed.first_token(pick, 0.1)
        one.placed.end(pick, Usage(8200, 8000, 10), 0.2)
    two.peers.merge_prefixes(one.peers.export_prefixes())
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
    two.peers.expire_loads(0.05 + REPORT_SECONDS)
    assert admitted(two) == {pick.member.id: 8350}
    two.peers.expire_loads(0.1 + REPORT_SECONDS)
    assert admitted(two) == {pick.member.id: 0}


def test_a_peers_load_is_avoided_like_ones_own_until_it_is_gone():
    candidates, one, two = pair(slots=2)
    busy = one.pick(candidates, Demand(1, 11, prompt=50_000), 0.0).member
    exchange(one, two, 0.05)
    fresh = [two.pick(candidates, Demand(session, 12, prompt=4000), 0.1) for session in range(100, 103)]
    assert all(pick.member.id != busy.id for pick in fresh)
    for pick in fresh:
        two.placed.release(pick, 0.1)
    two.peers.drop_peer(1)
    assert {two.pick(candidates, Demand(session, 12, prompt=4000), 0.1).member.id for session in range(100, 120)} == {
        each.id for each in candidates.ready
    }


def test_an_older_turn_never_overrides_a_newer_one():
    candidates, one, two = pair()
    stale = one.pick(candidates, DEMAND, 0.0)
    one.placed.first_token(stale, 0.0)
    late = one.peers.export(0.0)
    one.placed.end(stale, None, 0.1)
    newer = two.pick(candidates, NEXT, 1.0, (stale.member.id,))
    two.placed.first_token(newer, 1.0)
    two.peers.merge(1, *late, 1.1)
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
        router.placed.first_token(pick, 1.1)
        router.placed.end(pick, Usage(3400, 0, 10), 1.2)
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
        one.placed.first_token(pick, 1.0)
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
    balancer.peers.merge(1, [placement], [load], 1.0)
    balancer.peers.restore([placement], 1.0)
    assert len(balancer.locations) == 0
    assert not any(replica.peer_in_flight or replica.live for replica in balancer.members.replicas.values())


def test_a_router_that_starts_takes_over_the_records_of_a_peer():
    candidates, one, two = pair()
    for session in range(20):
        pick = one.pick(candidates, Demand(session, 11, prompt=3000, tier1=2000), 0.0)
        one.placed.end(pick, Usage(3000, 2000, 150), 0.1)
    two.peers.restore(list(one.peers.snapshot()), 5.0)
    assert not any(replica.live for replica in two.members.replicas.values())
    for session in range(20):
        pick = two.pick(candidates, Demand(session, 11, prompt=3400, tier1=2000, history=3150, turn=3), 5.0)
        assert (pick.cached, pick.moved) == (3150, False)
        two.placed.release(pick, 5.0)


def test_records_that_are_not_believed_any_more_are_not_told():
    candidates, balancer = served(slots=1)
    old = balancer.pick(candidates, DEMAND, 0.0)
    balancer.placed.end(old, Usage(3000, 0, 10), 0.1)
    for session in range(100, 140):
        pick = balancer.pick(candidates, Demand(session, 12, prompt=3000), 10.0 * session)
        balancer.placed.end(pick, Usage(3000, 0, 10), 10.0 * session + 1)
    told = [report.session for report in balancer.peers.snapshot()]
    assert 7 not in told
    assert told[0] == 139


def test_load_is_told_while_there_is_some_and_that_there_is_none_in_several_ticks():
    candidates, balancer = served()
    for _ in range(REPEATS):
        balancer.peers.export(0.0)
    assert balancer.peers.export(0.1) == ([], [])
    pick = balancer.pick(candidates, DEMAND, 0.2)
    balancer.placed.first_token(pick, 0.2)
    placements, loads = balancer.peers.export(0.3)
    assert [(report.session, report.turn, report.tokens) for report in placements] == [(7, 1, 3000)]
    assert [load.in_flight for load in loads] == [1]
    balancer.placed.end(pick, None, 0.4)
    for _ in range(REPEATS):
        assert [load.in_flight for load in balancer.peers.export(0.5)[1]] == [0]
    assert balancer.peers.export(0.6) == ([], [])


@pytest.mark.parametrize("lost", [1, REPEATS - 1, 1000])
@pytest.mark.parametrize("began", [False, True])
def test_a_load_whose_end_was_not_heard_of_is_no_load_for_ever(lost, began):
    candidates, one, two = pair()
    pick = one.pick(candidates, DEMAND, 0.0)
    if began:
        one.placed.first_token(pick, 0.0)
    exchange(one, two, 0.0)
    replica = two.members.replicas[pick.member.id]
    one.placed.release(pick, 0.0)
    for tick in range(1, 121):
        now = tick / 20
        told = one.peers.export(now)
        if tick > lost:
            two.peers.merge(1, *told, now)
        two.peers.expire_loads(now)
        idle = tick > min(lost, REPORT_SECONDS * 20)
        assert (replica.load, replica.pending > 0) == ((0, False) if idle else (1, not began))


def test_a_load_that_is_told_in_each_tick_does_not_expire():
    candidates, one, two = pair()
    pick = one.pick(candidates, DEMAND, 0.0)
    for tick in range(300):
        exchange(one, two, tick / 20)
        two.peers.expire_loads(tick / 20)
    assert two.members.replicas[pick.member.id].load == 1


def test_a_session_that_another_router_serves_on_is_on_its_books():
    (candidates, one), (_, other) = served(), served()
    other.peers.export(0.0)
    one.placed.first_token(one.pick(candidates, NEXT, 0.0), 0.0)
    assert one.sessions.totals(0.0) == {11: (1, 1400)}
    other.placed.first_token(other.pick(candidates, NEXT, 1.0), 1.0)
    placements, _ = other.peers.export(1.0)
    one.peers.merge(1, placements, [], 1.0)
    assert one.sessions.totals(1.0) == {}
    assert other.sessions.totals(1.0) == {11: (1, 1400)}


@pytest.mark.parametrize("told", [(2**64 - 1, 0), (0, 2**64 - 1), (2**64 - 1, 5, 2**63, 0)])
def test_absurd_numbers_of_a_peer_break_nothing_and_end_with_it(told):
    candidates, balancer = served()
    replica = next(iter(balancer.members.replicas.values()))
    before = replica.tokens_written
    for moment, written in enumerate(told):
        placement = PlacementReport(99, replica.key, 11, 65_535, 2**32 - 1)
        load = LoadReport(replica.key, 65_535, 2**32 - 1, 4294.9, 4294.9, written, 2**32 - 1)
        balancer.peers.merge(1, [placement], [load], float(moment))
        assert 0 <= replica.tokens_written - before <= len(told) * replica.costs.kv_tokens
        assert replica.live.tokens <= replica.costs.kv_tokens
        assert replica.admitted <= 2 * replica.costs.kv_tokens
    balancer.peers.drop_peer(1)
    assert (replica.pending, replica.peer_unplaced) == (0, 0)
    assert balancer.pick(candidates, DEMAND, 10.0) is not None
    placements, loads = balancer.peers.export(11.0)
    assert encode(Datagram(DatagramKind.TICK, 1, 1, 0.0, placements, loads), b"k" * 32)


def test_peers_are_told_of_each_engine_once_and_of_sessions_by_the_group_that_has_them():
    view = hosted("a", "b")
    here, there = Balancer(Health()), Balancer(Health())
    for each in (here, there):
        each.install(view, 0.0)
        each.peers.export(0.0)
    theirs = view.names["b"].revisions[0].candidates
    pick = here.pick(theirs, DEMAND, 0.0)
    here.placed.first_token(pick, 0.1)
    placements, loads = here.peers.export(0.2)
    assert len(loads) == len({load.member for load in loads}) == 2
    there.peers.merge(1, placements, loads, 0.2)
    assert there.locations.get(DEMAND.session).member == pick.member.id
    assert there.members.replicas[pick.member.id].load == 1


def test_of_two_reports_of_one_turn_the_later_one_counts():
    candidates, one, _ = pair()
    first, second = (one.members.replicas[each.id] for each in candidates.ready[:2])
    one.peers.merge(1, [PlacementReport(7, first.key, 11, 3, 3000)], [], 0.0)
    one.peers.merge(2, [PlacementReport(7, second.key, 11, 3, 4000)], [], 0.1)
    place = one.locations.get(7)
    assert (place.member, place.turn, place.tokens) == (candidates.ready[1].id, 3, 4000)
    one.peers.merge(2, [PlacementReport(7, first.key, 11, 2, 5000)], [], 0.2)
    assert one.locations.get(7).member == candidates.ready[1].id
