from dataclasses import replace

import pytest

from promptgroup_operator.sizing.diagnosis import HEALTHY, STANDING, diagnose
from promptgroup_operator.world.load import PromptDrift, TierReach
from promptgroup_operator.world.sizing_history import Cause
from support.loads import load

TOP = PromptDrift(0.9, 0, 32_000)
FULL = {"sessions": 1000, "history": 3500}

# 96.2 % may be found: hits are low below 87.5 %, and again well from 89.4 % on
ROWS = {
    "nothing is known": (None, None, "", None, "FailedGetMetrics"),
    "nothing newer is known": (load(stale="gone"), None, "", None, "FailedGetMetrics"),
    "nobody asks": (load(0), None, "", None, "NoTraffic"),
    "nobody asks any more": (load(0), None, "Thrashing", False, "Thrashing"),
    "nobody asks, and prompts drift": (load(0, drift=TOP), None, HEALTHY, False, "PromptDrift"),
    "nobody asks after a wave": (load(0), None, "ScalingWave", None, "NoTraffic"),
    "no router was asked": (replace(load(), clients=None), None, "", None, "RoutersUnknown"),
    "no router was asked, and engines preempt": (
        replace(load(hit_rate=0.4, preemptions=1.0), clients=None), None, "", False, "Thrashing",
    ),
    "as much as may be": (load(), None, "", True, HEALTHY),
    "low, and full of sessions": (load(hit_rate=0.85, **FULL), None, "", False, "Thrashing"),
    "low, and full of what runs": (load(hit_rate=0.85, usage=0.95), None, "", False, "Thrashing"),
    "low, and prompts depart": (load(hit_rate=0.1, drift=TOP), None, "", False, "PromptDrift"),
    "drift before all else": (load(hit_rate=0.1, drift=TOP, **FULL), Cause.SCALING, "", False, "PromptDrift"),
    "prompts depart and nothing is lost": (load(drift=TOP), None, "", True, HEALTHY),
    "low after a change of its own": (load(hit_rate=0.7), Cause.SCALING, "", None, "ScalingWave"),
    "full of what runs after a change of its own": (
        load(hit_rate=0.7, usage=0.95), Cause.SCALING, "", None, "ScalingWave",
    ),
    "sessions that do not fit, whatever was changed": (
        load(hit_rate=0.7, **FULL), Cause.SCALING, "", False, "Thrashing",
    ),
    "low in a release": (load(hit_rate=0.7), Cause.RELEASE, "", None, "Release"),
    "well after a change of its own": (load(), Cause.SCALING, "", True, HEALTHY),
    "little is shared": (load(hit_rate=0.05, declared_tokens=500, opening=1.0), None, "", False, "LowSharing"),
    "no session begins, and hits would do for the declared prefix": (
        load(hit_rate=0.81, opening=0.0, **FULL), None, "Thrashing", False, "Thrashing",
    ),
    "no session begins, and prompts depart": (
        load(hit_rate=0.1, opening=0.0, drift=TOP), None, HEALTHY, False, "PromptDrift",
    ),
    "no session began since it is looked at": (load(hit_rate=0.81, opening=0.0), None, "", True, HEALTHY),
    "low for no cause that is seen": (load(hit_rate=0.7), None, "", None, "Unexplained"),
    "little is shared, while replicas join": (
        load(hit_rate=0.02, declared_tokens=500, opening=1.0), Cause.SCALING, "", False, "LowSharing",
    ),
    "little is shared as long as all sessions of a release begin": (
        load(hit_rate=0.02, declared_tokens=500, opening=1.0), Cause.RELEASE, "", None, "Release",
    ),
    "little is shared and all of it found as long as all sessions of a release begin": (
        load(hit_rate=0.12, declared_tokens=500, opening=1.0), Cause.RELEASE, "", None, "Release",
    ),
    "nothing is found at all": (load(hit_rate=0), None, "", False, "PrefixCachingDisabled"),
    "nothing is looked up, and requests end": (
        replace(load(0), engines=replace(load().engines, queries=0, hits=0)), None, "", False, "PrefixCachingDisabled",
    ),
    "nothing is found of few requests": (load(0.4, hit_rate=0), None, "", None, "Unexplained"),
    "nothing is found of what does not repeat": (
        load(hit_rate=0, declared_tokens=500, opening=1.0), None, "", False, "LowSharing",
    ),
    "nothing is found of prompts that depart": (load(hit_rate=0, drift=TOP), None, "", False, "PromptDrift"),
    "between the lines it was well": (load(hit_rate=0.885), None, HEALTHY, True, HEALTHY),
    "between the lines it was low": (load(hit_rate=0.885), None, "Unexplained", None, "Unexplained"),
    "above both it recovered": (load(hit_rate=0.9), None, "Unexplained", True, HEALTHY),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS)
