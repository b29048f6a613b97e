"""Loads that change over time: a day, a burst, sessions that outgrow the caches, a timestamp on top, a trace."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from promptgroup_cli.reach.trace import BLOCK, read
from promptgroup_operator.world.load import PromptDrift
from promptgroup_research.simulator import trace
from promptgroup_research.simulator.draws import geometric, lognormal, modulated, zipf
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.turns import Session
from promptgroup_research.simulator.workloads import MOST_TURNS, Author, Root, Talk, answers, chatting

DAY = 14_400.0
"""Seconds in which a day goes by: six times as fast as a real one, so replicas have a sixth of the time to start."""
HOUR = 3600.0
TURN = 0.25
"""Share of the length after which sessions become long, or prompts drift."""
NOISE_STEP, NOISE_MEMORY, NOISE_WIDTH = 60.0, 0.8, 0.08
"""Demand wanders about its shape: a first-order autoregression a minute, 13 % wide in the end."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A load and the engines it is for."""

    title: str
    write: Callable[[float, int], list[Session]]
    """Seconds, seed → sessions."""
    length: float
    """Seconds of arrivals."""
    target: float
    """Seconds that a first token may take."""
    begin: int
    """Replicas, warm, in the beginning."""
    least: int = 1
    most: int = 16
    model: Model = field(default_factory=Model)
    drift: PromptDrift | None = None
    """The routers' report of prompts that diverge from the declared one, from TURN on."""


Shape = Callable[[float], float]
"""Seconds → share of the peak."""


def noisy(draw: random.Random, shape: Shape, until: float) -> Shape:
    """The shape, times a factor that wanders about 1."""
    level, levels = 0.0, []
    for _ in range(math.ceil(until / NOISE_STEP) + 1):
        level = NOISE_MEMORY * level + draw.gauss(0, NOISE_WIDTH)
        levels.append(math.exp(min(0.4, max(-0.4, level))))
    return lambda now: shape(now) * levels[int(now / NOISE_STEP)]


def wave(length: float, low: float, shift: float = 0.0) -> Shape:
    """From `low` to 1 and back within the length, the peak in its middle; later by a share of the length."""
    return lambda now: low + (1 - low) * (1 - math.cos(2 * math.pi * (now / length - shift))) / 2


NOISIEST = math.exp(0.4)


def arrivals(author: Author, rate: float, until: float, shape: Shape) -> Iterator[float]:
    """Times of arrivals at `rate` a second at the peak of a shape, with noise."""
    draw = author.draw
    return modulated(draw, rate, until, noisy(draw, shape, until), NOISIEST)


def sessions(
    author: Author, when: Iterable[float], roots: Sequence[Root], turns: Callable[[], int], talk: Talk
) -> list[Session]:
    """One session at each of these times."""
    pick = zipf(author.draw, len(roots))
    return [author.session(began, roots[pick()], turns(), talk) for began in when]


def chats(author: Author, rate: float, until: float, shape: Shape) -> list[Session]:
    """People in six task groups; a fifth of the requests are single prompts that share nothing."""
    draw = author.draw
    roots = [author.root(draw.randint(2000, 4000), group) for group in range(6)]
    talk = chatting(author)
    started = arrivals(author, 0.8 * rate / 5, until, shape)
    result = sessions(author, started, roots, lambda: geometric(draw, 5.0, MOST_TURNS), talk)
    alone = Talk(lognormal(draw, 1000, 0.8, 32, 16_000), talk.answer, talk.think)
    return result + sessions(author, arrivals(author, 0.2 * rate, until, shape), [author.lone()], lambda: 1, alone)


def agents(author: Author, rate: float, until: float, shape: Shape) -> list[Session]:
    """Programs in four task groups: long prompts, ten quick turns."""
    roots = [author.root(8000, 6 + group) for group in range(4)]
    draw = author.draw
    talk = Talk(lognormal(draw, 500, 0.8, 16, 8000), answers(author), lambda: 0.3 + draw.expovariate(1 / 1.5))
    return sessions(author, arrivals(author, rate / 10, until, shape), roots, lambda: 10, talk)


def day(length: float, seed: int) -> list[Session]:
    """Chat by day, agents somewhat later, both with noise."""
    author = Author(seed)
    return chats(author, 24.0, length, wave(length, 0.1)) + agents(author, 8.0, length, wave(length, 0.1, 0.15))


def burst(length: float, seed: int) -> list[Session]:
    """A steady load of chat, three times as much for ten minutes."""
    author = Author(seed)
    begin, end = length / 3, length / 2
    return chats(author, 24.0, length, lambda now: 1.0 if begin <= now < end else 1 / 3)


def thrash(length: float, seed: int) -> list[Session]:
    """As many requests all the time, of sessions that become long: from some time on they bring files along."""
    author = Author(seed)
    draw = author.draw
    turning = TURN * length
    roots = [author.root(2000, group) for group in range(2)]
    short, long = lognormal(draw, 100, 0.6, 8, 2000), lognormal(draw, 1500, 0.6, 100, 8000)
    answer = answers(author)
    result = []
    for message, begin, end in ((short, 0.0, turning), (long, turning, length)):
        talk = Talk(message, answer, lambda: 0.5 + draw.expovariate(1 / 3))
        shape: Shape = lambda now, begin=begin, end=end: float(begin <= now < end)  # type: ignore[misc]  # noqa: E731
        result += sessions(author, arrivals(author, 0.5, length, shape), roots, lambda: 12, talk)
    return result


def drift(length: float, seed: int) -> list[Session]:
    """Chat whose clients prepend the time to the prompt, from some time on: nothing can hit a cache."""
    author = Author(seed)
    result = chats(author, 2.8, length, lambda _: 1.0)
    for session in result:
        if session.began >= TURN * length:
            for turn in session.turns:
                # a different first byte changes the path of everything that follows it
                unique = author.draw.getrandbits(62)
                turn.nodes = tuple(-1 - unique - node for node in turn.nodes)
    return result


def scenes(recorded: Path | None = None, *, quick: bool = False) -> dict[str, Scene]:
    """By name; the trace is synthetic when no file is named. A quick one is compressed to a sixth."""
    rows = read(recorded) if recorded else trace.synthetic(0, 12_000)
    span = rows[-1].when - rows[0].when + trace.BATCH
    result = {
        "day": Scene("a day of chat and agents", day, DAY, 1.0, 1),
        "burst": Scene("chat, three times as much for ten minutes", burst, HOUR, 1.0, 2),
        "thrash": Scene("sessions outgrow the caches", thrash, HOUR, 2.0, 1, model=Model(kv_tokens=150_000)),
        "drift": Scene("a timestamp on top", drift, HOUR, 1.0, 2, least=2, drift=PromptDrift(1.0, 18, 9000)),
        "trace": Scene(
            f"trace {recorded.stem}" if recorded else "synthetic trace",
            lambda length, seed: [
                session for session in trace.sessions(rows, len(rows) / span, seed) if session.began < length
            ],
            span, 30.0, 8, model=Model(block=BLOCK),
        ),
    }  # fmt: skip
    if quick:
        return {name: replace(scene, length=scene.length / 6) for name, scene in result.items()}
    return result
