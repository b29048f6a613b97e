import json
import time

import pytest

from promptgroup_router.apis.usage import Usage
from promptgroup_router.base import build
from promptgroup_router.base.errors import Failure
from promptgroup_router.decision.actions import Action, Send
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.decision.exchange import Exchange
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import ERRORS_IN_A_ROW, FIRST_BACKOFF, LAST_BACKOFF
from promptgroup_router.policy.retry_budget import LEAST
from promptgroup_router.routing.state import RouterState
from support.exchanges import Case
from support.tables import group, revision, slot, table
from support.wire import chat


def test_an_answer_is_passed_on_and_the_load_released():
    case = Case(slots=3)
    case.play("""
        begin          -> send home
        answered 200   -> relay
        relaying
    """)
    assert sum(case.state.balancer.placed.loads.values()) == 1
    case.play("ended")
    assert case.state.balancer.placed.loads == {}
    assert case.ejected() == []


@pytest.mark.parametrize(("status", "placed"), [(200, True), (400, False), (500, False)])
def test_of_an_answer_that_is_an_error_nothing_is_learned(status, placed):
    case = Case(slots=1)
    balancer = case.state.balancer
    case.play("begin -> send 0")
    written = balancer.members.replicas[case.exchange.attempts.member.id].written
    case.exchange.relaying(101.0, status)
    case.exchange.ended(102.0, Usage(1000, 0, 10))
    assert (balancer.locations.get(7) is not None) is placed
    assert (balancer.members.replicas[case.exchange.attempts.member.id].written > written) is placed
    assert balancer.placed.loads == {}


@pytest.mark.parametrize(
    ("failure", "again"), [("REFUSED", "next"), ("CONNECT_TIMEOUT", "next"), ("RESET", "next fresh")]
)
def test_a_slot_that_cannot_be_reached_is_ejected_and_the_next_is_tried(failure, again):
    case = Case(slots=3)
    case.play(f"""
        begin             -> send home
        failed {failure}  -> send {again}
        answered 200      -> relay
        relaying
        ended
    """)
    assert case.ejected() == [case.order[0]]
    assert case.state.balancer.placed.loads == {}
    assert case.state.metrics.ejections.values[()] == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_engine_that_says_unavailable_is_ejected_and_the_next_is_tried(status):
    case = Case(slots=2)
    case.play(f"""
        begin              -> send home
        answered {status}  -> send next
        answered 200       -> relay
    """)
    assert case.ejected() == case.order[:1]
    assert case.state.balancer.placed.loads == {case.candidates.id + f"/{case.order[1]}": 1}
    assert case.state.metrics.ejections.values[()] == 1


def test_an_engine_is_left_alone_for_as_long_as_it_asks_within_bounds():
    for asked, left_alone in ((0.0, FIRST_BACKOFF), (7.0, 7.0), (1e6, LAST_BACKOFF)):
        case = Case(slots=2)
        case.play("begin -> send home")
        assert isinstance(case.exchange.answered(503, 100.0, asked), Send)
        assert case.ejected(100.0 + left_alone - 0.1) == case.order[:1]
        assert case.ejected(100.0 + left_alone) == []


def test_when_all_say_unavailable_the_last_answer_is_passed_on_and_clears_nothing():
    case = Case(slots=2)
    case.play("""
        begin         -> send home
        answered 503  -> send next
        answered 503  -> relay
    """)
    case.exchange.relaying(100.0, 503)
    assert sorted(case.ejected()) == [0, 1]


def test_a_replica_that_errs_again_and_again_is_ejected_and_one_answer_clears_it():
    case = Case(slots=1)
    member = case.candidates.ready[0]

    def answers(status):
        exchange = Exchange(case.state, case.candidates, Demand(7, 7), 160.0)
        exchange.begin(100.0)
        assert exchange.answered(status, 100.0) is Action.RELAY
        exchange.relaying(100.0, status)
        exchange.ended(100.0)

    for status in (*[500] * (ERRORS_IN_A_ROW - 1), 200, *[500] * (ERRORS_IN_A_ROW - 1)):
        answers(status)
    assert case.ejected() == []
    answers(500)
    assert case.ejected() == [member.slot]
    assert case.state.metrics.ejections.values[()] == 1


@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_other_statuses_are_answers(status):
    Case(slots=2).play(f"""
        begin              -> send home
        answered {status}  -> relay
    """)


def test_an_engine_that_dies_between_head_and_first_byte_is_tried_elsewhere():
    case = Case(slots=2)
    case.play("""
        begin         -> send home
        answered 200  -> relay
        failed RESET  -> send next fresh
        answered 200  -> relay
    """)
    assert case.ejected() == [case.order[0]]


def test_after_the_first_byte_nothing_is_tried_again():
    case = Case(slots=3)
    case.play("""
        begin         -> send home
        answered 200  -> relay
        relaying
        failed RESET  -> cut
    """)
    assert case.state.balancer.placed.loads == {}
    assert case.state.metrics.retries.values == {}


def test_a_malformed_answer_is_tried_elsewhere_without_ejecting():
    case = Case(slots=2)
    case.play("""
        begin             -> send home
        failed MALFORMED  -> send next
        failed MALFORMED  -> refuse 502 no_answer
    """)
    assert case.ejected() == []


