import json
import time

import pytest

from promptgroup_contract.table import Policy, Slot, SlotState, TimeLimits
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base import build
from promptgroup_router.base.errors import Failure
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.decision.exchange import MAX_SLOTS, Action, Exchange, Send
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import ERRORS_IN_A_ROW, FIRST_BACKOFF, LAST_BACKOFF
from promptgroup_router.policy.retry_budget import LEAST
from promptgroup_router.routing.state import RouterState
from support.script import play
from support.tables import group, revision, slot, table
from support.wire import chat


class Case:
    """A request over some slots, whose order is known."""

    def __init__(self, slots: int, deadline: float = 160.0, *, streamed: bool = True) -> None:
        self.state = router_state()
        limits = TimeLimits(first_token=30, idle=10)
        self.state.install(table(group("a", revision(slots=slots), time_limits=limits)), "file", 0.0)
        self.candidates = self.state.index.names["a"].revisions[0].candidates
        self.exchange = Exchange(self.state, self.candidates, Demand(7, 7, streamed=streamed), deadline)
        self.order = [member.slot for member in self.candidates.order(7)]

    def play(self, script: str) -> None:
        """`home`, `next` and `third` stand for the session's choices."""
        for word, place in zip(("home", "next", "third", "fourth"), self.order, strict=False):
            script = script.replace(word, str(place))
        play(self.exchange, script)

    def ejected(self, now: float = 100.0) -> list[int]:
        return [each.slot for each in self.candidates.ready if not self.state.health.available(each.id, "a", now)]


def test_an_answer_is_passed_on_and_the_load_released():
    case = Case(slots=3)
    case.play("""
        begin          -> send home
        answered 200   -> relay
        relaying
    """)
    assert sum(case.state.balancer.loads.values()) == 1
    case.play("ended")
    assert case.state.balancer.loads == {}
    assert case.ejected() == []


@pytest.mark.parametrize(("status", "placed"), [(200, True), (400, False), (500, False)])
def test_of_an_answer_that_is_an_error_nothing_is_learned(status, placed):
    case = Case(slots=1)
    balancer = case.state.balancer
    case.play("begin -> send 0")
    written = balancer.replicas[case.exchange.member.id].written
    case.exchange.relaying(101.0, status)
    case.exchange.ended(102.0, Usage(1000, 0, 10))
    assert (balancer.locations.get(7) is not None) is placed
    assert (balancer.replicas[case.exchange.member.id].written > written) is placed
    assert balancer.loads == {}


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
    assert case.state.balancer.loads == {}
    assert case.state.metrics.ejections.values[()] == 1


class Changing:
    """A request over three slots, of which the tables to come say other things."""

    def __init__(self, policy: Policy = Policy.EXPECTED_TTFT) -> None:
        self.state, self.policy = router_state(), policy
        self.install(slot(0), slot(1), slot(2))
        entry = self.state.index.names["a"].revisions[0]
        demands = [Demand(session * 7919, entry.prefix) for session in range(9)]
        self.requests = [Exchange(self.state, entry.candidates, demand, 160.0) for demand in demands]

    def install(self, *slots: Slot) -> None:
        self.state.install(table(group("a", revision(slots=slots), policy=self.policy)), "file", 0.0)


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("left", range(3))
def test_a_request_that_waited_while_slots_left_goes_to_the_one_that_remains(policy, left):
    case = Changing(policy)
    case.install(*(slot(each, SlotState.READY if each == left else SlotState.ABSENT) for each in range(3)))
    assert {request.begin(1.0).member.slot for request in case.requests} == {left}


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("gone", range(3))
def test_a_request_whose_engine_dies_after_another_slot_has_left_is_tried_on_those_that_remain(policy, gone):
    case = Changing(policy)
    served = {number: request.begin(1.0).member.slot for number, request in enumerate(case.requests)}
    case.install(*(slot(each, SlotState.ABSENT if each == gone else SlotState.READY) for each in range(3)))
    for number, before in served.items():
        action = case.requests[number].failed(Failure.RESET, 2.0)
        assert isinstance(action, Send)
        assert action.member.slot in {0, 1, 2} - {gone, before}


def test_a_slot_that_was_away_for_a_moment_is_reached_at_its_new_address():
    case = Changing()
    request = case.requests[0]
    case.install(*(slot(each, SlotState.ABSENT) for each in range(3)))
    assert request.begin(1.0).error.code == "no_replica"
    case.install(slot(0, address="10.9.9.9:8000", incarnation="b"))
    assert request.begin(2.0).member.address == "10.9.9.9:8000"


def test_a_fallback_that_has_left_the_table_has_no_load_to_count():
    case = Changing()
    request = case.requests[0]
    request.begin(1.0)
    (other, *_) = request.fallbacks(2, 1.0)
    case.install(*(slot(each, SlotState.ABSENT if each == other.slot else SlotState.READY) for each in range(3)))
    request.served_by(other.address, [other], 2.0)
    request.relaying(2.0)
    request.ended(3.0)
    assert case.state.balancer.loads == {}


