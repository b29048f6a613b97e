"""Workloads: sessions drawn from a seed. The same seed gives the same sessions everywhere."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from promptgroup_research.simulator.draws import geometric, lognormal, modulated, poisson, waves, zipf
from promptgroup_research.simulator.turns import Session, Turn

MOST_TURNS = 40
"""Limit of a geometric number of turns: contexts stay within the limits of models."""


PAUSE = 22.0
"""Seconds between two turns of a chat, the answer included."""


@dataclass(frozen=True, slots=True)
class Root:
    """A Tier-1 prefix: its node, tokens (0 for none), hash and group."""

    node: int
    tokens: int
    prefix: int
    group: int


@dataclass(frozen=True, slots=True)
class Talk:
    """The course of conversations: lengths in tokens, pauses in seconds."""

    message: Callable[[], int]
    answer: Callable[[], int]
    think: Callable[[], float]


class Author:
    """Writes sessions from one generator of random numbers."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - a workload
        self._nodes = itertools.count(1)

    def key(self) -> int:
        """64 bits."""
        return self.draw.getrandbits(64)

    def node(self) -> int:
        """A stretch of a prompt that nothing else shares yet."""
        return next(self._nodes)

    def root(self, tokens: int, group: int) -> Root:
        """A Tier-1 prefix that nothing else shares."""
        return Root(self.node(), tokens, self.key(), group)

    def lone(self) -> Root:
        """No shared prefix."""
        return Root(0, 0, self.key(), -1)

    def session(self, began: float, root: Root, turns: int, talk: Talk) -> Session:
        """A session whose turns each repeat all before them."""
        session = Session(self.key(), root.prefix, root.tokens, began, group=root.group)
        nodes: tuple[int, ...] = (root.node,) if root.tokens else ()
        sizes: tuple[int, ...] = (root.tokens,) if root.tokens else ()
        for number in range(turns):
            new, output = talk.message(), talk.answer()
            nodes = (*nodes, self.node())
            think = talk.think() if number else 0.0
            session.turns.append(Turn(session, nodes, (*sizes, new), output, number, think=think))
            sizes = (*sizes, new + output)
        return session


def answers(author: Author) -> Callable[[], int]:
    """Lengths of answers, the same in all workloads but traces."""
    return lognormal(author.draw, 150, 0.7, 4, 1500)


def chatting(author: Author) -> Talk:
    """People who type and read."""
    draw = author.draw
    return Talk(lognormal(draw, 80, 0.8, 8, 2000), answers(author), lambda: 1 + draw.expovariate(1 / 19))


def chat(rate: float, until: float, seed: int, *, groups: int = 6, shared: float = 0.8, exponent: float = 1.0,
         prompt: tuple[int, int] = (2000, 4000), mean_turns: float = 5.0,
         unique: tuple[int, float, int, int] = (1000, 0.8, 32, 16_000)) -> list[Session]:  # fmt: skip
    """Task groups with chat: `rate` requests a second, `shared` of them in sessions of groups, the others unique.

    `unique` is the lognormal distribution of the others' tokens: median, sigma, least and most.

    The rate applies from the beginning: as many sessions as usually run are in progress. Their remaining turns are as
    many as those of new ones (a geometric number has no memory), so they are written as new ones. Starting with none,
    the rate would take minutes to rise, and a run would end before it shows an overload.
    """
    author = Author(seed)
    draw = author.draw
    pick = zipf(draw, groups, exponent)
    roots = [author.root(draw.randint(*prompt), group) for group in range(groups)]
    talk = chatting(author)
    under_way = [draw.expovariate(1 / PAUSE) for _ in range(round(rate * shared * (1 - 1 / mean_turns) * PAUSE))]
    sessions = [
        author.session(began, roots[pick()], geometric(draw, mean_turns, MOST_TURNS), talk)
        for began in (*under_way, *poisson(draw, rate * shared / mean_turns, until))
    ]
    alone = Talk(lognormal(draw, *unique), talk.answer, talk.think)
    sessions += [author.session(began, author.lone(), 1, alone) for began in poisson(draw, rate * (1 - shared), until)]
    return sessions


