"""The peers, each by what its source says of it, and all of them on a small load."""

import random

import pytest

from promptgroup_research.policies.cache_aware import CacheAware
from promptgroup_research.policies.dynamo import BELIEF, Dynamo
from promptgroup_research.policies.oracle import Oracle
from promptgroup_research.policies.ours import Ours
from promptgroup_research.policies.random_choice import PowerOfTwo, RandomChoice
from promptgroup_research.policies.scorer import INDEX_TOKENS, Scorer
from promptgroup_research.policies.session_ring import BoundedRing, SessionRing
from promptgroup_research.policies.sticky import MOST_SECONDS, Sticky
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import World

HOUR = 2000.0
ALL = [
    RandomChoice, PowerOfTwo, SessionRing, BoundedRing, CacheAware, Scorer, lambda: Scorer(None), Sticky, Dynamo,
    lambda: Dynamo(30), lambda: Dynamo(events=True), Oracle,
]  # fmt: skip


def request(nodes, sizes, key=1, tier1=0):
    return Turn(Session(key, 0, tier1, 0.0), nodes, sizes, 10, 0)


def started(policy, replicas=4):
    return World(policy, [], replicas)


def place(policy, turn, now=0.0):
    turn.replica = policy.place(turn, now)
    return turn.replica


@pytest.mark.parametrize("make", ALL)
def test_every_request_ends_though_replicas_come_and_go_and_nothing_stays_counted(make):
    policy = make()
    sessions = chat(20, 20, seed=1)
    world = World(policy, sessions, 4)
    world.at(5.0, lambda: world.kill(1))
    world.at(8.0, lambda: world.revive(1))
    world.at(12.0, lambda: (world.add_engine(), world.set_up((0, 1, 2, 4))))
    world.run(HOUR)
    assert len(world.turns) == sum(len(session.turns) for session in sessions)
    assert all(turn.ended > 0 for turn in world.turns)
    assert policy.in_flight == [0, 0, 0, 0, 0]
    assert [turn for turn in world.turns if turn.replica == 3 and turn.arrived > 12 and turn.tries == 1] == []
    if isinstance(policy, Dynamo):
        assert policy._prefill == policy._active == [0] * 5
    if isinstance(policy, Sticky):
        assert not any(policy._waiting.values())


@pytest.mark.parametrize("make", ALL)
def test_with_nothing_up_a_request_is_refused(make):
    policy = make()
    world = started(policy)
    world.set_up(())
    assert policy.place(request((1,), (100,)), 0.0) is None


def test_power_of_two_takes_the_less_loaded_of_two():
    policy = PowerOfTwo()
    started(policy, 2)
    policy.in_flight = [3, 0]
    assert {place(policy, request((1,), (10,))) for _ in range(3)} == {1}


def test_a_session_stays_and_moves_only_when_its_replica_is_gone():
    policy = SessionRing()
    world = started(policy)
    homes = {key: place(policy, request((key,), (10,), key)) for key in range(50)}
    assert set(homes.values()) == {0, 1, 2, 3}
    world.set_up((0, 1, 3))
    for key, home in homes.items():
        again = place(policy, request((key,), (10,), key))
        assert again == home if home != 2 else again != 2


def test_bounded_loads_pass_over_what_is_above_the_bound():
    policy = BoundedRing(1.25)
    started(policy)
    home = place(policy, request((1,), (10,)))
    policy.in_flight = [2, 2, 2, 2]
    policy.in_flight[home] = 3  # the bound is 1.25 * 10 / 4 = 3.1
    assert place(policy, request((1,), (10,))) == home
    assert place(policy, request((1,), (10,))) != home


def test_cache_aware_follows_a_match_over_its_threshold():
    policy = CacheAware(0.3)
    started(policy)
    first = place(policy, request((1,), (100,)))
    assert place(policy, request((1, 2), (100, 200))) == first
    assert place(policy, request((1, 3), (100, 300))) != first  # a quarter: the least loaded


def test_cache_aware_takes_the_least_loaded_when_both_bounds_are_passed():
    policy = CacheAware()
    started(policy)
    first = place(policy, request((1,), (100,)))
    policy.in_flight = [40, 40, 40, 40]
    policy.in_flight[first] = 104
    assert place(policy, request((1,), (100,))) == first  # 64 more is not over 64
    assert place(policy, request((1,), (100,))) != first


