"""Chooses the threshold of a semantic cache: the lowest one whose precision a sample proves. Does no I/O.

The best of many tested thresholds may be best by chance. So thresholds are tested one after the other, from the highest
down, until the first that is not proven: such a fixed sequence errs no more often than one test (Angelopoulos et al.,
"Learn then Test", 2021, arXiv:2110.01052). It begins at five places, where so many pairs are answered that some errors
are allowed, each at a fifth of the risk: one wrong judgement at the highest threshold would otherwise end it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from promptgroup_cli.calibration.pairs import Judged
from promptgroup_cli.calibration.proportions import at_most

RISK = 0.05
"""Probability that the precision at the chosen threshold is below the wanted one."""
LEAST_PRECISION, MOST_PRECISION = 0.5, 0.9999
"""Precisions that can be requested: a coin has the least, and the most needs 46,050 answers without an error."""
STEPS = [step / 200 for step in range(200, 99, -1)]
"""Thresholds that are tested: 1 to 0.5."""
ALLOWED = (0, 1, 3, 7, 15)
"""Errors that are allowed where a sequence begins."""


class AnsweredPairs(NamedTuple):
    """Answers that a cache with a threshold would give to pairs."""

    threshold: float
    pairs: int
    same: int
    """Pairs for which one answer is right."""
    answered: int
    """Pairs that are similar enough."""
    right: int
    """Similar pairs for which one answer is right."""


def outcome(judged: Sequence[Judged], threshold: float) -> AnsweredPairs:
    """Return which pairs a cache with a threshold answers, and how many rightly."""
    given = [item.pair.same for item in judged if item.similarity >= threshold]
    return AnsweredPairs(threshold, len(judged), sum(item.pair.same for item in judged), len(given), sum(given))


def fewest(errors: int, precision: float) -> int:
    """Return the least number of answered pairs that proves a precision with so many errors among them."""
    low, high = errors, errors + 1
    while not _proven(errors, high, precision):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _proven(errors, middle, precision) else (middle, high)
    return high


def choose(judged: Sequence[Judged], precision: float) -> AnsweredPairs | None:
    """Return the pairs that the lowest proven threshold answers; None if none is proven.

    Args:
        judged: the pairs for the choice, none of which is held out.
        precision: the wanted share of right answers among those given, LEAST_PRECISION to MOST_PRECISION.
    """
    outcomes = [outcome(judged, threshold) for threshold in STEPS]
    best: AnsweredPairs | None = None
    for errors in ALLOWED:
        needed = fewest(errors, precision)
        begin = next(
            (index for index, answered_pairs in enumerate(outcomes) if answered_pairs.answered >= needed), len(outcomes)
        )
        for answered_pairs in outcomes[begin:]:
            if not _proven(answered_pairs.answered - answered_pairs.right, answered_pairs.answered, precision):
                break
            if best is None or answered_pairs.threshold < best.threshold:
                best = answered_pairs
    return best


def _proven(errors: int, answered: int, precision: float) -> bool:
    return at_most(errors, answered, 1 - precision) <= RISK / len(ALLOWED)
