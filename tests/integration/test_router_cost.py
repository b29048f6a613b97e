"""Most that a request and an event may cost, as multiples of HAProxy's cost in the same minutes on the same core."""

import argparse
import sys

import pytest

from bench.router import __main__ as bench
from bench.router import contestants, report

REQUEST, COMPILED_REQUEST, EVENT = 20.0, 10.0, 4.0
"""About twice what was measured on a busy machine (9 to 11 for a request, 2 for an event): other work there costs
HAProxy relatively less or more. They catch what doubles a cost, such as work that grows with sessions."""


@pytest.mark.slow
def test_a_request_and_an_event_cost_no_more_than_so_many_of_haproxys(tmp_path) -> None:
    there, _ = contestants.found([sys.executable, "-m", "promptgroup_router"])
    both = [each for each in there if each.name in ("haproxy", "promptgroup")]
    if len(both) < 2:
        pytest.skip("haproxy is not installed")
    given = argparse.Namespace(rounds=3, seconds=1.0, sizes=(8,), latency=False, clients=0, core=0)
    with bench._running(both, given.core, tmp_path) as (routers, direct):
        bench.measure(routers, direct, given, tmp_path)
        base, ours = (each.figures for each in routers)
    shown = report.tables([base, ours], ["8 KB", "event"])
    assert not ours.problems, shown
    assert not base.problems, shown
    limit = COMPILED_REQUEST if ours.version.endswith("compiled") else REQUEST
    assert report.ratios(ours, base, "8 KB") <= limit, shown
    assert report.ratios(ours, base, "event") <= EVENT, shown
