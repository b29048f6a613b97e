"""The bench of what spans cost runs, and says what it found."""

import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench/tracing_cost.py"


def test_the_bench_compares_requests_with_and_without_spans() -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, str(BENCH), "--rounds", "4"], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    cases = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("|")]
    assert cases[2:] == ["off", "off, once more", "on, nothing sampled", "on, 1 %", "on, all"]
