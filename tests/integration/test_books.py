"""The router's series say what a load generator has in its own books: in the mean, for quantiles are of buckets."""

import asyncio
from pathlib import Path

import pytest

from promptgroup_local.engine.scheduler import Cost
from promptgroup_local.load.client import Outcome, Target, drive
from promptgroup_local.load.workload import Task, conversations, sessions
from promptgroup_router.base.metrics import LatencyHistogram
from support.served import served
from support.tables import SYSTEM

pytestmark = pytest.mark.integration

TOLERANCE = 0.02
SLOW = Cost(prefill_rate=150.0, step=0.02)
"""Half a second to a first token: what a client on a busy machine adds to it is less than a hundredth."""


def test_times_and_tokens_are_those_of_the_load_generators_books(tmp_path: Path) -> None:
    with served(tmp_path, engines=2, time_scale=1.0, cost=SLOW) as found:
        drawn = conversations(sessions([Task("support", SYSTEM)], 8, 11, turns=3))
        outcomes = asyncio.run(drive(drawn, Target([found.url], "llama", usage=True), concurrency=2))
        metrics = found.router.state.metrics
    assert not [each.error for each in outcomes if each.failed]
    streams = [each for each in outcomes if each.streamed]
    count, total = summed(metrics.ttft)
    assert count == len(streams) >= 24
    assert total == pytest.approx(sum(each.ttft for each in streams), rel=TOLERANCE)
    paces = [(each.e2e - each.ttft) / (tokens - 1) for each in streams if (tokens := _tokens(each)) > 1]
    count, total = summed(metrics.tpot)
    assert count == len(paces)
    assert total == pytest.approx(sum(paces), rel=TOLERANCE)
    assert sum(metrics.slot_prompt_tokens.values.values()) == sum(metrics.prompt_tokens.values.values())
    assert sum(metrics.slot_cached_tokens.values.values()) == sum(metrics.cached_tokens.values.values()) > 0
    assert sum(metrics.revision_answer_tokens.values.values()) == sum(map(_tokens, outcomes))
    assert metrics.missed_tokens.values == {}


def _tokens(outcome: Outcome) -> int:
    return len(outcome.exchange.answer.split())


def summed(histogram: LatencyHistogram) -> tuple[int, float]:
    """Return the observations of all labels, and their sum."""
    return sum(sum(each.counts) for each in histogram.values.values()), sum(
        each.sum for each in histogram.values.values()
    )
