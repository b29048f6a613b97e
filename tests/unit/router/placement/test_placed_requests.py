import pytest

from promptgroup_contract.table import Engine
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from support.placements import DEMAND, MARKS, NEXT, asks, following, opening, served, view_with
from support.tables import group, revision, table


def pooled(slots=3):
    """A balancer of engines that share a tier."""
    engine = Engine("one", kv_tokens=100_000, prefill_rate=10_000, copy_rate=100_000)
    view = build_index(table(group("a", revision(slots=slots, engine=engine, tokens=2000))))
    balancer = Balancer(Health())
    balancer.install(view, 0.0)
    return view.names["a"].revisions[0].candidates, balancer


def first_turn(candidates, balancer):
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.placed.first_token(first, 0.4)
    balancer.placed.end(first, Usage(3000, 2000, 150), 0.5)
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
        balancer.placed.end(first, Usage(3000, 2000, 150), 10.0 * session + 1)
        moved = balancer.pick(candidates, following(session), 10.0 * session + 2, (first.member.id,))
        copied, rate = moved.copied, moved.replica.costs.rate
        balancer.placed.first_token(moved, 10.0 * session + 3)
        balancer.placed.end(moved, Usage(3400, 2000, 10), 10.0 * session + 4)
        assert not copied or moved.replica.costs.rate == rate
    assert copied == 0


def test_a_request_is_counted_from_the_pick_to_its_end_once():
    candidates, balancer = served()
    pick = balancer.pick(candidates, DEMAND, 0.0)
    assert balancer.placed.loads == {pick.member.id: 1}
    before = pick.replica.tokens_written
    balancer.placed.first_token(pick, 0.1)
    balancer.placed.end(pick, Usage(3000, 2000, 100), 0.5)
    balancer.placed.end(pick, Usage(3000, 2000, 100), 0.6)
    balancer.placed.release(pick, 0.7)
    assert balancer.placed.loads == {}
    assert pick.replica.tokens_written - before == 1100


def test_an_answer_that_is_complete_shows_that_an_engine_is_not_stuck_and_a_client_that_went_away_does_not():
    candidates, balancer = served(slots=1)
    answered, cancelled, waiting = (
        balancer.pick(candidates, Demand(session, 11, 3000, tier1=2000), 0.0) for session in range(3)
    )
    replica = waiting.replica
    replica.costs.observe_delay(0.0, 1.0)
    assert replica.late(60.0) == pytest.approx(60.0 - replica.answers[0].due)
    balancer.placed.end(answered, Usage(3000, 2000, 150), 50.0)
    assert replica.late(60.0) == pytest.approx(10.0)
    balancer.placed.release(cancelled, 59.0)
    assert replica.late(60.0) == pytest.approx(10.0)


def test_a_session_comes_back_to_where_its_history_is_and_says_what_should_be_cached():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    assert not first.moved
    balancer.placed.first_token(first, 0.1)
    balancer.placed.end(first, Usage(3000, 2000, 150), 0.5)
    second = balancer.pick(candidates, NEXT, 5.0)
    assert (second.member, second.moved, second.cached) == (first.member, False, 3150)


def test_only_the_first_request_of_a_session_says_that_sessions_begin_with_its_prefix():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    sessions = first.replica.costs.in_use.sessions
    assert sessions[DEMAND.prefix] == 1
    balancer.placed.first_token(first, 0.1)
    balancer.placed.end(first, None, 0.5)
    balancer.pick(candidates, NEXT, 5.0)
    assert sessions[DEMAND.prefix] == 1


def test_without_usage_the_prediction_stands():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.placed.end(first, None, 0.5)
    assert balancer.pick(candidates, NEXT, 5.0).cached == 3000


def test_a_session_that_is_moved_says_so_and_is_found_again_where_it_was():
    candidates, balancer = served()
    first = balancer.pick(candidates, DEMAND, 0.0)
    balancer.placed.end(first, Usage(3000, 2000, 150), 0.1)
    moved = balancer.pick(candidates, NEXT, 1.0, (first.member.id,))
    assert moved.moved
    balancer.placed.release(moved, 1.0)
    assert balancer.pick(candidates, NEXT, 1.1, (moved.member.id,)).cached == 3150


@pytest.mark.parametrize("known", [True, False])
def test_a_request_that_ends_on_a_process_which_was_replaced_says_nothing_of_the_new_one(known):
    candidates, balancer = served(slots=1)
    if known:
        balancer.placed.end(balancer.pick(candidates, DEMAND, 0.0), Usage(3000, 0, 150), 0.5)
    pick = balancer.pick(candidates, NEXT, 1.0)
    balancer.peers.export(1.0)
    balancer.install(view_with(1, incarnations={0: "b"}), 2.0)
    balancer.placed.first_token(pick, 3.0)
    balancer.placed.end(pick, Usage(90_000, 0, 10), 4.0)
    assert list(balancer.peers.snapshot()) == balancer.peers.export(5.0)[0] == []