def agents(rate: float, until: float, seed: int, *, groups: int = 20, prompt: int = 8000, turns: int = 10,
           burst: tuple[float, float, float] | None = None) -> list[Session]:  # fmt: skip
    """Agents: long prompts, many quick turns, arrivals in waves (half the mean for 30 s, 2.5 x for 10 s).

    `burst` is (begin, end, factor): in this time sessions arrive at `factor` times the mean instead.
    """
    author = Author(seed)
    draw = author.draw
    pick = zipf(draw, groups)
    roots = [author.root(prompt, group) for group in range(groups)]
    calm_and_busy = waves(draw, until)

    def scale(now: float) -> float:
        if burst and burst[0] <= now < burst[1]:
            return burst[2]
        return next(factor for end, factor in calm_and_busy if now < end)

    talk = Talk(lognormal(draw, 500, 0.8, 16, 8000), answers(author), lambda: 0.3 + draw.expovariate(1 / 1.5))
    return [
        author.session(began, roots[pick()], turns, talk)
        for began in modulated(draw, rate / turns, until, scale, max(2.5, burst[2] if burst else 0))
    ]


@dataclass(frozen=True, slots=True)
class Sharing:
    """Requests of one turn that share a prefix which no group declares. Lengths are in tokens."""

    prefixes: int
    prefix: int
    question: int
    answer: int
    in_system: bool = False
    """True where the prefix is the system message; else it begins the one user message."""


SAAS = Sharing(prefixes=150, prefix=6000, question=1200, answer=1000, in_system=True)
"""The shape of llm-d's published runs: many customers, each with a long system prompt of its own."""
SAAS_IN_MESSAGE = replace(SAAS, in_system=False)
DOCUMENTS = Sharing(prefixes=400, prefix=6000, question=250, answer=100)
"""Questions about documents, the document first."""


def undeclared(rate: float, until: float, seed: int, shape: Sharing) -> list[Session]:
    """Single requests, each with one of several prefixes of equal probability."""
    author = Author(seed)
    draw = author.draw
    roots = [author.root(shape.prefix, -1) for _ in range(shape.prefixes)]
    question = lognormal(draw, shape.question, 0.2, shape.question // 4, shape.question * 4)
    answer = lognormal(draw, shape.answer, 0.3, 4, shape.answer * 4)
    result = []
    for began in poisson(draw, rate, until):
        root = draw.choice(roots)
        session = author.session(began, root, 1, Talk(question, answer, lambda: 0.0))
        if not shape.in_system:
            session.prefix, session.tier1 = author.key(), 0
        result.append(session)
    return result


def subagents(rate: float, until: float, seed: int, *, context: int = 30_000, helpers: int = 6,
              turns: int = 4) -> list[Session]:  # fmt: skip
    """Tasks whose helpers begin with the task's whole context, each as a session with a name of its own."""
    author = Author(seed)
    draw = author.draw
    talk = Talk(lognormal(draw, 800, 0.8, 16, 8000), answers(author), lambda: 0.3 + draw.expovariate(1 / 1.5))
    result = []
    for began in poisson(draw, rate / turns / helpers, until):
        root = author.root(context, -1)
        for _ in range(helpers):
            session = author.session(began + draw.uniform(0, 3), root, turns, talk)
            session.prefix, session.tier1 = author.key(), 0
            result.append(session)
    result.sort(key=lambda session: session.began)
    return result


def tasks(until: float, seed: int, *, prompt: int = 1500, count: int = 3, sessions: int = 24, declared: bool = True,
          turns: int = 4) -> list[Session]:  # fmt: skip
    """A few sessions of a few tasks, for engines without a GPU: one begins every couple of seconds."""
    author = Author(seed)
    draw = author.draw
    roots = [author.root(prompt, group) for group in range(count)]
    talk = Talk(lognormal(draw, 120, 0.4, 20, 600), lambda: draw.randint(16, 32), lambda: draw.uniform(0.2, 1.5))
    result = []
    for number in range(sessions):
        session = author.session(number * until / sessions * draw.uniform(0.5, 1.5), roots[number % count], turns, talk)
        if not declared:
            session.prefix, session.tier1, session.group = author.key(), 0, -1
        result.append(session)
    return result
