from dataclasses import replace

import pytest
import xxhash

from promptgroup_contract.table import Engine, Sharing
from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.expected_ttft import (
    FEW,
    INHERITED_MARGIN,
    MARGIN,
    SAMPLE,
    SCANNED,
    TRUST,
    ExpectedTtft,
    held,
)
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement, SessionLocations
from promptgroup_router.rings.building import build_index
from support.placements import asks
from support.tables import group, revision, slot, table

ENGINE = Engine("one", kv_tokens=100_000, prefill_rate=10_000)
NEW = Demand(session=7, prefix=11, prompt=3000, tier1=2000)
NEXT = Demand(session=7, prefix=11, prompt=3400, tier1=2000, history=3150, turn=3)


class Case:
    """A policy over replicas whose books are written by the test."""

    def __init__(self, slots=3, kv=100_000):
        self.index = build_index(table(group("a", revision(slots=slots))))
        self.candidates = self.index.names["a"].revisions[0].candidates
        self.locations = SessionLocations()
        self.policy = ExpectedTtft(self.locations)
        costs = EngineCosts(kv, 10_000)
        self.replicas = {
            member.id: ReplicaLoad(number, "a", costs, 0.0) for number, member in enumerate(self.candidates.members)
        }
        self.order = list(self.candidates.order(7))

    def books(self, member):
        return self.replicas[member.id]

    def choose(self, demand=NEW, now=0.0, allowed=None, turn=0):
        allowed = allowed or self.candidates.members
        return self.policy.choose(self.candidates, demand, allowed, self.replicas, now=now, turn=turn)

    def record(self, member, tokens=3150.0, written=0.0):
        self.locations.put(demand_key(NEXT), Placement(member.id, 11, 1, tokens, written, 0.0))


def demand_key(demand):
    return demand.session


@pytest.mark.parametrize(
    ("demand", "cached", "expected"),
    [
        (NEXT, 5000.0, 3150),  # no more than what earlier requests had
        (NEXT, 2500.0, 2500),
        (NEXT, 2000.0, 0),  # any replica of the prefix has as much
        (NEW, 5000.0, 3000),  # a session whose history is not known: no more than the prompt
        (NEW, 2500.0, 2500),
    ],
)
def test_what_is_held_of_a_session_is_of_its_prompt_and_beyond_its_prefix(demand, cached, expected):
    (member, *_) = Case().order
    assert held(demand, Placement(member.id, 11, 1, cached, 0.0, 0.0)) == expected
    assert held(demand, None) == 0


def test_with_nothing_to_tell_them_apart_home_is_taken_and_then_by_the_ring():
    case = Case()
    assert case.choose() is case.order[0]
    assert case.choose(allowed=case.order[1:]) is case.order[1]


def test_a_small_backlog_does_not_drive_a_session_from_home_and_a_big_one_does():
    case = Case()
    home = case.books(case.order[0])
    home.send(MARGIN / 2, 1, 0.0, streamed=True)
    assert case.choose() is case.order[0]
    home.send(1.0, 1, 0.0, streamed=True)
    assert case.choose() is not case.order[0]
    assert case.choose(now=2.0) is not case.order[0], "its first token is overdue"


def test_a_backlog_that_has_run_off_is_none():
    case = Case()
    sent = case.books(case.order[0]).send(1.0, 1, 0.0, streamed=True)
    case.books(case.order[0]).progress(sent, 0.9)
    case.books(case.order[0]).leave(sent)
    assert case.choose(now=1.0) is case.order[0]


def test_a_session_whose_slot_another_process_took_over_leaves_it_only_to_save_much():
    case = Case()
    there, moment = case.order[2], 10.0
    case.record(there)
    case.books(there).written = 1_000_000  # a new process: what was recorded is void
    case.books(there).inherited = moment
    case.books(there).send(INHERITED_MARGIN / 2, 1, moment, streamed=True)
    assert case.choose(NEXT, now=moment) is there
    case.books(there).send(INHERITED_MARGIN, 1, moment, streamed=True)
    assert case.choose(NEXT, now=moment) is not there


