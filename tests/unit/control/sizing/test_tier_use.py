from dataclasses import replace

import pytest

from promptgroup_operator.sizing.tier_use import tier_use
from promptgroup_operator.world.load import TierReach
from support.loads import load

TOKENS = 160_000
"""Prompt tokens a second, of which 6 % are computed: 9,600."""


def seen(tiered=0.0, evicted=(), tiers=TierReach.NONE, **fields):
    found = load(tiered=tiered * TOKENS, evicted=tuple(evicted), **fields)
    return replace(found, tiers=tiers)


NEAR, FAR = (3000.0, 2000.0, 0.0, 0.0, 100.0), (0.0, 0.0, 0.0, 300.0, 9000.0)
ROWS = {
    "nothing is known": (None, "", None),
    "nothing newer is known": (load(stale="gone"), "", None),
    "nobody asks": (seen(requests=0), "", None),
    "nobody asks any more": (seen(requests=0), "TierInUse", (True, "TierInUse")),
    "a tier that is in use": (seen(0.3, tiers=TierReach.SHARED), "", (True, "TierInUse")),
    "a tier of each replica": (seen(0.3, tiers=TierReach.REPLICA), "", (True, "TierInUse")),
    "a tier that does nothing": (seen(0.005, tiers=TierReach.SHARED), "", (False, "TierIdle")),
    "a tier of an engine that does not say": (seen(tiers=TierReach.UNSEEN), "", (None, "TierUnseen")),
    "evicted, and used again soon": (seen(evicted=NEAR), "", (True, "TierWouldHelp")),
    "evicted long ago": (seen(evicted=FAR), "", (False, "TierNotNeeded")),
    "nothing was evicted": (seen(evicted=(0.0,) * 5), "", (False, "TierNotNeeded")),
    "a little less than is told of": (
        seen(evicted=(1800.0, 0, 0, 0, 0), hit_rate=0.92), "", (False, "TierNotNeeded"),
    ),
    "a little less than it was": (
        seen(evicted=(3800.0, 0, 0, 0, 0), hit_rate=0.8), "TierWouldHelp", (True, "TierWouldHelp"),
    ),
    "as much, and it was not told": (seen(evicted=(3800.0, 0, 0, 0, 0), hit_rate=0.8), "", (False, "TierNotNeeded")),
    "much of next to nothing": (seen(evicted=(900.0, 0, 0, 0, 0), hit_rate=0.99), "", (False, "TierNotNeeded")),
    "no router is read": (replace(load(), clients=None), "", (None, "RoutersUnknown")),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS)
def test_rows(case):
    found, before, expected = ROWS[case]
    verdict = tier_use(found, before)
    assert (verdict and (verdict.status, verdict.reason)) == expected, verdict


def test_the_size_that_is_named_finds_most_of_what_any_would():
    said = tier_use(seen(evicted=(0.0, 1000.0, 4000.0, 500.0, 500.0)), "").message
    assert said == (
        "62% of the prompt tokens that were computed had been evicted; a KV tier of 8 times the GPUs' cache, "
        "3,200,000 tokens for each replica, would have found 83% of them"
    )
    assert ", 3," not in tier_use(seen(evicted=(0.0, 1000.0, 4000.0, 500.0, 500.0), kv_tokens=0), "").message


def test_what_was_evicted_too_long_ago_is_told():
    assert tier_use(seen(evicted=FAR), "").message.endswith("had been evicted, 97% of them too long ago for a tier")


def test_what_tiers_lose_is_told():
    lost = seen(0.3, NEAR, TierReach.SHARED)
    assert (
        tier_use(lost, "").message
        == "KV tiers brought 30% of the prompt tokens; 3% of the tokens had been evicted and were in no tier"
    )
    idle = seen(0.0, NEAR, TierReach.REPLICA)
    assert "check that they are reachable" in tier_use(idle, "").message
    assert "holds what repeats" in tier_use(seen(tiers=TierReach.REPLICA), "").message
