"""More workloads whose requests share undeclared prefixes, which articles and benchmarks rarely have."""

import math
from collections.abc import Callable, Sequence

from promptgroup_research.simulator.draws import lognormal, modulated, poisson, zipf
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.workloads import Author, agents, chatting

ANSWER, QUESTION = 200, 300
"""Median tokens."""


class _Writer:
    """Writes single requests that begin with some of the pieces that others begin with, too."""

    def __init__(self, seed: int, question: int = QUESTION, answer: int = ANSWER) -> None:
        self.author = Author(seed)
        self.draw = self.author.draw
        self._paths: dict[tuple[int, ...], int] = {}
        self._question = lognormal(self.draw, question, 0.5, 16, 8 * question)
        self._answer = lognormal(self.draw, answer, 0.5, 4, 8 * answer)

    def request(self, began: float, pieces: Sequence[tuple[int, int]]) -> Session:
        """A session of one request: pieces as (name, tokens), then a question that no other request has."""
        nodes: list[int] = []
        path: tuple[int, ...] = ()
        for name, _ in pieces:
            path = (*path, name)
            nodes.append(self._paths.setdefault(path, self.author.node()))
        session = Session(self.author.key(), self.author.key(), 0, began)
        sizes = (*(tokens for _, tokens in pieces), self._question())
        session.turns.append(Turn(session, (*nodes, self.author.node()), sizes, self._answer(), 0))
        return session


def popular(rate: float, until: float, seed: int, *, prefixes: int = 400, exponent: float = 1.0) -> list[Session]:
    """Prefixes of 1,000 to 16,000 tokens, a few of which are used by most."""
    writer = _Writer(seed)
    length = lognormal(writer.draw, 5000, 0.7, 1000, 16_000)
    lengths = [length() for _ in range(prefixes)]
    pick = zipf(writer.draw, prefixes, exponent)
    return [writer.request(began, [(name := pick(), lengths[name])]) for began in poisson(writer.draw, rate, until)]


def drifting(rate: float, until: float, seed: int, *, prefixes: int = 120, lasts: float = 120.0) -> list[Session]:
    """Prefixes of 6,000 tokens, each of which is in use for a while and never again."""
    writer = _Writer(seed)
    result = []
    for began in poisson(writer.draw, rate, until):
        name = int(began * prefixes / lasts) + writer.draw.randrange(prefixes)
        result.append(writer.request(began, [(name, 6000)]))
    return result


def threads(rate: float, until: float, seed: int, *, prefixes: int = 60, prefix: int = 4000,
            turns: int = 5) -> list[Session]:  # fmt: skip
    """Conversations whose first message begins with a prefix that other conversations have."""
    author = Author(seed)
    talk = chatting(author)
    roots = [author.root(prefix, -1) for _ in range(prefixes)]
    result = []
    for began in poisson(author.draw, rate / turns, until):
        session = author.session(began, author.draw.choice(roots), turns, talk)
        session.prefix, session.tier1 = author.key(), 0
        result.append(session)
    return result


def retrieval(rate: float, until: float, seed: int, *, documents: int = 300, places: int = 4) -> list[Session]:
    """Instructions of 800 tokens, then four documents of 1,500, some of them more popular, in the order of a search."""
    writer = _Writer(seed)
    pick = zipf(writer.draw, documents, 1.1)
    result = []
    for began in poisson(writer.draw, rate, until):
        chosen: dict[int, None] = {}
        while len(chosen) < places:
            chosen[1 + pick()] = None
        result.append(writer.request(began, [(0, 800), *((name, 1500) for name in chosen)]))
    return result


def examples(rate: float, until: float, seed: int, *, templates: int = 40, shots: int = 8) -> list[Session]:
    """Templates with examples of 700 tokens each, of which a request has the first few."""
    writer = _Writer(seed, question=150, answer=60)
    result = []
    for began in poisson(writer.draw, rate, until):
        name = writer.draw.randrange(templates)
        count = writer.draw.randint(2, shots)
        result.append(writer.request(began, [(name * shots + place, 700) for place in range(count)]))
    return result


def hot(rate: float, until: float, seed: int, *, prefixes: int = 100, share: float = 0.7) -> list[Session]:
    """One prefix that most requests have, and many that a few have; all of 8,000 tokens."""
    writer = _Writer(seed)
    result = []
    for began in poisson(writer.draw, rate, until):
        name = 0 if writer.draw.random() < share else writer.draw.randint(1, prefixes)
        result.append(writer.request(began, [(name, 8000)]))
    return result


def tenants(rate: float, until: float, seed: int, *, count: int = 60, prefix: int = 6000,
            day: float = 240.0) -> list[Session]:  # fmt: skip
    """Tenants with a prefix each, who are busy at their own time of a short day."""
    writer = _Writer(seed)

    def busy(phase: float) -> Callable[[float], float]:
        return lambda now: max(0.05, 1 + 1.5 * math.sin(2 * math.pi * (now / day + phase)))

    requests = [
        writer.request(began, [(name, prefix)])
        for name in range(count)
        for began in modulated(writer.draw, rate / count / 1.17, until, busy(writer.draw.random()), 2.5)
    ]
    requests.sort(key=lambda session: session.began)
    return requests


def mixed(rate: float, until: float, seed: int) -> list[Session]:
    """Agents with declared prompts, and single requests with undeclared prefixes, half of each."""
    result = [*agents(rate / 2, until, seed), *popular(rate / 2, until, seed + 1000, prefixes=150)]
    # the two parts number their prompts independently
    for session in result:
        if session.group < 0:
            for turn in session.turns:
                turn.nodes = tuple(-node for node in turn.nodes)
    result.sort(key=lambda session: session.began)
    return result
