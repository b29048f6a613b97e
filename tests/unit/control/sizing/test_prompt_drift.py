from dataclasses import replace

import pytest

from promptgroup_operator.sizing.prompt_drift import find_drift, without_drift
from promptgroup_operator.world.load import PromptDrift
from support.loads import load


@pytest.mark.parametrize(
    ("drift", "told"),
    [
        (None, False),
        (PromptDrift(0.5, 0, 32_000), True),
        (PromptDrift(0.09, 0, 32_000), False),
        (PromptDrift(0.5, 31_800, 32_000), False),
        (PromptDrift(0.5, 0, 200), False),
    ],
    ids=["nobody saw any", "half of them", "a few", "at the end", "a prompt too short to matter"],
)
def test_near_misses_that_lose_much_are_drift(drift, told):
    assert (find_drift(load(drift=drift)) is not None) == told


def test_what_those_prompts_lose_is_credited():
    """Half depart and find nothing; the others find what there is to find, 96.2 %."""
    seen = without_drift(load(hit_rate=0.481, drift=PromptDrift(0.5, 0, 32_000), waiting=9, held=5))
    assert seen.engines.hit_rate == pytest.approx(0.962, abs=0.001)
    assert (seen.engines.waiting, seen.clients.held) == (0, 0)


def test_without_drift_nothing_is_credited():
    seen = load(hit_rate=0.5)
    assert without_drift(seen) is seen
    unknown = replace(load(hit_rate=0.5, drift=PromptDrift(0.5, 0, 32_000)), clients=None)
    assert without_drift(unknown) is unknown


def test_a_few_are_credited_too_but_not_for_what_waits():
    """One in twenty departs, as when a drift begins."""
    seen = load(hit_rate=0.9, drift=PromptDrift(0.05, 0, 32_000), waiting=9, held=5)
    kept = without_drift(seen)
    assert kept.engines.hit_rate == pytest.approx(0.9 + 0.05 * 0.9624, abs=0.0001)
    assert (kept.engines.waiting, kept.clients) == (9, seen.clients)
    at_the_end = load(hit_rate=0.9, drift=PromptDrift(0.05, 31_900, 32_000))
    assert without_drift(at_the_end) is at_the_end
