import pytest

from promptgroup_contract.table import Policy, Slot, SlotState
from promptgroup_router.base.errors import Failure
from promptgroup_router.decision.actions import Send
from promptgroup_router.decision.attempts import MAX_SLOTS
from promptgroup_router.decision.composition import router_state
from promptgroup_router.decision.exchange import Exchange
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.retry_budget import LEAST
from support.exchanges import Case
from support.tables import group, revision, slot, table

DEATHS = pytest.mark.parametrize(
    "dies",
    ["failed RESET    -> send next fresh", "failed STALE    -> send home fresh\nfailed REFUSED  -> send next fresh"],
)
"""The ways in which a router sees that its first engine has died with the request."""


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
    (other, *_) = request.attempts.fallbacks(2, 1.0)
    case.install(*(slot(each, SlotState.ABSENT if each == other.slot else SlotState.READY) for each in range(3)))
    request.served_by(other.address, [other], 2.0)
    request.relaying(2.0)
    request.ended(3.0)
    assert case.state.balancer.placed.loads == {}


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
    assert case.state.balancer.placed.loads == {}
    assert sum(case.state.metrics.retries.values.values()) == 2


def test_slots_that_are_all_dead_are_tried_up_to_a_bound():
    case = Case(slots=MAX_SLOTS + 8)
    action, tries = case.exchange.begin(100.0), 0
    while isinstance(action, Send):
        tries += 1
        action = case.exchange.failed(Failure.REFUSED, 100.0)
    assert tries == MAX_SLOTS
    assert case.state.balancer.placed.loads == {}
    assert case.state.retry_budget.trying == 0


@DEATHS
def test_a_request_on_which_two_engines_have_died_one_after_the_other_is_tried_on_no_third(dies):
    case = Case(slots=5)
    case.play(f"begin           -> send home\n{dies}\nwait 1\nfailed RESET    -> refuse 502 no_answer")
    assert case.state.balancer.placed.loads == {}


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
    assert case.state.balancer.placed.loads == {}
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
    assert sum(case.state.balancer.placed.loads.values()) == 1
    assert case.exchange.attempts.tries == 1


def test_over_the_retry_budget_a_refused_request_waits_while_others_stand_by():
    case = Case(slots=3)
    for _ in range(LEAST):
        case.state.retry_budget.take(case.candidates.id, 0)
    case.play("""
        begin         -> send home
        answered 503  -> wait
    """)
    assert case.state.balancer.placed.loads == {}
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


def test_events_before_the_first_are_a_mistake_of_the_caller():
    with pytest.raises(RuntimeError, match="begin"):
        Case(slots=1).exchange.ended(0.0)


def test_over_the_retry_budget_a_request_waits_and_ejects_nobody_while_it_does():
    case = Case(slots=3)
    for _ in range(LEAST):
        assert case.state.retry_budget.take(case.candidates.id, 0)
    case.play("""
        begin           -> send home
        failed REFUSED  -> wait
    """)
    assert case.state.balancer.placed.loads == {}
    case.state.retry_budget.give_back(case.candidates.id)
    case.play("begin -> send next")
    assert case.state.retry_budget.trying == LEAST
    case.play("""
        answered 200 -> relay
        relaying
    """)
    assert case.state.retry_budget.trying == LEAST - 1


@pytest.mark.parametrize("end", ["ended", "abandoned"])
def test_the_budget_is_given_back_however_it_ends(end):
    case = Case(slots=3)
    case.play(f"""
        begin           -> send home
        failed REFUSED  -> send next
        {end}
    """)
    assert case.state.retry_budget.trying == 0


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
    found = exchange.attempts.fallbacks(9, 100.0)
    assert {each.rank for each in found} == {member.rank}
    assert len({each.address for each in (member, *found)}) == 4


def test_a_fault_of_a_policy_is_not_taken_for_a_lack_of_replicas():
    case = Changing()
    case.state.balancer.members.replicas.clear()
    with pytest.raises(KeyError):
        case.requests[0].begin(1.0)