def test_a_request_of_a_replica_that_is_gone_ends_without_harm():
    candidates, balancer = served()
    pick = balancer.pick(candidates, DEMAND, 0.0)
    balancer.install(build_index(table(group("b"))), 1.0)
    balancer.placed.first_token(pick, 1.1)
    balancer.placed.end(pick, Usage(3000, 0, 10), 1.2)
    assert balancer.placed.loads == {}


def test_isolated_streams_correct_the_rate_and_crowded_ones_do_not():
    candidates, balancer = served(slots=1)
    costs = balancer.members.replicas[candidates.ready[0].id].costs
    before = costs.rate
    picks = [balancer.pick(candidates, DEMAND, 0.0) for _ in range(2)]
    for pick in picks:
        balancer.placed.first_token(pick, 5.0)
        balancer.placed.end(pick, Usage(3000, 0, 10), 6.0)
    assert costs.rate == before
    alone = balancer.pick(candidates, DEMAND, 10.0)
    balancer.placed.first_token(alone, 15.0)
    balancer.placed.end(alone, Usage(3000, 0, 10), 16.0)
    assert costs.rate < before
    slower = costs.rate
    whole = balancer.pick(candidates, Demand(8, 11, prompt=3000, streamed=False), 20.0)
    balancer.placed.first_token(whole, 30.0)
    balancer.placed.end(whole, Usage(3000, 0, 10), 30.0)
    assert costs.rate == slower


def test_a_prompt_that_is_given_up_before_its_first_byte_is_not_believed_cached():
    candidates, balancer = served()
    gone = balancer.pick(candidates, asks(1), 0.0)
    balancer.placed.release(gone, 0.1)
    assert gone.replica.prefixes.longest(MARKS) == 0


def test_single_questions_on_one_prefix_do_not_fill_the_working_set():
    candidates, balancer = served(slots=1)
    first = balancer.pick(candidates, asks(1), 0.0)
    balancer.placed.first_token(first, 0.9)
    balancer.placed.end(first, Usage(8200, 0, 10), 1.0)
    picks = [balancer.pick(candidates, asks(session), 1.0) for session in range(2, 40)]
    assert None not in picks  # 312,000 tokens of prompts, most of which are one prefix


def test_clients_that_hang_up_before_the_first_byte_leave_no_record():
    candidates, balancer = served()
    balancer.peers.export(0.0)
    for session in range(100):
        for demand in (
            Demand(session, 11, prompt=3000, tier1=2000),
            Demand(session, 11, 3400, 2000, history=3150, turn=3),
        ):
            balancer.placed.release(balancer.pick(candidates, demand, 0.0), 0.1)
    assert len(balancer.locations) == 0
    assert balancer.sessions.totals(0.1) == {}
    assert balancer.peers.export(0.2)[0] == []


def test_a_session_counts_once_it_has_come_back_and_with_its_answer_when_that_is_known():
    candidates, balancer = served()
    balancer.placed.end(balancer.pick(candidates, DEMAND, 0.0), Usage(3000, 0, 100), 1.0)
    assert balancer.sessions.totals(1.0) == {}
    pick = balancer.pick(candidates, NEXT, 2.0)
    assert balancer.sessions.totals(2.0) == {11: (1, 1400)}
    balancer.placed.end(pick, Usage(3400, 3100, 200), 3.0)
    assert balancer.sessions.totals(3.0) == {11: (1, 1600)}


def test_a_client_that_hangs_up_before_the_first_byte_leaves_no_trace_in_the_working_set():
    candidates, balancer = served()
    for session in range(200):
        pick = balancer.pick(candidates, Demand(session, prefix=11, prompt=3000, tier1=2000), 0.0)
        balancer.placed.release(pick, 0.0)
    assert [(len(each.live), each.live.tokens, each.live.returning) for each in balancer.members.replicas.values()] == [
        (0, 0.0, [0.0, 1.0])
    ] * 3


def test_who_was_served_stays_in_the_working_set_when_another_request_of_its_is_given_up():
    candidates, balancer = served()
    one, other = balancer.pick(candidates, DEMAND, 0.0), balancer.pick(candidates, DEMAND, 0.0)
    balancer.placed.first_token(one, 0.1)
    balancer.placed.release(other, 0.2)
    live = one.replica.live
    assert live.in_flight(DEMAND.session)
    balancer.placed.end(one, None, 0.3)
    assert DEMAND.session in live
