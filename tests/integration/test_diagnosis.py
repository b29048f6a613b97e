"""What replicas cannot mend is named on a real control plane: prompts that drift, caches that are too small."""

import json
from contextlib import ExitStack
from typing import Any

import pytest

from promptgroup_local.kubectl import wait_for
from support import quickoperator
from support.pools import pool_at
from support.sized import AWAY, GROUP, MINUTES, TASK, Sized, sized

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SMALL = ("--num-gpu-blocks-override=512",)
"""8,192 tokens of KV cache, of which 1,000 are the prompt's."""
QUICK = 5000
"""Prompt tokens a second of engines that are never short of time."""
TWO_WINDOWS = 2 * quickoperator.WINDOW.total_seconds()
TIER = {"offload": {"memory": "16Gi"}}
"""131,072 tokens of the stand-in: all sessions."""
READS = 6.0
"""Seconds between two turns of those who read what they get: routers hold a session to be live for five."""
SHORT = 8
"""Turns of their sessions: within a window each of them opens one, so that it shows how many turns they have."""


def test_prompts_that_leave_the_declared_one_are_named_and_add_no_replica(operated: Sized) -> None:
    group, kube = operated, operated.kube
    kube.apply(sized())
    kube.wait_warm(GROUP, "1/1")
    with group.load(1), group.departing(6):
        found = wait_for(lambda: _effective(group, "False", "PromptDrift"), "the drift", group.told, MINUTES)
        active = kube.wait_condition(GROUP, "ScalingActive", "True", "PromptDrift")
        group.steady(1, AWAY)
    assert (
        f"differ from the declared prompt from byte 0 of {len(TASK.system.encode())} on (about token 0 of"
        in found["message"]
    )
    assert "more replicas do not help" in active["message"]
    assert TASK.system[:20] not in json.dumps(group.found()["status"])


def test_caches_that_are_too_small_for_the_sessions_are_named_and_replicas_mend_it(operated: Sized) -> None:
    group, kube = operated, operated.kube
    kube.apply(sized(args=SMALL, rate=QUICK, most=1))
    kube.wait_warm(GROUP, "1/1")
    with group.load(24, pause=READS, turns=SHORT):
        found = wait_for(lambda: _effective(group, "False", "Thrashing"), "the thrash", group.told, MINUTES)
        kube.wait_condition(GROUP, "ScalingLimited", "True", "TooManyReplicas")
        assert group.wanted() == 1
        kube.apply(sized(args=SMALL, rate=QUICK))
        wait_for(lambda: group.wanted() > 1 or None, "more replicas", group.told, MINUTES)
        wait_for(lambda: _effective(group, "True", "Healthy"), "the hits to recover", group.told, MINUTES)
    assert "the KV cache is too small for the live sessions" in found["message"]


def test_gpus_that_are_too_small_are_told_from_caches_that_are_where_a_tier_carries_the_sessions(
    quickly_operated: Sized,
) -> None:
    group, kube = quickly_operated, quickly_operated.kube
    fixed = sized(args=SMALL, rate=QUICK, cache=TIER)
    del fixed["spec"]["sizing"]
    kube.apply(fixed)
    kube.wait_warm(GROUP, "1/1")
    with group.load(24, pause=READS, turns=SHORT):
        found = wait_for(lambda: _effective(group, "True", "CarriedByTier"), "the tier to carry", group.told, MINUTES)
        used = kube.wait_condition(GROUP, "CacheTierUseful", "True", "TierInUse")
    assert "the KV tier carries them: no replica is missing" in found["message"]
    assert "KV tiers brought" in used["message"]


def test_a_fixed_number_that_somebody_else_changes_is_explained_as_well(quickly_operated: Sized) -> None:
    """HorizontalPodAutoscaler writes `spec.replicas` through the scale subresource; so does `kubectl scale`."""
    group, kube = quickly_operated, quickly_operated.kube
    fixed = sized(args=SMALL, rate=QUICK)
    del fixed["spec"]["sizing"]
    kube.apply(fixed)
    kube.wait_warm(GROUP, "1/1")
    with group.load(24, pause=READS, turns=SHORT):
        found = wait_for(lambda: _effective(group, "False", "Thrashing"), "the thrash", group.told, MINUTES)
        kube.wait_condition(GROUP, "CacheTierUseful", "True", "TierWouldHelp")
        kube.scale("promptgroup", GROUP, 4)
        kube.wait_warm(GROUP, "4/4")
        wait_for(lambda: _effective(group, "True", "Healthy"), "the hits to recover", group.told, MINUTES)
        assert kube.condition(GROUP, "ScalingActive")["reason"] == "FixedReplicas"
    assert "the KV cache is too small for the live sessions" in found["message"]


def test_a_pool_that_goes_away_under_load_is_told_within_two_windows_and_no_request_fails(
    quickly_operated: Sized,
) -> None:
    group, kube = quickly_operated, quickly_operated.kube
    with ExitStack() as pool:
        address = f"127.0.0.1:{pool.enter_context(pool_at(0))}"
        wanted = sized(rate=QUICK)
        del wanted["spec"]["sizing"]
        wanted["spec"] |= {
            "replicas": 2,
            "cache": {"pool": {"type": "LMCache", "address": address, "monitor": address}},
        }
        kube.apply(wanted)
        kube.wait_warm(GROUP, "2/2")
        kube.wait_condition(GROUP, "CachePoolReady", "True", "PoolReady")
        with group.load(4) as load:
            wait_for(lambda: _effective(group, "True", "Healthy"), "the hits to be seen", group.told, MINUTES)
            with load.watched() as seen:
                pool.close()
                found = wait_for(lambda: _away(group), "the pool to be missed", group.told, TWO_WINDOWS)
                group.steady(2, TWO_WINDOWS)
                assert _effective(group, "True", "Healthy"), group.told()  # GPUs hold these sessions
                assert _away(group)
    assert address in found["message"]
    assert "engines continue to serve" in found["message"]
    assert seen.requests > 0
    assert (seen.failed, seen.cut) == ([], [])
    assert seen.stayed()


def _away(group: Sized) -> dict[str, Any] | None:
    found = group.kube.condition(GROUP, "CachePoolReady")
    return found if (found.get("status"), found.get("reason")) == ("False", "PoolUnreachable") else None


def _effective(group: Sized, status: str, reason: str) -> dict[str, Any] | None:
    found = group.kube.condition(GROUP, "CacheEffective")
    return found if (found.get("status"), found.get("reason")) == (status, reason) else None