def test_a_fault_of_a_policy_is_not_taken_for_a_lack_of_replicas():
    case = Changing()
    case.state.balancer.replicas.clear()
    with pytest.raises(KeyError):
        case.requests[0].begin(1.0)


@pytest.mark.parametrize("had", ["answered 503", "failed MALFORMED"])
def test_three_engines_get_a_request_and_no_more(had):
    end = "relay" if "503" in had else "refuse 502 no_answer"
    case = Case(slots=5)
    case.play(f"""
        begin           -> send home
        {had}           -> send next
        {had}           -> send third
        {had}           -> {end}
    """)


@pytest.mark.parametrize("dead", ["REFUSED", "CONNECT_TIMEOUT", "UNTRUSTED", "NO_CREDENTIAL"])
def test_a_request_that_no_engine_got_is_tried_on_all_slots_that_may_answer(dead):
    case = Case(slots=4)
    case.play(f"""
        begin           -> send home
        failed {dead}  -> send next
        failed {dead}  -> send third
        failed {dead}  -> send fourth
        answered 200    -> relay
    """)


def test_a_request_is_tried_on_three_slots_where_all_that_are_left_are_ejected():
    case = Case(slots=5)
    for member in case.candidates.ready:
        case.state.health.failed(member.id, member.incarnation, 100.0)
    case.play("""
        begin           -> send home
        failed REFUSED  -> send next
        failed REFUSED  -> send third
        failed REFUSED  -> refuse 502 no_answer
    """)
    assert case.state.balancer.loads == {}
    assert sum(case.state.metrics.retries.values.values()) == 2


def test_slots_that_are_all_dead_are_tried_up_to_a_bound():
    case = Case(slots=MAX_SLOTS + 8)
    action, tries = case.exchange.begin(100.0), 0
    while isinstance(action, Send):
        tries += 1
        action = case.exchange.failed(Failure.REFUSED, 100.0)
    assert tries == MAX_SLOTS
    assert case.state.balancer.loads == {}
    assert case.state.retry_budget.trying == 0


DEATHS = pytest.mark.parametrize(
    "dies",
    ["failed RESET    -> send next fresh", "failed STALE    -> send home fresh\nfailed REFUSED  -> send next fresh"],
)
"""The ways in which a router sees that its first engine has died with the request."""


@DEATHS
def test_a_request_on_which_two_engines_have_died_one_after_the_other_is_tried_on_no_third(dies):
    case = Case(slots=5)
    case.play(f"begin           -> send home\n{dies}\nwait 1\nfailed RESET    -> refuse 502 no_answer")
    assert case.state.balancer.loads == {}


@DEATHS
def test_two_engines_that_die_at_one_time_are_one_loss_and_the_next_try_waits_until_the_rest_is_dead(dies):
    case = Case(slots=5)
    case.play(f"""
        begin           -> send home
        {dies}
        wait 0.1
        failed RESET    -> wait
        wait 0.4
        begin           -> wait
        wait 0.1
        begin           -> send third fresh
        answered 200    -> relay
    """)
    assert case.ejected() == sorted(case.order[:2])
    case.play("abandoned")
    assert case.state.balancer.loads == {}
    assert case.state.retry_budget.trying == 0


def test_a_request_that_kills_its_engines_at_once_kills_three_and_no_more():
    case = Case(slots=8)
    case.play("""
        begin           -> send home
        failed RESET    -> send next fresh
        failed RESET    -> wait
        wait 0.5
        begin           -> send third fresh
        failed RESET    -> refuse 502 no_answer
    """)


def test_a_request_whose_last_engines_died_at_one_time_waits_for_nothing():
    Case(slots=2).play("""
        begin           -> send home
        failed RESET    -> send next fresh
        failed RESET    -> refuse 502 no_answer
    """)


@DEATHS
def test_a_node_that_dies_with_two_engines_is_not_taken_for_a_request_that_kills_them(dies):
    case = Case(slots=4)
    case.play(f"""
        begin           -> send home
        {dies}
        failed REFUSED  -> send third fresh
        answered 200    -> relay
    """)
    assert case.ejected() == sorted(case.order[:2])


def test_no_slot_is_tried_twice():
    Case(slots=2).play("""
        begin           -> send home
        failed REFUSED  -> send next
        failed REFUSED  -> refuse 502 no_answer
    """)


def test_a_stale_connection_is_nobodys_failure():
    case = Case(slots=2)
    case.play("""
        begin           -> send home
        failed STALE    -> send home fresh
        answered 200    -> relay
    """)
    assert case.ejected() == []
    assert sum(case.state.balancer.loads.values()) == 1
    assert case.exchange.tries == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_engine_that_says_unavailable_is_ejected_and_the_next_is_tried(status):
    case = Case(slots=2)
    case.play(f"""
        begin              -> send home
        answered {status}  -> send next
        answered 200       -> relay
    """)
    assert case.ejected() == case.order[:1]
    assert case.state.balancer.loads == {case.candidates.id + f"/{case.order[1]}": 1}
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


