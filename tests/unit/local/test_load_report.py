import io

from rich.console import Console

from promptgroup_local.load.counters import Measured
from promptgroup_local.load.report import comparison
from promptgroup_local.load.summary import Summary


def test_runs_stand_side_by_side_and_what_is_unknown_is_a_dash() -> None:
    known = Summary(
        "router", 10, {"status 503": 2, "TimeoutError": 1}, 0.0124, 0.5, 1.0, Measured(0.9, 1.25, 0, {}), 0.95
    )
    unknown = Summary("round robin", 0, {}, None, None, None, Measured(None, None, None, {}), None)
    out = io.StringIO()
    Console(file=out, width=100).print(comparison([known, unknown]))
    lines = {line.split("│")[1].strip(): line for line in out.getvalue().splitlines() if "│" in line}
    for label, figure in {
        "requests": "10",
        "failed": "3 (status 503)",
        "token hit rate, by the engines": "90.0 %",
        "of an infinite cache's": "94.7 %",
        "TTFT p50": "12 ms",
        "TTFT p99": "500 ms",
        "imbalance, max / mean": "1.25",
        "met a cold Tier 1": "0",
    }.items():
        cells = [cell.strip() for cell in lines[label].split("│")[2:4]]
        assert cells[0] == figure
        assert label in {"requests", "failed"} or cells[1] == "-"