def test_rows(case):
    seen, wave, before, status, reason = ROWS[case]
    found = diagnose(seen, wave, before)
    assert (found.status, found.reason) == (status, reason), found.message
    assert found.message
    if seen is not None and seen.stale:
        assert found.message == seen.stale


def test_drift_is_told_with_its_place_and_without_text():
    found = diagnose(load(hit_rate=0.1, drift=PromptDrift(0.9, 120, 32_000)), None, "")
    assert (
        "90% of the requests differ from the declared prompt from byte 120 of 32000 on (about token 30 of 8000)"
        in found.message
    )


def test_what_kv_tiers_bring_is_told():
    seen = load()
    assert "KV tier" not in diagnose(seen, None, "").message
    tiered = replace(seen, engines=replace(seen.engines, tiered=0.3 * seen.engines.queries))
    assert "found in cache (30% brought from a KV tier), of 96%" in diagnose(tiered, None, "").message
    alone = diagnose(replace(tiered, clients=None), None, "")
    assert "(30% brought from a KV tier)" in alone.message


def tiered(share, reach=TierReach.SHARED, **fields):
    found = load(**fields)
    return replace(found, tiers=reach, engines=replace(found.engines, tiered=share * found.engines.queries))


def test_gpus_that_are_too_small_are_well_where_a_tier_carries_the_sessions():
    carried = diagnose(tiered(0.3, **FULL), None, "")
    assert (carried.status, carried.reason) == (True, "CarriedByTier")
    assert "no replica is missing" in carried.message
    assert diagnose(tiered(0.02, **FULL), None, "").reason == HEALTHY
    # the line at which it began is not the one at which it ends: 94 less 5 lies between them
    assert diagnose(tiered(0.05, **FULL), None, "").reason == HEALTHY
    assert diagnose(tiered(0.05, **FULL), None, "CarriedByTier").reason == "CarriedByTier"
    assert diagnose(tiered(0.3, requests=0), None, "CarriedByTier").status is True


@pytest.mark.parametrize(
    ("share", "reach", "said"),
    [
        (0.0, TierReach.NONE, "more replicas or a KV pool would help"),
        (0.3, TierReach.SHARED, "too, has lost what the live sessions need: a larger tier would help"),
        (
            0.3,
            TierReach.REPLICA,
            "too, has lost what the live sessions need: a larger tier or more replicas would help",
        ),
        (0.0, TierReach.SHARED, "supplies none of what was evicted: check that the tier is reachable"),
        (0.0, TierReach.UNSEEN, "more replicas or a larger KV tier would help"),
    ],
)
def test_what_is_lost_says_what_is_too_small(share, reach, said):
    found = diagnose(tiered(share, reach, hit_rate=0.7, **FULL), None, "")
    assert found.reason == "Thrashing"
    assert found.message.endswith(said) or said in found.message


def test_what_was_found_repeats_also_where_the_sessions_are_too_few_to_tell():
    found = diagnose(load(hit_rate=0.97, declared_tokens=500, opening=1.0), None, "")
    assert (found.status, found.reason) == (True, HEALTHY)
    assert found.message == "97% of prompt tokens were found in cache, of 97% that repeat"


def test_what_stands_while_nobody_asks_has_the_status_that_it_had():
    told = {reason: status for _, _, before, status, reason in ROWS.values() if not before}
    assert {reason: told[reason] for reason in STANDING if reason in told} == {
        reason: status for reason, status in STANDING.items() if reason in told
    }
    assert STANDING.keys() - told.keys() == {"CarriedByTier"}
    assert STANDING["CarriedByTier"] is True


def a_guest(hit_rate: float, evicted: float):
    """The load of a guest whose replicas had evicted so many tokens a second of what its requests brought."""
    plain = load(hit_rate=hit_rate)
    clients = replace(plain.clients, evicted=(evicted, 0.0, 0.0, 0.0, 0.0))
    return replace(plain, clients=clients, is_guest=True)


def test_a_guest_thrashes_if_what_it_misses_was_evicted_and_is_told_whose_prompts_fill_the_cache():
    missing = a_guest(0.6, 0.0).engines.queries * 0.3
    thrashing = diagnose(a_guest(0.6, missing), None, "", "the prompts of 50 groups take 9 of 10 tokens")
    assert (thrashing.status, thrashing.reason) == (False, "Thrashing")
    assert thrashing.message.endswith("On the fullest replica the prompts of 50 groups take 9 of 10 tokens")
    assert diagnose(a_guest(0.6, missing / 10), None, "").reason == "Unexplained"
    assert diagnose(a_guest(0.96, 0.0), None, "").reason == HEALTHY
