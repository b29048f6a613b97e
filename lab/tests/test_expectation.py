"""What is expected of replicas before there is anything to observe, beside what the simulator's engines do.

The routing policy places the requests; one group with a prompt of 3,000 tokens, sessions of five turns (geometric) with
pauses of 20 s. docs/how-to/size.md has the figures.
"""

import statistics

import pytest

from promptgroup_cli.forecast.forecast import ReplicaForecast, Workload, expect
from promptgroup_research.experiments.catalogue import POLICIES
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.measure import figures, mean
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import World

PROMPT, TURNS, PAUSE = 3000, 5.0, 20.0
WARM_UP, LENGTH, DRAIN = 300.0, 480.0, 30.0
SEEDS = 11, 12, 13


def play(rate, replicas, kv_tokens, seed):
    """What was measured, and the same load as an operator of it would describe it."""
    model = Model(kv_tokens=kv_tokens)
    sessions = chat(rate, LENGTH, seed, groups=1, shared=1.0, prompt=(PROMPT, PROMPT), mean_turns=TURNS)
    world = World(POLICIES["promptgroup"](seed), sessions, replicas, model)
    world.run(LENGTH + DRAIN)
    turns = [turn for turn in world.turns if WARM_UP <= turn.arrived < LENGTH]
    count, ended = len(turns), [turn for turn in turns if turn.ended >= 0]
    served = count / (LENGTH - WARM_UP)
    lasting = sum(turn.ended - turn.arrived for turn in ended) / len(ended)
    workload = Workload(
        rate=served,
        sessions=served * ((1 - 1 / TURNS) * PAUSE + lasting),
        prefix=PROMPT,
        history=sum(turn.prompt - PROMPT - turn.sizes[-1] for turn in turns) / count,
        turn=sum(turn.sizes[-1] for turn in turns) / count,
        answer=sum(turn.output for turn in turns) / count,
    )
    replica = ReplicaForecast(kv_tokens, model.prefill_rate, model.overhead, 1 / model.context)
    return figures(turns, replicas, model, LENGTH + DRAIN), expect(workload, replica, replicas)


@pytest.mark.parametrize(
    ("rate", "replicas", "kv_tokens", "points"),
    [(20, 4, 400_000, 0.01), (30, 4, 400_000, 0.01), (20, 4, 150_000, 0.03), (20, 4, 100_000, 0.06)],
    ids=["all fits", "busy", "ended sessions push out living ones", "living sessions do not fit"],
)
def test_the_expectation_is_near_what_simulated_engines_do(rate, replicas, kv_tokens, points):
    all_measured, all_expected = zip(*(play(rate, replicas, kv_tokens, seed) for seed in SEEDS), strict=True)
    measured = mean(all_measured)
    hit_rate, ttft, median = (
        statistics.fmean(getattr(expected, name) for expected in all_expected)
        for name in ("hit_rate", "ttft", "median")
    )
    assert hit_rate == pytest.approx(measured.hit, abs=points)
    assert ttft == pytest.approx(measured.p95, rel=0.3)
    # where some histories are found and some are not, half of the requests are quicker than an exponential's half
    assert 0.9 < median / measured.p50 < 2
