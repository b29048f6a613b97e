"""What `promptgroup size --trace` says of a cache's size is what the simulator's engine finds with it."""

import os
from pathlib import Path

import pytest

from promptgroup_cli.forecast.reuse import TraceRequest, curve
from promptgroup_cli.reach.trace import BLOCK, read
from promptgroup_research.policies.random_choice import RandomChoice
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.measure import hit
from promptgroup_research.simulator.trace import sessions, synthetic
from promptgroup_research.simulator.world import World

RATE = 0.3
"""Requests a second: few enough that one engine serves one or two at a time."""
RECORDED = os.environ.get("PROMPTGROUP_TRACE", "")
"""File of Mooncake's conversation trace, which is no part of this repository."""
unrecorded = pytest.mark.skipif(not RECORDED, reason="PROMPTGROUP_TRACE names no recorded trace")


@pytest.mark.parametrize("trace", ["synthetic", pytest.param("recorded", marks=unrecorded)])
def test_predicted_hit_rates_are_simulated_ones_within_two_points(trace):
    rows = synthetic(0) if trace == "synthetic" else read(Path(RECORDED))
    expected = curve(TraceRequest(row.blocks, BLOCK, row.prompt, row.output) for row in rows)
    shares = []
    for kv_tokens in (500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000):
        world = World(RandomChoice(), sessions(rows, RATE, 1), 1, Model(block=BLOCK, kv_tokens=kv_tokens))
        world.run(len(rows) / RATE + 600)
        shares.append(hit(world.turns))
        assert expected.hit_rate(kv_tokens) == pytest.approx(shares[-1], abs=0.02), kv_tokens
    assert shares[-1] - shares[0] > 0.2
