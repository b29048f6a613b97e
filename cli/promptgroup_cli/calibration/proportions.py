"""Computes the confidence of a share that was observed in a sample."""

from math import exp, lgamma, log, log1p, sqrt

_Z = 1.959963984540054
"""95 % of a normal distribution lie within so many standard deviations."""


def interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson, JASA 1927); 0 and 1 without a trial."""
    if trials == 0:
        return 0.0, 1.0
    share, square = successes / trials, _Z * _Z
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = _Z / (1 + square / trials) * sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def at_most(errors: int, trials: int, rate: float) -> float:
    """Return the probability of so many errors or fewer (the tail of a binomial distribution).

    Args:
        errors: errors that were observed.
        trials: trials, of which each fails by itself.
        rate: probability that one fails, above 0 and below 1.
    """
    if errors >= trials:
        return 1.0
    total = 0.0
    for count in range(errors + 1):
        ways = lgamma(trials + 1) - lgamma(count + 1) - lgamma(trials - count + 1)
        total += exp(ways + count * log(rate) + (trials - count) * log1p(-rate))
    return min(1.0, total)
