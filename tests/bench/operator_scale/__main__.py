"""The operator with many groups: time to warm and routed, requests to the API server, CPU; then the same at rest.

A real control plane (etcd, API server, controllers, scheduler) and a node whose engines are hollow: stand-ins with a
real prefix cache and no process each. Everything shares this machine's cores, the operator among them. Without --spread
all engines are up as soon as their pods are: no model takes less than a minute to load, so that is the worst case.

    make bench-operator ARGS="--size 20x5 --size 50x5 --rest 120"
    make bench-operator ARGS="--size 20x5 --restart --roll"
    make bench-operator ARGS="--size 1x20 --guests 500"
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from bench.operator_scale.phases import Size, measure
from bench.operator_scale.report import misses, table


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", metavar="GxP", help="groups x pods of each (default: 20x5)")
    parser.add_argument("--guests", type=int, default=0, metavar="N", help="guests of each group, which has no prompt")
    parser.add_argument("--rest", type=float, default=120.0, metavar="SECONDS", help="how long to look on at rest")
    parser.add_argument("--calm", type=float, default=45.0, metavar="SECONDS", help="time between creation and rest")
    parser.add_argument("--spread", type=float, default=0.0, metavar="SECONDS", help="engines take up to this to start")
    parser.add_argument("--rate", type=float, default=50.0, metavar="N", help="pods that change a second, afterwards")
    parser.add_argument("--restart", action="store_true", help="then kill and start the API server, and delete pods")
    parser.add_argument("--roll", action="store_true", help="then change all engines, or the prompts of all guests")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and the API server's record here")
    parser.add_argument("--strict", action="store_true", help="end with 1 if a gate is missed (GATES, LINEAR)")
    arguments = parser.parse_args()
    results = []
    for text in arguments.size or ["20x5"]:
        groups, replicas = map(int, text.split("x"))
        size = Size(groups, replicas, arguments.guests)
        results.append(measure(size, arguments))
        Console(width=100).print(table(results))
    missed = [text for result in results for text in misses(result, results[0])] if arguments.strict else []
    for text in missed:
        Console(width=120, markup=False).print(f"gate missed: {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
