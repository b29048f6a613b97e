"""`make fuzz-keys`: keys of random bodies against what the bodies mean; all pairs are compared, by groups.

A key that stands for two meanings gives a request another one's answer. A meaning that has two keys is computed twice.
"""

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass

from promptgroup_router.apis.endpoints import ENDPOINTS
from support.asks import key_of
from support.keybodies import Body, body
from support.keymeaning import meaning


@dataclass(frozen=True, slots=True)
class Report:
    """What a campaign saw."""

    seed: int
    bodies: int
    different: int
    """Bodies that differ in their bytes."""
    meanings: int
    equal: int
    """Pairs of bodies with equal keys: among them are no two with different meanings."""
    cpu_seconds: float

    def __str__(self) -> str:
        pairs = self.bodies * (self.bodies - 1) // 2
        return (
            f"keys: seed {self.seed}, {self.bodies:,} bodies, {self.different:,} different, "
            f"{self.meanings:,} meanings, {self.equal:,} pairs with equal keys and {pairs - self.equal:,} with "
            f"different ones, {self.cpu_seconds:.0f} s of CPU"
        )


def run(seed: int, count: int) -> Report:
    """Compare `count` bodies.

    Raises:
        AssertionError: two bodies have one key and two meanings, or one meaning and two keys; names both.
    """
    rng, began = random.Random(seed), time.process_time()
    meanings: dict[bytes, tuple[str, Body]] = {}
    keys: dict[str, tuple[bytes, Body]] = {}
    seen: Counter[bytes] = Counter()
    texts = set()
    for _ in range(count):
        made = body(rng)
        ask = ENDPOINTS[made.path].parse(made.text)
        key, means = key_of(ask, path=made.path, model=ask.model), meaning(*made)
        other, at = meanings.setdefault(key, (means, made))
        assert other == means, f"one key for two meanings, seed {seed}:\n{at}\n{made}"
        known, at = keys.setdefault(means, (key, made))
        assert known == key, f"two keys for one meaning, seed {seed}:\n{at}\n{made}"
        seen[key] += 1
        texts.add(hash(made))
    equal = sum(each * (each - 1) // 2 for each in seen.values())
    return Report(seed, count, len(texts), len(keys), equal, time.process_time() - began)


def main() -> int:
    """Run the campaign of the command line, print its report, and return the exit status."""
    parser = argparse.ArgumentParser(prog="keycampaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="what the bodies follow from (default: %(default)s)")
    parser.add_argument("--count", type=int, default=100_000, help="bodies (default: %(default)s)")
    given = parser.parse_args()
    try:
        sys.stdout.write(f"{run(given.seed, given.count)}\n")
    except AssertionError as broken:
        sys.stderr.write(f"{broken}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