def test_nothing_is_tried_after_the_deadline():
    case = Case(slots=3, deadline=160.0)
    case.play("""
        begin           -> send home
        wait 61
        failed REFUSED  -> refuse 502 no_answer
    """)
    late = Case(slots=3, deadline=160.0)
    late.play("""
        begin         -> send home
        wait 61
        answered 503  -> relay
    """)


def test_the_deadline_before_and_after_the_first_byte():
    case = Case(slots=3)
    case.play("""
        begin    -> send home
        wait 60
        expired  -> refuse 504 timeout
    """)
    assert case.ejected(160.5) == [case.order[0]]
    Case(slots=3).play("""
        begin         -> send home
        answered 200  -> relay
        relaying
        wait 60
        expired       -> cut
    """)


def test_a_pool_without_replicas():
    Case(slots=0).play("begin -> refuse 503 no_replica")


def test_an_answer_clears_what_is_held_against_a_slot():
    case = Case(slots=1)
    member = case.candidates.ready[0]
    case.state.health.failed(member.id, "a", 0.0)
    case.play("""
        begin         -> send home
        answered 200  -> relay
        relaying
    """)
    assert case.state.health.no_failures()


def test_an_engine_that_never_begins_is_late_and_the_next_is_tried():
    case = Case(slots=3)
    case.play("begin -> send home")
    assert case.exchange.late(29.9, 100.0) is None
    assert case.exchange.late(30.0, 100.0) is Failure.NO_TOKEN
    case.play("""
        failed NO_TOKEN -> send next fresh
        wait 30
        failed NO_TOKEN -> refuse 504 timeout
    """)
    assert set(case.ejected()) == set(case.order[:2])
    assert case.state.retry_budget.trying == 0


def test_a_whole_answer_is_late_only_where_the_slot_is_ejected():
    case = Case(slots=3, streamed=False)
    case.play("begin -> send home")
    assert case.exchange.late(500.0, 100.0) is None
    member = case.exchange.attempts.member
    case.state.health.failed(member.id, member.incarnation, 100.0)
    assert case.exchange.late(30.0, 100.0) is Failure.NO_TOKEN


def test_a_stream_that_stalls_is_cut_and_its_slot_ejected():
    case = Case(slots=3)
    case.play("""
        begin         -> send home
        answered 200  -> relay
        relaying
    """)
    assert case.exchange.late(9.9, 100.0) is None
    assert case.exchange.late(10.0, 100.0) is Failure.STALLED
    case.play("failed STALLED -> cut")
    assert case.ejected() == case.order[:1]


def test_the_deadline_of_a_request_that_waits_to_be_tried_again_is_nobodys_failure():
    case = Case(slots=3)
    for _ in range(LEAST):
        case.state.retry_budget.take(case.candidates.id, 0)
    case.play("""
        begin           -> send home
        failed REFUSED  -> wait
    """)
    case.state.health.succeeded(case.exchange.attempts.member.id)
    case.play("expired -> refuse 503 overloaded")
    assert case.ejected() == []


def routed_among(slots: int) -> RouterState:
    state = router_state()
    found = tuple(slot(number, address=f"10.{number // 250}.{number % 250}.1:8000") for number in range(slots))
    state.install(table(group("support", revision(slots=found))), "file", 0.0)
    return state


def serve(state: RouterState, body: bytes, now: float) -> None:
    found = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=now)
    exchange = Exchange(state, found.candidates, found.demand, now + 60)
    exchange.begin(now)
    exchange.answered(200, now)
    exchange.relaying(now, 200)
    exchange.ended(now, None)


@pytest.mark.heavy
def test_a_thousand_slots_cost_a_session_hardly_more_than_four():
    """Beside the first turn of a session, only one whose replica has work to do weighs others; here none has."""
    bodies = [json.dumps(chat(f"Session {number}: " + "word " * 1600)).encode() for number in range(100)]
    first, next_turn = dict.fromkeys((4, 1000), float("inf")), dict.fromkeys((4, 1000), float("inf"))
    for _ in range(4):
        for slots in first:
            state, now = routed_among(slots), 0.0
            for least in (first, next_turn, next_turn):
                began = time.thread_time()
                for body in bodies:
                    now += 5.0
                    serve(state, body, now)
                least[slots] = min(least[slots], time.thread_time() - began)
    assert next_turn[1000] < 2 * next_turn[4]
    # the hashes of a thousand slots cost the same where all else is compiled, and so a larger share
    assert first[1000] < (16 if build.compiled() else 6) * first[4]


def test_nothing_is_recorded_of_a_request_whose_engine_chooses_the_rank():
    state = router_state()
    state.install(table(group("a", revision(slots=(slot(0, ranks=2),)))), "file", 0.0)
    candidates = state.index.names["a"].revisions[0].candidates
    for unranked, recorded in ((True, False), (False, True)):
        exchange = Exchange(state, candidates, Demand(7, 7, 1000, unranked=unranked), 160.0)
        exchange.begin(100.0)
        assert sum(state.balancer.placed.loads.values()) == 1
        exchange.relaying(101.0)
        exchange.ended(102.0, Usage(1000, 0, 10))
        assert (state.balancer.locations.get(7) is not None) is recorded
        assert state.balancer.placed.loads == {}
