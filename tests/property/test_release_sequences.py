"""Releases in a row under sessions that do not end: each one ends, what serves is whole, and weights only rise."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptgroup_operator.plan import prompt_route
from promptgroup_operator.world.samples import SlotUse
from support.clustermodel import KEY, Model, target_of

DEADLINE = timedelta(minutes=2)
TICK = timedelta(seconds=5)
BOUND = 2 * DEADLINE + timedelta(minutes=6)
"""A release waits one deadline for the room of superseded revisions and one for that of the old one; the rest is the
steps' pauses and replicas that come one by one."""
STEPS = [{"weight": 20, "pause": "10s"}, {"weight": 60, "pause": "10s"}]

SEQUENCES = st.fixed_dictionaries(
    {
        "replicas": st.integers(1, 4),
        "surge": st.sampled_from([0, 1, 1, 2]),
        "steps": st.sampled_from([[], STEPS]),
        "named": st.sampled_from([0.0, 0.6, 0.7, 1.0]),
        "stays": st.sampled_from([0.0, 0.1, 0.4]),
        "brought": st.sampled_from([0.0, 0.5, 0.9]),
        "texts": st.permutations("bcde"),
        "seed": st.integers(0, 99),
    }
)


def tick(model, stays, named, brought, draw):
    """Time passes; every revision has sessions that ask again and again, and the share of a moment is noise.

    Args:
        model: the cluster.
        stays: share of requests that stay with the old revision.
        named: share of requests by name.
        brought: share of requests that the new one has whatever its weight is.
        draw: of the noise.
    """
    model.busy = {each.fingerprint: model.now for each in model.world().revisions}
    model.own = (model.own[0], dict(model.busy))
    weight = prompt_route.standing(model.live.get(("PromptRoute", KEY.name))).get(target_of(model), (0, {}))[0] / 100
    model.mix = (min(1 - stays, max(brought, weight)), min(1.0, max(0.0, named + draw.uniform(-0.1, 0.1))))
    model.use = {name: dict.fromkeys(range(5), SlotUse(3, 100, 1)) for name in model.busy}
    model.surroundings()
    model.operate()
    model.pass_time(TICK)


@pytest.mark.slow
@given(SEQUENCES)
@example(
    {"replicas": 3, "surge": 1, "steps": [], "named": 0.7, "stays": 0.1, "brought": 0.0, "texts": "bcde", "seed": 0}
)
@example(
    {"replicas": 3, "surge": 0, "steps": STEPS, "named": 1.0, "stays": 0.4, "brought": 0.9, "texts": "bcde", "seed": 1}
)
def test_releases_in_a_row_end_within_a_bound_and_leave_what_serves_whole(case):
    draw = random.Random(case["seed"])
    rollout = {"retireAfter": "1m", "retireDeadline": "2m", "steps": case["steps"], "maxSurge": case["surge"]}
    model = Model(
        datetime(2026, 11, 3, 12, tzinfo=UTC),
        {
            "model": "llama",
            "prompt": {"system": "text a"},
            "engine": {"image": "engine:1"},
            "replicas": case["replicas"],
            "rollout": rollout,
        },
    )
    model.settle(timedelta(seconds=10))
    model.own = (model.now, {})
    for text in case["texts"]:
        model.edit(prompt={"system": f"text {text}"})
        began, weights, steps = model.now, [], []
        while model.now - began < BOUND:
            tick(model, case["stays"], case["named"], case["brought"], draw)
            route = prompt_route.standing(model.live["PromptRoute", KEY.name])
            there = {each["fingerprint"]: each for each in model.status["revisions"]}
            status = there.get(target_of(model), {"phase": "", "ready": 0})
            weights.append(route.get(target_of(model), (0, {}))[0])
            steps.append(status["phase"])
            ready = {each["type"]: each["status"] for each in model.status["conditions"]}["Ready"]
            if status["phase"] == "Serving" and status["ready"] == case["replicas"] and ready == "True":
                break
        else:
            told = {each["type"]: each["message"] for each in model.status["conditions"]}["Progressing"]
            raise AssertionError(
                f"the release of {text} has not ended after {BOUND}: {weights[-9:]} {steps[-1]} {told}"
            )
        assert all(before <= after for before, after in pairwise(weights)), weights
        alive = {each.fingerprint: each.alive for each in model.world().revisions}
        assert sum(alive.values()) <= case["replicas"] + case["surge"] + (case["surge"] == 0)
