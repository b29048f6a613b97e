"""The constants of expected TTFT are where their values do best: quick runs with each far off its value are worse."""

import pytest

from promptgroup_research.experiments.runs import Job, run
from promptgroup_router.policy import expected_ttft

SEEDS = range(1, 13)
"""The mean of a few seeds is mostly chance: one long prefill in the wrong place is a tenth of it."""


def mean() -> float:
    """Return the mean TTFT of the agents' workload at three quarters of its capacity."""
    return sum(run(Job("agents", "promptgroup", 0.75, seed, quick=True)).mean for seed in SEEDS) / len(SEEDS)


@pytest.fixture(scope="module")
def as_shipped() -> float:
    return mean()


@pytest.mark.parametrize(("constant", "value"), [("PRICE", 0.0), ("PRICE", 8.0), ("MARGIN", 0.2)])
def test_a_constant_far_off_its_value_makes_first_tokens_later(constant, value, as_shipped, monkeypatch):
    monkeypatch.setattr(expected_ttft, constant, value)
    monkeypatch.setattr(expected_ttft, "_WEIGHT", 1 + expected_ttft.PRICE)
    assert mean() > 1.02 * as_shipped
