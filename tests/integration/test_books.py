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
RUNS = 3
"""Loads of which one must be within the tolerance: what else a machine does comes on top of what clients see."""
SLOW = Cost(prefill_rate=150.0, step=0.02)
"""Half a second to a first token: what a client on a busy machine adds to it is less than a hundredth."""


def test_times_and_tokens_are_those_of_the_load_generators_books(tmp_path: Path) -> None:
    assert any(books_differ(tmp_path / str(number)) <= TOLERANCE for number in range(RUNS))


def books_differ(folder: Path) -> float:
    """Run a load, and return the share by which times differ. Whatever is counted is equal."""
    folder.mkdir()
    with served(folder, engines=2, time_scale=1.0, cost=SLOW) as found:
        drawn = conversations(sessions([Task("support", SYSTEM)], 8, 11, turns=3))
        outcomes = asyncio.run(drive(drawn, Target([found.url], "llama", usage=True), concurrency=2))
        metrics = found.router.state.metrics
    assert not [each.error for each in outcomes if each.failed]
    streams = [each for each in outcomes if each.streamed]
    count, first_tokens = summed(metrics.ttft)
    assert count == len(streams) >= 24
    paces = [(each.e2e - each.ttft) / (tokens - 1) for each in streams if (tokens := _tokens(each)) > 1]
    count, later_tokens = summed(metrics.tpot)
    assert count == len(paces)
    assert sum(metrics.slot_prompt_tokens.values.values()) == sum(metrics.prompt_tokens.values.values())
    assert sum(metrics.slot_cached_tokens.values.values()) == sum(metrics.cached_tokens.values.values()) > 0
    assert sum(metrics.revision_answer_tokens.values.values()) == sum(map(_tokens, outcomes))
    assert metrics.missed_tokens.values == {}
    books = (first_tokens, sum(each.ttft for each in streams)), (later_tokens, sum(paces))
    return max(abs(told / seen - 1) for told, seen in books)


def _tokens(outcome: Outcome) -> int:
    return len(outcome.exchange.answer.split())


def summed(histogram: LatencyHistogram) -> tuple[int, float]:
    """Return the observations of all labels, and their sum."""
    return sum(sum(each.counts) for each in histogram.values.values()), sum(
        each.sum for each in histogram.values.values()
    )
