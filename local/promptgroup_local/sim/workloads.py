"""Workloads: sessions drawn from a seed. The same seed gives the same sessions everywhere."""

import itertools
import math
import random
from collections.abc import Callable, Iterator

from promptgroup_local.sim.turns import Session, Turn

_ids = itertools.count(1)


def _key(draw: random.Random) -> int:
    return draw.getrandbits(64)


def lognormal(draw: random.Random, median: float, sigma: float, least: int, most: int) -> int:
    """A length with this median."""
    return min(most, max(least, round(median * math.exp(draw.gauss(0, sigma)))))


def poisson(draw: random.Random, rate: float, until: float) -> Iterator[float]:
    """Times of arrivals."""
    now = draw.expovariate(rate)
    while now < until:
        yield now
        now += draw.expovariate(rate)


def modulated(draw: random.Random, rate: float, until: float, scale: Callable[[float], float], most: float) -> Iterator[float]:
    """Times of arrivals at `rate * scale(time)`, by thinning."""
    for now in poisson(draw, rate * most, until):
        if draw.random() * most < scale(now):
            yield now


def zipf(draw: random.Random, count: int, exponent: float = 1.0) -> Callable[[], int]:
    """Draws 0 to count - 1, the first most often."""
    weights = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(count)))
    numbers = range(count)
    return lambda: draw.choices(numbers, cum_weights=weights)[0]


def conversation(
    draw: random.Random, began: float, group: int, prefix: int, root: int, tier1: int, turns: int,
    message: Callable[[], int], answer: Callable[[], int], think: Callable[[], float],
) -> Session:  # fmt: skip
    """A session whose turns each repeat all before them."""
    session = Session(_key(draw), prefix, tier1, began, group=group)
    nodes: tuple[int, ...] = (root,) if tier1 else ()
    sizes: tuple[int, ...] = (tier1,) if tier1 else ()
    for number in range(turns):
        new, output = message(), answer()
        nodes = (*nodes, next(_ids))
        session.turns.append(
            Turn(session, nodes, (*sizes, new), output, number, think=think() if number else 0.0)
        )
        sizes = (*sizes, new + output)
    return session


def chat(rate: float, until: float, seed: int, *, groups: int = 6, shared: float = 0.8, exponent: float = 1.0,
         prompt: tuple[int, int] = (2000, 4000), mean_turns: float = 5.0) -> list[Session]:  # fmt: skip
    """Task groups with chat: `rate` requests a second, `shared` of them in sessions of groups, the others unique."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    pick = zipf(draw, groups, exponent)
    roots = [(next(_ids), draw.randint(*prompt), _key(draw)) for _ in range(groups)]
    found = []
    message = lambda: lognormal(draw, 80, 0.8, 8, 2000)  # noqa: E731
    answer = lambda: lognormal(draw, 150, 0.7, 4, 1500)  # noqa: E731
    think = lambda: 1 + draw.expovariate(1 / 19)  # noqa: E731
    for began in poisson(draw, rate * shared / mean_turns, until):
        group = pick()
        root, tier1, prefix = roots[group]
        turns = 1 + int(math.log(1 - draw.random()) / math.log(1 - 1 / mean_turns))
        found.append(conversation(draw, began, group, prefix, root, tier1, min(turns, 40), message, answer, think))
    unique = lambda: lognormal(draw, 1000, 0.8, 32, 16000)  # noqa: E731
    for began in poisson(draw, rate * (1 - shared), until):
        found.append(conversation(draw, began, -1, _key(draw), 0, 0, 1, unique, answer, think))
    return found


def agents(rate: float, until: float, seed: int, *, groups: int = 20, prompt: int = 8000, turns: int = 10,
           burst: tuple[float, float, float] | None = None) -> list[Session]:  # fmt: skip
    """Agents: long prompts, many quick turns, arrivals that come in waves (half the mean for 30 s, 2.5 x for 10 s).

    `burst` is (begin, end, factor): in this time arrivals come at `factor` times the mean besides.
    """
    draw = random.Random(seed)  # noqa: S311 - a workload
    pick = zipf(draw, groups)
    roots = [(next(_ids), prompt, _key(draw)) for _ in range(groups)]
    waves = _waves(draw, until)

    def scale(now: float) -> float:
        at = next(factor for end, factor in waves if now < end)
        return at + (burst[2] if burst and burst[0] <= now < burst[1] else 0.0)

    message = lambda: lognormal(draw, 500, 0.8, 16, 8000)  # noqa: E731
    answer = lambda: lognormal(draw, 150, 0.7, 4, 1500)  # noqa: E731
    think = lambda: 0.3 + draw.expovariate(1 / 1.5)  # noqa: E731
    found = []
    for began in modulated(draw, rate / turns, until, scale, 2.5 + (burst[2] if burst else 0)):
        group = pick()
        root, tier1, prefix = roots[group]
        found.append(conversation(draw, began, group, prefix, root, tier1, turns, message, answer, think))
    return found


def _waves(draw: random.Random, until: float) -> list[tuple[float, float]]:
    """Ends of calm and busy times, with their factor: a Markov-modulated process with means of 30 and 10 s."""
    waves, now = [], 0.0
    while now < until:
        for mean, factor in ((30.0, 0.5), (10.0, 2.5)):
            now += draw.expovariate(1 / mean)
            waves.append((now, factor))
    return waves
