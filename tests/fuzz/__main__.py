"""`make fuzz`: reads many mutated inputs by the parsers of HTTP heads, chunked bodies and event streams."""

import argparse
import sys

from fuzz import campaign
from fuzz.targets import TARGETS


def main() -> int:
    """Run the campaigns of the command line, print a report of each, and return the exit status."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("kinds", nargs="*", default=[*TARGETS], help="heads, chunked, sse (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="what the inputs follow from (default: %(default)s)")
    parser.add_argument("--count", type=int, default=100_000, help="inputs of each kind (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default: %(default)s)")
    given = parser.parse_args()
    for kind in given.kinds:
        try:
            print(campaign.run(kind, given.seed, given.count, given.first), flush=True)
        except AssertionError as broken:
            print(f"{kind}: {broken}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
