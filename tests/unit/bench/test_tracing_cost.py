"""The bench of what spans cost runs, and spans cost nothing when they are off."""

import argparse
import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.python_part import Bench
from promptgroup_router.features.tracing.sampling import Sampling
from promptgroup_router.features.tracing.tracer import Tracer

BENCH = Path(__file__).parents[2] / "bench/tracing_cost.py"
MOST = 1.5
"""Share of a request's CPU without spans, in rounds by turns of one run: it is 1.00 where nothing is sampled and 1.02
at 1 %, on any machine."""
REQUESTS = 20


@pytest.mark.heavy
def test_the_bench_compares_requests_with_and_without_spans() -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, str(BENCH), "--rounds", "8"], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
    shares = {row[1]: float(row[3]) for row in rows[2:]}
    assert list(shares) == ["off", "off, once more", "on, nothing sampled", "on, 1 %", "on, all"]
    assert max(shares["on, nothing sampled"], shares["on, 1 %"]) < MOST


def test_no_line_of_tracing_runs_for_a_request_while_spans_are_off() -> None:
    full = Tracer(Sampling(1.0, parent_based=True), lambda size: (7).to_bytes(size, "big"), lambda _: None)
    off, on = asyncio.run(_calls(None)), asyncio.run(_calls(full))
    assert sum(off.values()) == 0, off
    assert sum(on.values()) >= REQUESTS


async def _calls(tracer: Tracer | None) -> Counter[str]:
    """Functions of tracing → their calls for REQUESTS requests; `off` is no more than a look whether there is one."""
    given = argparse.Namespace(groups=1, slots=4, sessions=50, clients=4, keys=None, body=2048)
    bench = Bench(given, asyncio.get_running_loop())
    await bench.warm_up()
    bench.state.features.tracer = tracer
    found: Counter[str] = Counter()

    def note(frame, event, _argument) -> None:
        file = frame.f_code.co_filename
        if event == "call" and ("promptgroup_router/features/tracing/" in file or "opentelemetry" in file):
            found[f"{file}:{frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        for _ in range(REQUESTS):
            bench.whole()
    finally:
        sys.setprofile(None)
    return found
