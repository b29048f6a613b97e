import pytest

from promptgroup_research.policies.random_choice import RandomChoice
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.tier import Tier, TierModel
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.world import World

POOL = TierModel("pool", 10_000, latency=0.02, token=1e-5, shared=True)
MODEL = Model(block=10, kv_tokens=2000)


def turn(*nodes, began=0.0, size=100):
    session = Session(nodes[-1], nodes[0], size, began)
    session.turns.append(Turn(session, nodes, (size,) * len(nodes), output=5, number=0))
    return session.turns[0]


def test_what_was_stored_is_copied_beyond_what_is_cached():
    tier = Tier(POOL, 10)
    tier.store(turn(1, 2))
    asked = turn(1, 2, 3)
    assert tier.fetch(asked, 0, cached=100, now=5.0) == pytest.approx(5.0 + 100 * 1e-5 + 0.02)
    assert asked.copied == 200
    assert tier.copied == 100


def test_what_was_copied_for_is_not_there_before_it_is_computed():
    tier = Tier(POOL, 10)
    tier.store(turn(1, 2))
    for _ in range(2):
        asked = turn(1, 2, 3, 4)
        tier.fetch(asked, 0, 0, 5.0)
        assert asked.copied == 200


def test_nothing_is_copied_that_the_engine_has_or_the_tier_has_not():
    tier = Tier(POOL, 10)
    assert tier.fetch(turn(1), 0, cached=0, now=5.0) == 5.0
    tier.store(turn(1))
    known = turn(1, 2)
    assert tier.fetch(known, 0, cached=100, now=5.0) == 5.0
    assert known.copied == tier.copied == 0


def test_copies_of_one_engine_share_its_link_and_those_of_two_do_not():
    tier = Tier(POOL, 10)
    tier.store(turn(1, 2))
    first, second = (tier.fetch(turn(1, 2, 3), 0, 0, 5.0) for _ in range(2))
    other = tier.fetch(turn(1, 2, 3), 1, 0, 5.0)
    assert second - first == pytest.approx(200 * 1e-5)
    assert other == first


def test_a_full_tier_drops_what_was_unused_for_longest():
    tier = Tier(TierModel("small", 200, 0.0, 0.0, shared=True), 10)
    for node in (1, 2):
        tier.store(turn(node))
    tier.fetch(turn(1, 9), 0, 0, 1.0)
    tier.store(turn(3))
    used, unused = turn(1, 9), turn(2, 9)
    tier.fetch(used, 0, 0, 2.0)
    tier.fetch(unused, 0, 0, 2.0)
    assert (used.copied, unused.copied) == (100, 0)


class Next(RandomChoice):
    """One replica after the other."""

    def choose(self, turn, now):
        return len(self.world.turns) % len(self.world.up)


@pytest.mark.parametrize(("tier", "cached"), [(None, 0), (POOL, 100)])
def test_with_a_pool_another_replica_finds_what_the_first_computed(tier, cached):
    asked = [turn(1, 2), turn(1, 3, began=10.0)]
    world = World(Next(), [each.session for each in asked], 2, MODEL, tier)
    world.run(60)
    assert asked[0].replica != asked[1].replica
    assert asked[0].cached == 0
    assert asked[1].cached == cached
    assert asked[1].ended > 0


def test_a_tier_of_each_engine_is_its_own():
    own = TierModel("own", 10_000, 0.02, 1e-5, shared=False)
    asked = [turn(1, 2), turn(1, 3, began=10.0)]
    world = World(Next(), [each.session for each in asked], 2, MODEL, own)
    world.run(60)
    assert world.tiers[0] is not world.tiers[1]
    assert asked[1].cached == 0


def test_a_copy_delays_the_first_token_by_its_time():
    again = {}
    for latency in (0.0, 0.5):
        pool = TierModel("pool", 10_000, latency, 0.0, shared=True)
        asked = [turn(1, 2), turn(1, 3, began=10.0)]
        World(Next(), [each.session for each in asked], 2, MODEL, pool).run(60)
        again[latency] = asked[1].ttft
    assert again[0.5] - again[0.0] == pytest.approx(0.5)
