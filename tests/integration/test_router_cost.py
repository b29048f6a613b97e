"""Most that a request and an event may cost, as multiples of HAProxy's cost in the same minutes on the same core."""

import argparse
import sys

import pytest

from bench.router import __main__ as bench
from bench.router import contestants, report

INTERPRETED = {"8 KB": 24.0, "100 KB": 32.0, "event": 4.0}
COMPILED = {"8 KB": 5.0, "100 KB": 9.0, "event": 4.0}
"""Twice what was measured. Interpreted that depends on the processor: 7 and 7 on one, 12 and 16 on another with the
same Python. Compiled it was 2.6 and 4.5; an event takes 1.5 to 2.4, since its cost has more of the kernel's part. Other
work there costs HAProxy relatively less or more. They catch what doubles a cost on the slower processor, such as work
that grows with sessions.
"""


@pytest.mark.slow
def test_a_request_and_an_event_cost_no_more_than_so_many_of_haproxys(tmp_path) -> None:
    there, _ = contestants.found([sys.executable, "-m", "promptgroup_router"])
    both = [each for each in there if each.name in ("haproxy", "promptgroup")]
    if len(both) < 2:
        pytest.skip("haproxy is not installed")
    given = argparse.Namespace(rounds=3, seconds=1.0, sizes=(8, 100), latency=False, clients=0, core=0)
    with bench._running(both, given.core, tmp_path) as (routers, direct):
        bench.measure(routers, direct, given, tmp_path)
        base, ours = (each.figures for each in routers)
    shown = report.tables([base, ours], list(COMPILED))
    assert not ours.problems, shown
    assert not base.problems, shown
    limits = COMPILED if ours.version.endswith("compiled") else INTERPRETED
    for unit, limit in limits.items():
        assert report.ratios(ours, base, unit) <= limit, shown
