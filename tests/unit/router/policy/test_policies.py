from collections import Counter

import pytest
import xxhash

from promptgroup_contract.table import Engine, Policy
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.policy.policies import LEAST_CAP, load_cap
from promptgroup_router.rings.building import build_index
from support.tables import group, revision, table

DEMAND = Demand(session=7, prefix=11)


def served(policy=Policy.BOUNDED_LOAD, slots=3, **fields):
    """A candidates, and a balancer that knows its replicas."""
    of_revision = {"engine": fields.pop("engine")} if "engine" in fields else {}
    view = build_index(table(group("a", revision(slots=slots, **of_revision), policy=policy, **fields)))
    balancer = Balancer(Health())
    balancer.install(view, 0.0)
    return view.names["a"].revisions[0].candidates, balancer


def picks(balancer, candidates, count, demand=DEMAND, now=0.0):
    return [balancer.pick(candidates, demand, now).member.slot for _ in range(count)]


def order(candidates, key):
    return [member.slot for member in candidates.order(key)]


@pytest.mark.parametrize(
    ("loads", "factor", "cap"),
    [
        ([0, 0, 0], 125, LEAST_CAP),
        ([20, 20, 20, 20], 125, 26),  # 1.25 * 81 / 4 = 25.3
        ([80], 100, 81),
        ([40, 0], 125, 26),  # 1.25 * 41 / 2 = 25.6
        ([40, 40], 100, 41),
    ],
)
def test_the_cap_is_the_mean_after_the_next_request_times_the_factor(loads, factor, cap):
    assert load_cap(loads, factor) == cap


def test_bounded_load_leaves_home_only_at_the_cap():
    candidates, balancer = served()
    home, second, third = order(candidates, DEMAND.session)
    assert picks(balancer, candidates, LEAST_CAP) == [home] * LEAST_CAP
    assert picks(balancer, candidates, LEAST_CAP) == [second] * LEAST_CAP
    assert picks(balancer, candidates, 1) == [third]


def test_a_released_request_makes_room_at_home():
    candidates, balancer = served()
    held = [balancer.pick(candidates, DEMAND, 0.0) for _ in range(LEAST_CAP)]
    home = held[0].member.slot
    assert picks(balancer, candidates, 1) != [home]
    balancer.placed.release(held[0], 0.0)
    balancer.placed.release(held[0], 0.0)
    assert balancer.placed.loads[held[0].member.id] == LEAST_CAP - 1
    assert picks(balancer, candidates, 1) == [home]


def test_least_request_levels_and_begins_with_the_home():
    candidates, balancer = served(Policy.LEAST_REQUEST)
    assert picks(balancer, candidates, 3) == order(candidates, DEMAND.session)
    assert Counter(picks(balancer, candidates, 6)) == {0: 2, 1: 2, 2: 2}


def test_round_robin_takes_turns_whatever_the_key():
    candidates, balancer = served(Policy.ROUND_ROBIN)
    assert picks(balancer, candidates, 5) == [0, 1, 2, 0, 1]


def test_prefix_hash_sends_a_prefix_to_one_place_without_bound():
    candidates, balancer = served(Policy.PREFIX_HASH)
    home = order(candidates, DEMAND.prefix)[0]
    assert picks(balancer, candidates, 30) == [home] * 30
    assert picks(balancer, candidates, 1, Demand(session=1234, prefix=DEMAND.prefix)) == [home]


# --- What users of other routers met (each test names the fault) ---------------------------------------------

SESSIONS = [xxhash.xxh3_64_intdigest(number.to_bytes(4, "little")) for number in range(20_000)]


@pytest.mark.parametrize("policy", [Policy.EXPECTED_TTFT, Policy.BOUNDED_LOAD, Policy.LEAST_REQUEST])
def test_a_burst_on_one_warm_prefix_does_not_land_on_one_replica(policy):
    # loads that count after the pick let all of a burst see an idle favourite (llm-d-router#2515)
    candidates, balancer = served(policy, slots=8)
    spread = Counter(
        balancer.pick(candidates, Demand(session, 11, prompt=3000, tier1=2900), 0.0).member.slot
        for session in SESSIONS[:400]
    )
    assert max(spread.values()) <= 1.4 * 400 / 8


