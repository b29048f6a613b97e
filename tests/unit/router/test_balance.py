from collections import Counter

import pytest

from promptgroup_router.balance import LEAST_CAP, Balancer, Keys, load_cap
from promptgroup_router.contract.table import Policy
from promptgroup_router.health import Health
from promptgroup_router.view import view_of
from support.tables import group, revision, table

KEYS = Keys(session=7, prefix=11)


def pool_of(policy=Policy.BOUNDED_LOAD, slots=3, **fields):
    view = view_of(table(group("a", revision(slots=slots), policy=policy, **fields)))
    return view.names["a"].revisions[0].pool


def picks(balancer, pool, count, keys=KEYS, now=0.0):
    return [balancer.pick(pool, keys, now).member.slot for _ in range(count)]


def order(pool, key):
    return [member.slot for member in pool.order(key)]


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
    pool, balancer = pool_of(), Balancer(Health())
    home, second, third = order(pool, KEYS.session)
    assert picks(balancer, pool, LEAST_CAP) == [home] * LEAST_CAP
    assert picks(balancer, pool, LEAST_CAP) == [second] * LEAST_CAP
    assert picks(balancer, pool, 1) == [third]


def test_a_released_request_makes_room_at_home():
    pool, balancer = pool_of(), Balancer(Health())
    held = [balancer.pick(pool, KEYS, 0.0) for _ in range(LEAST_CAP)]
    home = held[0].member.slot
    assert picks(balancer, pool, 1) != [home]
    balancer.release(held[0])
    balancer.release(held[0])
    assert balancer.loads[held[0].member.id] == LEAST_CAP - 1
    assert picks(balancer, pool, 1) == [home]


def test_loads_return_to_nothing():
    pool, balancer = pool_of(), Balancer(Health())
    for pick in [balancer.pick(pool, KEYS, 0.0) for _ in range(20)]:
        balancer.release(pick)
    assert balancer.loads == {}


def test_least_request_levels_and_begins_with_the_home():
    pool, balancer = pool_of(Policy.LEAST_REQUEST), Balancer(Health())
    assert picks(balancer, pool, 3) == order(pool, KEYS.session)
    assert Counter(picks(balancer, pool, 6)) == {0: 2, 1: 2, 2: 2}


def test_round_robin_takes_turns_whatever_the_key():
    pool, balancer = pool_of(Policy.ROUND_ROBIN), Balancer(Health())
    assert picks(balancer, pool, 5) == [0, 1, 2, 0, 1]
    balancer.keep([])
    assert picks(balancer, pool, 1) == [0]


def test_prefix_hash_sends_a_prefix_to_one_place_without_bound():
    pool, balancer = pool_of(Policy.PREFIX_HASH), Balancer(Health())
    home = order(pool, KEYS.prefix)[0]
    assert picks(balancer, pool, 30) == [home] * 30
    assert picks(balancer, pool, 1, Keys(session=1234, prefix=KEYS.prefix)) == [home]


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_goes_round_tried_and_ejected_slots_and_fails_open(policy):
    health = Health()
    pool, balancer = pool_of(policy), Balancer(health)
    first = balancer.pick(pool, KEYS, 0.0).member
    second = balancer.pick(pool, KEYS, 0.0, (first.id,)).member
    assert second.id != first.id
    third = balancer.pick(pool, KEYS, 0.0, (first.id, second.id)).member
    assert {first.slot, second.slot, third.slot} == {0, 1, 2}
    assert balancer.pick(pool, KEYS, 0.0, (first.id, second.id, third.id)) is None
    health.failed(first.id, "a", 0.0)
    health.failed(second.id, "a", 0.0)
    assert set(picks(balancer, pool, 5)) == {third.slot}
    health.failed(third.id, "a", 0.0)
    assert len(picks(balancer, pool, 1)) == 1
    assert balancer.pick(pool, KEYS, 99.0) is not None


def test_fail_open_keeps_the_order_of_the_ring():
    health = Health()
    pool, balancer = pool_of(), Balancer(health)
    for member in pool.ready:
        health.failed(member.id, "a", 0.0)
    assert picks(balancer, pool, 1) == order(pool, KEYS.session)[:1]


def test_an_empty_pool_has_nothing_to_pick():
    assert Balancer(Health()).pick(pool_of(slots=0), KEYS, 0.0) is None