def test_a_session_that_was_served_by_the_new_process_leaves_it_as_any_other():
    case = Case()
    there = case.order[2]
    case.record(there)
    case.books(there).written = 1_000_000
    case.books(there).inherited = -1.0
    case.books(there).send(INHERITED_MARGIN / 2, 1, 0.0, streamed=True)
    assert case.choose(NEXT) is not there


def test_what_is_cached_is_worth_a_wait_up_to_its_price():
    case = Case()
    there = case.order[2]
    case.record(there)
    assert case.choose(NEXT) is there
    case.books(there).send(0.3, 1, 0.0, streamed=True)
    assert case.choose(NEXT) is there
    case.books(there).send(3.0, 1, 0.0, streamed=True)
    assert case.choose(NEXT) is not there


def test_a_record_is_believed_until_as_much_was_written_and_no_longer():
    case = Case()
    there = case.order[2]
    case.record(there)
    case.books(there).written = TRUST * 100_000 - 1
    assert case.policy.cached(NEXT, there.id, case.books(there), case.locations.get(7), home=False) == 3150
    case.books(there).written = TRUST * 100_000
    assert case.policy.cached(NEXT, there.id, case.books(there), case.locations.get(7), home=False) == 0


def test_a_record_is_believed_as_far_as_requests_in_flight_leave_space_for_it():
    case = Case()
    there = case.order[2]
    case.record(there)
    replica, place = case.books(there), case.locations.get(7)
    replica.written = 20_000
    replica.live.enter(1, 11, 3000, 60_000)
    replica.peer_unplaced = 16_850
    assert case.policy.cached(NEXT, there.id, replica, place, home=False) == 3150
    replica.peer_unplaced = 17_850  # engines evict the end of a session first
    assert case.policy.cached(NEXT, there.id, replica, place, home=False) == 2150
    replica.peer_unplaced = 20_000
    assert case.policy.cached(NEXT, there.id, replica, place, home=False) == 0
    replica.live.leave(1, 0.0)
    assert case.policy.cached(NEXT, there.id, replica, place, home=False) == 3150


def test_a_session_whose_own_request_is_in_flight_is_believed_to_have_what_that_holds():
    case = Case()
    there = case.order[2]
    case.record(there)
    replica, place = case.books(there), case.locations.get(7)
    replica.live.enter(7, 11, 0, 98_000)
    assert case.policy.cached(NEXT, there.id, replica, place, home=False) == 3150


def test_the_record_before_a_move_is_believed_as_far_as_requests_in_flight_leave_space_for_it():
    case = Case()
    there = case.order[2]
    case.record(there)
    case.record(case.order[1])
    replica, place = case.books(there), case.locations.get(7)
    replica.live.enter(1, 11, 3000, 98_000)
    assert case.policy.cached(NEXT, there.id, replica, place, home=False) == 2000


def test_a_client_that_trims_its_history_is_not_believed_to_have_more_cached_than_it_sends():
    case = Case()
    case.record(case.order[0], tokens=9000)
    cached = case.policy.cached(NEXT, case.order[0].id, case.books(case.order[0]), case.locations.get(7), home=False)
    assert cached == NEXT.history


def test_a_warm_prefix_is_preferred_and_a_cold_one_taken_when_it_saves_enough():
    case = Case()
    warm = case.order[1]
    case.books(warm).touch(11, 2000)
    assert case.choose() is warm
    case.books(warm).send(0.2, 1, 0.0, streamed=True)
    assert case.choose() is warm, "few sessions have begun with it: what it saves may be noise"
    for _ in range(5):
        case.books(warm).costs.in_use.use(11, 2000, 0.0, begins=True)
    assert case.choose() is not warm, "a cold Tier 1 is an investment: a tenth of it is charged"


