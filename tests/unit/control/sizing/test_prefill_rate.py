from dataclasses import replace

import pytest

from promptgroup_operator.sizing.prefill_rate import at_fastest, from_requests, prefill_rate
from promptgroup_operator.world.engine_facts import MIN_UNCACHED
from support.loads import load

SHORT = {"prefill_rate": 0, "usage": 0.0, "replicas": 2}
"""Ten requests a second of whose 10,000 tokens 50 are computed, in an engine of 0.01 s overhead."""


def short(requests=10, **fields):
    return load(requests, hit_rate=0.995, **(SHORT | {"computed": 500.0, "prefill_busy": 0.1} | fields))


def test_the_range_holds_the_rate_of_the_time_as_computing_and_as_overhead():
    found = from_requests(short())
    assert found.slow == pytest.approx(500 / 0.1 + 500 / 2)
    assert found.fast == pytest.approx(found.slow * MIN_UNCACHED / 50)
    assert prefill_rate(short()) == found.slow
    assert prefill_rate(at_fastest(short())) == found.fast


def test_requests_as_long_as_a_proof_give_one_rate():
    found = from_requests(short(computed=10.0 * MIN_UNCACHED))
    assert found.slow == found.fast


def test_what_an_engine_does_not_count_is_taken_from_lookups_and_first_tokens():
    told = short(computed=None, prefill_busy=None, p95=0.2, queue_busy=0.0)
    assert from_requests(told).slow == pytest.approx(500 / (10 * 0.1) + 500 / 2)  # median 0.1 s
    waited = short(computed=None, prefill_busy=None, p95=0.2, queue_busy=0.5)
    assert from_requests(waited).slow > from_requests(told).slow


@pytest.mark.parametrize(
    "seen",
    [
        short(requests=0.1),
        short(computed=0.0),
        short(replicas=0),
        short(prefill_rate=9000.0),
        short(prefill_busy=None, p95=None),
        replace(short(), engines=None),
    ],
    ids=["few requests", "all found", "no replicas", "proven", "no times at all", "no engines"],
)
def test_there_is_no_range_where_requests_tell_nothing_or_a_proof_does(seen):
    assert from_requests(seen) is None
    assert at_fastest(seen) is seen