def test_over_the_retry_budget_a_refused_request_waits_while_others_stand_by():
    case = Case(slots=3)
    for _ in range(LEAST):
        case.state.retry_budget.take(case.candidates.id, 0)
    case.play("""
        begin         -> send home
        answered 503  -> wait
    """)
    assert case.state.balancer.loads == {}
    case.state.retry_budget.give_back(case.candidates.id)
    case.play("""
        begin         -> send next
        answered 200  -> relay
    """)


def test_over_the_retry_budget_the_refusal_of_the_only_replica_is_passed_on():
    case = Case(slots=1)
    for _ in range(LEAST):
        case.state.retry_budget.take(case.candidates.id, 0)
    case.play("""
        begin         -> send home
        answered 503  -> relay
    """)


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
    assert case.state.balancer.loads == {}
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


def test_events_before_the_first_are_a_mistake_of_the_caller():
    with pytest.raises(RuntimeError, match="begin"):
        Case(slots=1).exchange.ended(0.0)


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
    member = case.exchange.member
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


def test_over_the_retry_budget_a_request_waits_and_ejects_nobody_while_it_does():
    case = Case(slots=3)
    for _ in range(LEAST):
        assert case.state.retry_budget.take(case.candidates.id, 0)
    case.play("""
        begin           -> send home
        failed REFUSED  -> wait
    """)
    assert case.state.balancer.loads == {}
    case.state.retry_budget.give_back(case.candidates.id)
    case.play("begin -> send next")
    assert case.state.retry_budget.trying == LEAST
    case.play("""
        answered 200 -> relay
        relaying
    """)
    assert case.state.retry_budget.trying == LEAST - 1


def test_the_deadline_of_a_request_that_waits_to_be_tried_again_is_nobodys_failure():
    case = Case(slots=3)
    for _ in range(LEAST):
        case.state.retry_budget.take(case.candidates.id, 0)
    case.play("""
        begin           -> send home
        failed REFUSED  -> wait
    """)
    case.state.health.succeeded(case.exchange.member.id)
    case.play("expired -> refuse 503 overloaded")
    assert case.ejected() == []


@pytest.mark.parametrize("end", ["ended", "abandoned"])
def test_the_budget_is_given_back_however_it_ends(end):
    case = Case(slots=3)
    case.play(f"""
        begin           -> send home
        failed REFUSED  -> send next
        {end}
    """)
    assert case.state.retry_budget.trying == 0


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


@pytest.mark.parametrize("failure", [Failure.RESET, Failure.ABORTED, Failure.REFUSED])
def test_the_ranks_of_an_engine_fail_together(failure):
    state = router_state()
    state.install(table(group("a", revision(slots=(slot(0, ranks=4), slot(1, ranks=4))))), "file", 0.0)
    candidates = state.index.names["a"].revisions[0].candidates
    exchange = Exchange(state, candidates, Demand(7, 7), 160.0)
    first = exchange.begin(100.0).member
    second = exchange.failed(failure, 100.1)
    assert second.member.slot != first.slot
    ejected = [each for each in candidates.ready if not state.health.available(each.slot_id, "a", 100.2)]
    assert [(each.slot, each.rank) for each in ejected] == [(first.slot, rank) for rank in range(4)]
    exchange.relaying(100.3)
    exchange.ended(101.0)
    third = Exchange(state, candidates, Demand(7, 7), 160.0).begin(101.0)
    assert third.member.slot == second.member.slot


def test_a_gateway_falls_back_to_the_same_rank_of_other_engines():
    state = router_state()
    state.install(table(group("a", revision(slots=tuple(slot(index, ranks=3) for index in range(4))))), "file", 0.0)
    candidates = state.index.names["a"].revisions[0].candidates
    exchange = Exchange(state, candidates, Demand(7, 7), 160.0)
    member = exchange.begin(100.0).member
    found = exchange.fallbacks(9, 100.0)
    assert {each.rank for each in found} == {member.rank}
    assert len({each.address for each in (member, *found)}) == 4


def test_nothing_is_recorded_of_a_request_whose_engine_chooses_the_rank():
    state = router_state()
    state.install(table(group("a", revision(slots=(slot(0, ranks=2),)))), "file", 0.0)
    candidates = state.index.names["a"].revisions[0].candidates
    for unranked, recorded in ((True, False), (False, True)):
        exchange = Exchange(state, candidates, Demand(7, 7, 1000, unranked=unranked), 160.0)
        exchange.begin(100.0)
        assert sum(state.balancer.loads.values()) == 1
        exchange.relaying(101.0)
        exchange.ended(102.0, Usage(1000, 0, 10))
        assert (state.balancer.locations.get(7) is not None) is recorded
        assert state.balancer.loads == {}