def test_a_prompt_that_no_group_declares_is_copied_later_than_a_declared_one():
    case = Case()
    warm = case.order[1]
    case.books(warm).touch(11, 2000)
    case.books(warm).send(0.2, 1, 0.0, streamed=True)
    case.books(warm).costs.in_use.replicas = 3
    for _ in range(2):
        case.books(warm).costs.in_use.use(11, 2000, 0.0, begins=True)
    assert case.choose() is not warm
    assert case.choose(replace(NEW, declared=False)) is warm


def test_decoding_counts_when_nothing_else_does():
    case = Case()
    for _ in range(200):
        sent = case.books(case.order[0]).send(0.0, 4000, 0.0, streamed=True)
        case.books(case.order[0]).progress(sent, 0.0)
    assert case.choose() is not case.order[0]


@pytest.mark.parametrize(("running", "answer", "stays"), [(100, 1000, False), (100, 50, True), (30, 1000, True)])
def test_requests_leave_a_cache_where_many_long_answers_are_decoded_and_not_for_a_few_more(running, answer, stays):
    case = Case()
    for member in case.candidates.members:
        for _ in range(running if member is case.order[0] else 25):
            case.books(member).progress(case.books(member).send(0.0, 4000, 0.0, streamed=True), 0.0)
    costs = case.books(case.order[0]).costs
    costs.in_use.capacity = 0  # a cold prefix has its whole price
    for _ in range(200):
        costs.observe_answer(answer)
    case.books(case.order[0]).touch(11, 2000)
    assert (case.choose() is case.order[0]) == stays
    case.record(case.order[0])
    assert case.choose(NEXT) is case.order[0], "a session that has begun does not leave its cache for it"


@pytest.mark.parametrize(("running", "stays"), [(20, True), (60, False)])
def test_requests_leave_a_cache_whose_engine_runs_as_many_requests_as_it_can(running, stays):
    case = Case()
    costs = case.books(case.order[0]).costs
    costs.in_use.capacity = 0  # a cold prefix has its whole price
    costs.sequences = 32
    for _ in range(200):
        costs.observe_answer(1000)
    for member in case.candidates.members:
        for _ in range(running if member is case.order[0] else 20):
            case.books(member).progress(case.books(member).send(0.0, 100, 0.0, streamed=True), 0.0)
    case.books(case.order[0]).touch(11, 2000)
    assert (case.choose() is case.order[0]) == stays
    case.record(case.order[0])
    assert (case.choose(NEXT) is case.order[0]) == stays, "a session that has begun waits for a place as well"


@pytest.mark.parametrize(("running", "there"), [(20, True), (60, False)])
def test_a_new_session_goes_where_its_prefix_is_unless_it_would_wait_for_a_place_there(running, there):
    case = Case()
    home, warm, cold = case.order
    costs = case.books(home).costs
    costs.in_use.capacity = 0  # a cold prefix has its whole price
    costs.sequences = 32
    for _ in range(200):
        costs.observe_answer(1000)
    for member, in_flight in ((warm, running), (cold, 20)):
        for _ in range(in_flight):
            case.books(member).progress(case.books(member).send(0.0, 100, 0.0, streamed=True), 0.0)
    case.books(home).send(30.0, 4000, 0.0, streamed=True)
    case.books(warm).touch(11, 2000)
    assert case.choose() is (warm if there else cold)


def test_a_session_without_a_record_is_believed_at_home_as_far_as_that_came_true():
    case = Case()
    home = case.order[0]
    cached = case.policy.cached(NEXT, home.id, case.books(home), None, home=True)
    assert 2000 < cached < 3150
    for _ in range(100):
        case.policy.learn(NEXT, 3150, 0)
    assert case.policy.cached(NEXT, home.id, case.books(home), None, home=True) > 3000
    for _ in range(400):
        case.policy.learn(NEXT, 2000, 0)
    assert case.policy.cached(NEXT, home.id, case.books(home), None, home=True) < 2100
    assert case.policy.cached(NEXT, home.id, case.books(home), None, home=False) == 0


