"""Run `python -m promptgroup_research.disaggregation`: engines that do both beside as many that are split, as tables.

Eight engines, two minutes after a warm-up, means over seeds. `--quick` takes one seed, one minute and 75 % load.
"""

import argparse
import sys

from promptgroup_research.disaggregation import comparison
from promptgroup_research.experiments.catalogue import JUDGING
from promptgroup_research.output import command_line

WIDTH = 170


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_research.disaggregation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, one minute, 75 %% load")
    parser.add_argument("--workload", nargs="+", choices=comparison.WORKLOADS, default=list(comparison.WORKLOADS))
    parser.add_argument(
        "--load", nargs="+", type=float, metavar="SHARE", help="shares of the capacity of engines that do both"
    )
    parser.add_argument("--caches", type=float, default=1.0, help="times the KV cache of each engine of a pair")
    parser.add_argument("--jobs", type=command_line.count, default=2, help="processes")
    chosen = parser.parse_args()
    console = command_line.console(WIDTH)
    loads, seeds = (comparison.LOADS[-1:], JUDGING[:1]) if chosen.quick else (comparison.LOADS, JUDGING[:3])
    runs = comparison.jobs(chosen.workload, chosen.load or loads, seeds, quick=chosen.quick, caches=chosen.caches)
    for sheet in comparison.sheets(runs, command_line.watched(console, comparison.run, runs, chosen.jobs)):
        console.print(sheet.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