def test_cache_aware_forgets_a_worker_that_is_gone():
    policy = CacheAware()
    world = started(policy)
    first = place(policy, request((1,), (100,)))
    world.set_up([each for each in range(4) if each != first])
    assert place(policy, request((1,), (100,))) != first


def test_the_scorer_weighs_match_queue_and_memory():
    policy = Scorer()
    world = started(policy)
    first = place(policy, request((1,), (1600,)))
    assert place(policy, request((1,), (1600,))) == first
    policy._queue = [0, 0, 0, 0]
    policy._queue[first] = 9  # 3 for the match against 2 for the queue
    assert place(policy, request((1,), (1600,))) == first
    policy._free[first] = 0.4  # 3 + 0.8 against 2 + 2
    assert place(policy, request((1,), (1600,))) != first
    assert world.now == 0


def test_the_scorer_sees_the_first_4096_tokens_and_without_a_cap_all():
    for cap, share in ((4096, 1.0), (None, 0.5)):
        policy = Scorer(cap)
        started(policy)
        pod = place(policy, request((1,), (4096,)))
        assert policy._prefix(request((1, 2), (4096, 4096)), pod) == share


def test_a_sticky_prompt_stays_until_its_pod_is_saturated():
    policy = Sticky()
    world = started(policy)
    first = request((1,), (1600,))
    pod = place(policy, first)
    other = place(policy, request((9,), (50,)))
    assert other != pod  # the least uncached work
    policy.first_token(first, 0.0)
    assert policy._waiting[pod] == 0
    policy._waiting[pod] = 20_000
    assert place(policy, request((1, 2), (1600, 400))) == pod  # four fifths, however much waits
    assert place(policy, request((1, 3), (1600, 900))) != pod  # less: the least uncached work
    policy._waiting[pod] = round(MOST_SECONDS * world.model.prefill_rate) + 1
    assert place(policy, request((1, 2), (1600, 400))) != pod


def test_the_scorers_index_keeps_what_was_sent_last():
    policy = Scorer(None)
    started(policy, 1)
    for node in (1, 0, 1, 2):
        place(policy, request((node,), (INDEX_TOKENS // 2,)))
    assert [policy._prefix(request((node,), (INDEX_TOKENS // 2,)), 0) for node in range(3)] == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(("weight", "stays"), [(1, False), (30, True)])
def test_dynamo_weighs_prefill_against_active_blocks(weight, stays):
    policy = Dynamo(weight)
    world = started(policy)
    world.set_up((0,))
    for node, size in ((1, 1600), (5, 3200)):
        first = request((node,), (size,))
        place(policy, first)
        policy.first_token(first, 0.0)
    world.set_up((0, 1))
    # there: 10 blocks to prefill and 310 active; elsewhere 110 and 110
    assert (place(policy, request((1, 2), (1600, 160))) == 0) is stays


def test_dynamo_believes_for_two_minutes():
    policy = Dynamo()
    started(policy)
    worker = place(policy, request((1,), (1600,)))
    assert policy._overlap(request((1,), (1600,)), worker, BELIEF) == 1600
    assert policy._overlap(request((1,), (1600,)), worker, BELIEF + 1) == 0


def test_the_oracle_goes_where_the_cache_is_until_the_wait_is_longer():
    policy = Oracle()
    world = started(policy)
    for engine in world.engines:
        engine.warm(99, 100)
    world.engines[2].warm(1, 16_000)
    assert place(policy, request((1, 2), (16_000, 50))) == 2
    for number in range(3):
        busy = request((1000 + number,), (30_000,))
        busy.pick = 4.5
        world.engines[2].waiting.append(busy)
    assert place(policy, request((1, 2), (16_000, 50))) != 2


def test_what_is_drawn_is_the_same_for_the_same_seed():
    first, second = RandomChoice(3), RandomChoice(3)
    started(first)
    started(second)
    keys = random.Random(1).sample(range(1000), 20)
    assert [place(first, request((key,), (1,))) for key in keys] == [
        place(second, request((key,), (1,))) for key in keys
    ]


def test_models_with_little_memory_run_too():
    world = World(Scorer(), chat(5, 20, seed=2), 2, Model(kv_tokens=60_000))
    world.run(HOUR)
    assert all(turn.ended > 0 for turn in world.turns)


def test_each_engine_has_an_address_of_its_own_by_which_a_router_knows_it():
    router = Ours()
    World(router, [], 8)
    assert len({member.address for member in router._pool.members}) == 8