BRANCH = replace(asks(7, prompt=9000), history=8200, turn=3)
"""A branch of a conversation: others share all of its marks."""


def test_only_what_is_not_known_to_be_cached_at_home_is_believed():
    case = Case()
    home = case.order[0]
    case.books(home).use(asks(8, shares=2))
    cached = case.policy.cached(BRANCH, home.id, case.books(home), None, home=True)
    assert cached == 4000 + case.policy.home_trust * (8200 - 4000)


@pytest.mark.parametrize(("shared", "learns"), [(0, True), (2, True), (3, False), (4, False)])
def test_a_prefix_that_others_share_is_no_evidence_that_a_session_is_cached_at_home(shared, learns):
    case = Case()
    before = case.policy.home_trust
    for _ in range(50):
        case.policy.learn(BRANCH, [0, 2000, 4000, 6000, 8000][shared], shared)
    assert case.policy.home_trust == before if not learns else case.policy.home_trust < 0.1


def test_a_few_sessions_teach_what_the_home_has():
    case = Case()
    for _ in range(2):
        case.policy.learn(NEXT, 2000, 0)
    assert case.policy.home_trust < 0.2
    for _ in range(10):
        case.policy.learn(NEXT, 3150, 0)
    assert case.policy.home_trust > 0.6


def decode(case, member, count):
    """Let requests run on a replica that have had their first tokens."""
    books = case.books(member)
    for _ in range(count):
        books.progress(books.send(0.0, 100, 0.0, streamed=True), 0.0)


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("demand", [NEW, NEXT])
def test_a_session_that_has_begun_and_has_no_record_avoids_company(demand, placed):
    case = Case()
    for _ in range(6):
        case.policy.learn(NEXT, 2000, 0)  # homes have nothing
    for member, count in zip(case.order, (8, 4, 0), strict=True):
        case.books(member).touch(11, 2000)
        decode(case, member, count)
    if placed:
        case.record(case.order[0], tokens=2000)
    assert case.choose(demand) is case.order[2 if demand is NEXT and not placed else 0]


@pytest.mark.parametrize(("cached", "stays"), [(False, False), (True, True)])
def test_company_of_all_routers_counts_and_costs_less_than_a_prefix(cached, stays):
    case = Case()
    for _ in range(6):
        case.policy.learn(NEXT, 2000, 0)
    home, _, idle = case.order
    for member in (home,) if cached else (home, idle):
        case.books(member).touch(11, 2000)
    case.books(home).peer_in_flight = 8
    assert case.choose(NEXT) is (home if stays else idle)


def test_what_a_session_left_behind_is_found_again():
    case = Case()
    case.record(case.order[1], tokens=3000)
    case.record(case.order[2], tokens=3150)
    place = case.locations.get(7)
    assert case.policy.cached(NEXT, case.order[1].id, case.books(case.order[1]), place, home=False) == 3000
    assert case.choose(NEXT, allowed=[case.order[0], case.order[1]]) is case.order[1]


def test_a_full_replica_is_passed_by_and_when_all_are_full_there_is_none():
    case = Case(slots=2, kv=10_000)
    first, second = case.order
    case.books(first).live.enter(100, 12, 0, 9000, returned=True)
    assert case.choose() is second
    case.books(second).live.enter(101, 13, 0, 9000, returned=True)
    assert case.choose() is None