def test_a_bound_below_one_request_is_no_bound_and_overflow_keeps_walking():
    # many replicas, few requests, one hot session: everything fell to one default replica (kubeai#519)
    candidates, balancer = served(slots=200)
    walked = picks(balancer, candidates, 5 * LEAST_CAP)
    assert walked == [slot for slot in order(candidates, DEMAND.session)[:5] for _ in range(LEAST_CAP)]


def test_sessions_spread_evenly_over_ten_replicas_and_loads_end():
    # one of ten replicas got 80 requests, the others one to ten, until a restart (kubeai#447)
    candidates, balancer = served(slots=10)
    homes = Counter(next(candidates.order(session)).slot for session in SESSIONS)
    assert max(homes.values()) <= 1.06 * len(SESSIONS) / 10
    held = [balancer.pick(candidates, Demand(session, 11), 0.0) for session in SESSIONS[:300]]
    for pick in held:
        balancer.placed.end(pick, None, 1.0)
    assert balancer.placed.loads == {}


@pytest.mark.parametrize("policy", list(Policy))
def test_requests_without_a_group_count_as_load(policy):
    # requests that were passed through counted nowhere: one engine had 480, seven had none (vllm router#179)
    view = build_index(table(group("a", policy=policy)))
    balancer = Balancer(Health())
    balancer.install(view, 0.0)
    picks = [balancer.pick(view.models["llama"].first.candidates, Demand(session, 5), 0.0) for session in SESSIONS[:30]]
    assert sum(balancer.placed.loads.values()) == 30
    assert max(balancer.placed.loads.values()) <= 20
    for pick in picks:
        balancer.placed.release(pick, 0.0)
    assert balancer.placed.loads == {}


@pytest.mark.parametrize("policy", [Policy.EXPECTED_TTFT, Policy.LEAST_REQUEST])
def test_what_is_cached_nowhere_goes_where_nothing_waits(policy):
    # it went to the smallest cache whatever its load (sglang#14532), by loads that began with the stream (smg#1714)
    candidates, balancer = served(policy, slots=4)
    busy = candidates.ready[2]
    for session in SESSIONS[:6]:
        balancer.pick(
            candidates,
            Demand(session, 11, prompt=4000),
            0.0,
            [each.id for each in candidates.ready if each is not busy],
        )
    assert all(
        balancer.pick(candidates, Demand(session, session, prompt=4000), 0.0).member is not busy
        for session in SESSIONS[100:104]
    )


def test_locality_holds_under_load():
    # past a threshold of imbalance all locality was dropped, just when it is needed (sglang#32195)
    candidates, balancer = served(
        Policy.EXPECTED_TTFT, slots=4, engine=Engine(kv_tokens=10_000_000, prefill_rate=10_000)
    )
    places = {}
    for session in SESSIONS[:200]:
        pick = balancer.pick(candidates, Demand(session, 11, prompt=3000, tier1=2000), 0.0)
        balancer.placed.first_token(pick, 0.0)
        balancer.placed.end(pick, None, 0.0)
        places[session] = pick.member
    skewed = candidates.ready[0]
    for session in SESSIONS[1000:1040]:
        balancer.pick(
            candidates, Demand(session, 11, prompt=2100, tier1=2000), 1.0, [each.id for each in candidates.ready[1:]]
        )
    stayed = 0
    for session, member in places.items():
        pick = balancer.pick(candidates, Demand(session, 11, prompt=3100, tier1=2000, history=3000, turn=3), 1.0)
        stayed += pick.member is member
        balancer.placed.release(pick, 1.0)
    assert balancer.members.replicas[skewed.id].in_flight == 40
    assert stayed >= 0.7 * len(places)
