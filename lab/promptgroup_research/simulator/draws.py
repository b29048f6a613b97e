"""Random numbers of workloads: lengths, times of arrivals, popularity. All from a seeded generator."""

import itertools
import math
import random
from collections.abc import Callable, Iterator


def lognormal(draw: random.Random, median: float, sigma: float, least: int, most: int) -> Callable[[], int]:
    """Draws lengths with this median."""
    return lambda: min(most, max(least, round(median * math.exp(draw.gauss(0, sigma)))))


def geometric(draw: random.Random, mean: float, most: int) -> int:
    """A number from 1 on."""
    if mean <= 1:
        return 1
    return min(most, 1 + int(math.log(1 - draw.random()) / math.log(1 - 1 / mean)))


def zipf(draw: random.Random, count: int, exponent: float = 1.0) -> Callable[[], int]:
    """Draws 0 to count - 1, the first most often."""
    weights = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(count)))
    numbers = range(count)
    return lambda: draw.choices(numbers, cum_weights=weights)[0]


def poisson(draw: random.Random, rate: float, until: float) -> Iterator[float]:
    """Times of arrivals at `rate` a second."""
    now = draw.expovariate(rate) if rate > 0 else until
    while now < until:
        yield now
        now += draw.expovariate(rate)


def modulated(
    draw: random.Random, rate: float, until: float, scale: Callable[[float], float], most: float
) -> Iterator[float]:
    """Times of arrivals at `rate * scale(time)`, by thinning; `scale` stays under `most`."""
    for now in poisson(draw, rate * most, until):
        if draw.random() * most < scale(now):
            yield now


def waves(draw: random.Random, until: float) -> list[tuple[float, float]]:
    """Ends of calm and busy times with their factor: a Markov-modulated process with means of 30 and 10 s."""
    result, now = [], 0.0
    while now < until:
        for mean, factor in ((30.0, 0.5), (10.0, 2.5)):
            now += draw.expovariate(1 / mean)
            result.append((now, factor))
    return result