@pytest.mark.parametrize(("backlog", "prompt", "leaves"), [(20.0, 400, True), (0.5, 3000, False)])
def test_the_only_replica_with_capacity_does_not_get_everything(backlog, prompt, leaves):
    case = Case(slots=2, kv=10_000)
    free, full = case.order
    case.books(full).costs.set_capacity(10_000)
    for session in range(4):
        case.books(full).live.enter(session, 11, 0, 2400, returned=True)
    case.books(free).send(backlog, 1000, 0.0, streamed=True)
    assert case.choose(Demand(session=7, prefix=13, prompt=prompt)) is (full if leaves else free)
    case.books(free).live.enter(90, 11, 0, 9600, returned=True)
    assert case.choose(Demand(session=7, prefix=13, prompt=prompt)) is None, "where all are full, it waits"


def test_a_session_that_runs_there_is_let_in_whatever_the_others_hold():
    case = Case(slots=1, kv=10_000)
    case.books(case.order[0]).live.enter(100, 12, 0, 9900)
    case.books(case.order[0]).live.enter(NEXT.session, NEXT.prefix, 2000, 1150)
    assert case.choose(NEXT) is case.order[0]


def test_a_prompt_that_fills_most_of_a_cache_is_not_kept_out_for_ever():
    case = Case(slots=1, kv=10_000)
    case.books(case.order[0]).live.enter(100, 12, 0, 4500, returned=True)
    assert case.choose(Demand(session=7, prefix=11, prompt=9000)) is case.order[0]
    case.books(case.order[0]).live.enter(101, 12, 0, 1000, returned=True)
    assert case.choose(Demand(session=7, prefix=11, prompt=9000)) is None


