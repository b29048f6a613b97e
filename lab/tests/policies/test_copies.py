"""What a router makes of the knowledge what copies take."""

from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.tier import TierModel
from promptgroup_research.simulator.workloads import agents
from promptgroup_research.simulator.world import World

QUICK = TierModel("pool", 10_000_000, latency=0.005, token=1e-7, shared=True)
SLOW = TierModel("pool", 10_000_000, latency=5.0, token=1e-3, shared=True)


def run(router, tier):
    world = World(router, agents(20.0, 30.0, seed=1), 4, Model(), tier)
    world.run(60.0)
    return [(turn.replica, turn.copied, round(turn.ended, 6)) for turn in world.turns]


def test_without_a_pool_nothing_is_told():
    assert run(Ours(), None) == run(Ours(measured_copy=0), None)


def test_a_quick_pool_sends_more_sessions_away_from_home():
    told, untold = run(Ours(measured_copy=8000), QUICK), run(Ours(measured_copy=0), QUICK)
    assert sum(copied > 0 for _, copied, _ in told) > 2 * sum(copied > 0 for _, copied, _ in untold)


def test_a_copy_that_is_slower_than_computing_sends_nobody_away():
    told, untold = (run(router, SLOW) for router in (Ours(measured_copy=8000), Ours(measured_copy=0)))
    shares = [sum(copied > 0 for _, copied, _ in turns) / len(turns) for turns in (told, untold)]
    assert shares[0] < shares[1] + 0.05, shares