@pytest.mark.parametrize("count", [SCANNED, SCANNED + 1, 300])
def test_among_many_home_is_found_records_are_found_and_load_is_left(count):
    case = Case(slots=count)
    assert case.choose() is case.order[0]
    there = case.order[count // 2]
    case.record(there)
    assert case.choose(NEXT) is there
    for member in case.order[:5]:
        case.books(member).send(5.0, 1, 0.0, streamed=True)
    fresh = Demand(session=7, prefix=99, prompt=3000, tier1=2000, origin=0, turn=1)
    case.locations = SessionLocations()
    case.policy = ExpectedTtft(case.locations)
    assert case.choose(fresh) not in case.order[:5]


def test_among_many_the_sample_moves_on():
    case = Case(slots=200)
    for member in case.candidates.members:
        case.books(member).send(5.0, 1, 0.0, streamed=True)
    idle = case.order[77]
    sent = case.books(idle).answers[0]
    case.books(idle).progress(sent, 0.0)
    case.books(idle).leave(sent)
    assert idle in [case.choose(turn=turn) for turn in range(200 // SAMPLE + 1)]


# --- Soft borders ---------------------------------------------------------------------------------------------


def pooled(sharing=Sharing.POOL, ready=2):
    held = tuple(slot(index) for index in range(ready))
    mine = group("a", revision("mine", slots=held, engine=ENGINE), sharing=sharing)
    other = group("b", revision("other", slots=2, engine=ENGINE))
    view = build_index(table(mine, other))
    return view.names["a"].revisions[0].candidates


def books(candidates):
    costs = EngineCosts(100_000, 10_000)
    replicas = {member.id: ReplicaLoad(number, "a", costs, 0.0) for number, member in enumerate(candidates.members)}
    own = xxhash.xxh3_64_intdigest(b"own")
    for member in candidates.ready:
        replicas[member.id].touch(own, 2000)
    return replicas, Demand(session=7, prefix=own, prompt=3000, tier1=2800)


def test_overflow_goes_to_another_groups_replicas_when_ones_own_are_busy_and_not_before():
    candidates = pooled()
    replicas, demand = books(candidates)
    policy = ExpectedTtft(SessionLocations())
    assert policy.choose(candidates, demand, candidates.members, replicas, now=0.0, turn=0) in candidates.ready
    for member in candidates.ready:
        replicas[member.id].send(0.01, 1, 0.0, streamed=True)
    assert policy.choose(candidates, demand, candidates.members, replicas, now=0.0, turn=0) in candidates.ready
    for member in candidates.ready:
        replicas[member.id].send(2.0, 1, 0.0, streamed=True)
    assert policy.choose(candidates, demand, candidates.members, replicas, now=0.0, turn=0) not in candidates.ready


def test_a_group_without_a_replica_of_its_own_is_served_by_the_pool():
    candidates = pooled(ready=0)
    replicas, demand = books(candidates)
    policy = ExpectedTtft(SessionLocations())
    assert policy.choose(candidates, demand, candidates.members, replicas, now=0.0, turn=0) is not None


def test_a_dedicated_group_borrows_nothing():
    assert len(pooled(Sharing.DEDICATED).members) == 2


# --- Constants ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backlog", "stays"), [(0.29, True), (0.34, False)])
def test_the_price_of_computing_again_is_one_and_a_half_times_its_time(backlog, stays):
    # 1,150 tokens of history take 0.123 s to compute again, which is charged 2.5 times: 0.307 s, and 5 ms more
    case = Case()
    case.record(case.order[0])
    for member in case.order:
        case.books(member).touch(11, 2000)
    case.books(case.order[0]).send(backlog, 1, 0.0, streamed=True)
    assert (case.choose(NEXT) is case.order[0]) is stays


@pytest.mark.parametrize(("backlog", "stays"), [(0.0045, True), (0.0053, False)])
def test_home_is_left_to_save_five_milliseconds_and_not_for_less(backlog, stays):
    case = Case()
    for member in case.order:
        case.books(member).touch(11, 2000)
    case.books(case.order[0]).send(backlog, 1, 0.0, streamed=True)
    assert (case.choose(Demand(session=7, prefix=11, prompt=2100, tier1=2000)) is case.order[0]) is stays


def test_a_pool_makes_an_idle_replica_nearly_as_good_as_home():
    case = Case()
    there, pooled = case.order[2], Case()
    for each in (case, pooled):
        each.record(there)
        each.books(there).send(0.25, 1, 0.0, streamed=True)
    next(iter(pooled.replicas.values())).costs.set_copies(20_000, 1000)
    assert case.choose(NEXT) is there, "elsewhere it would be computed"
    assert pooled.choose(NEXT).id != there.id
    next(iter(pooled.replicas.values())).costs.set_copies(2_000, 1000)
    assert pooled.choose(NEXT).id == there.id, "the copy takes longer than the wait"


def overloaded(case, requests):
    """Each replica has requests that wait; the one with the prefix has two seconds more of them."""
    for member in case.candidates.members:
        for _ in range(requests):
            case.books(member).send(0.1, 1000, 0.0, streamed=True)
    case.books(case.order[0]).touch(11, 8000)
    case.books(case.order[0]).send(2.5, 1000, 0.0, streamed=True)


def test_requests_leave_a_cache_for_a_shorter_queue_but_not_where_queues_are_long_everywhere():
    wanted = Demand(session=7, prefix=11, prompt=8200, tier1=8000)
    case = Case(kv=1_000_000)
    case.books(case.order[0]).costs.in_use.capacity = 0  # a cold prefix has its whole price
    overloaded(case, FEW)
    assert case.choose(wanted) is not case.order[0]
    case = Case(kv=1_000_000)
    case.books(case.order[0]).costs.in_use.capacity = 0
    overloaded(case, FEW + 10)
    assert case.choose(wanted) is case.order[0]


def test_a_session_that_will_not_come_back_is_kept_waiting_by_no_full_cache():
    case = Case(slots=1, kv=10_000)
    (member,) = case.order
    books = case.books(member)
    books.costs.set_capacity(10_000)
    for session in range(10):
        books.live.enter(session, 5, 0, 100)
        books.live.leave(session, 0.0)
    books.live.expire(100.0)
    books.live.enter(1, 5, 0, 9_900)
    assert case.choose(NEW, 100.0) is member
    books.live.enter(2, 5, 0, 5_100, returned=True)
    assert case.choose(NEW, 100.0) is None  # most of the cache is of sessions that do come back
