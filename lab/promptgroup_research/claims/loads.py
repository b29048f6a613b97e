"""Workloads in which one property of the traffic changes, and nothing else."""

from dataclasses import replace

from promptgroup_research.simulator.draws import geometric, lognormal, poisson
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.workloads import MOST_TURNS, PAUSE, Author, Root, Talk, answers, chatting

PROMPT = 3000
"""Tokens of the system prompt."""
MEAN_TURNS = 5.0
BATCH_BEGINS = 30.0
"""Seconds at which a batch arrives, after one request that has computed the common part."""


def batch(count: int, prompt: int, common: float, answer: int) -> list[Session]:
    """Requests that are all there at the start, of equal length, whose first `common` share of tokens is the same."""
    author = Author(1)
    shared = author.root(round(prompt * common), 0)
    talk = Talk(lambda: prompt - shared.tokens, lambda: answer, lambda: 0.0)
    # the engine would compute the common part once for each request of its first step
    first = author.session(0.0, shared, 1, talk)
    return [first, *(author.session(BATCH_BEGINS, shared, 1, talk) for _ in range(count - 1))]


def conversations(rate: float, until: float, seed: int, prompts: int = 1) -> list[Session]:
    """`rate` requests a second in sessions that each begin with one of `prompts` system prompts of equal length.

    As in `workloads.chat`, as many sessions as usually run are in progress at the beginning. One prompt that is salted
    for each of so many tenants is as many prompts, for caches and routers alike.
    """
    author = Author(seed)
    roots = [author.root(PROMPT, 0) for _ in range(prompts)]
    return [_session(author, began, author.draw.choice(roots)) for began in _beginnings(author, rate, until)]


def assigned_by_request(rate: float, until: float, seed: int, variants: int) -> list[Session]:
    """The same sessions, each of whose requests draws its variant of the system prompt anew."""
    author = Author(seed)
    roots = [author.root(PROMPT, 0) for _ in range(variants)]
    result = []
    for began in _beginnings(author, rate, until):
        session = _session(author, began, author.draw.choice(roots))
        # what follows another system prompt is another stretch, also where its text is equal
        stretches: dict[tuple[int, int], int] = {}
        for turn in session.turns:
            root = author.draw.choice(roots)
            turn.nodes = (
                root.node,
                *(stretches.setdefault((root.node, node), author.node()) for node in turn.nodes[1:]),
            )
        result.append(session)
    return result


def regenerated(rate: float, until: float, seed: int, share: float) -> list[Session]:
    """Conversations in which a share of the answers is asked for once more: the prompt is the same, the answer new."""
    author = Author(seed)
    root = author.root(PROMPT, 0)
    result = []
    for began in _beginnings(author, rate, until):
        session = _session(author, began, root)
        turns: list[Turn] = []
        for turn in session.turns:
            turns.append(replace(turn, number=len(turns)))
            if author.draw.random() < share:
                turns.append(replace(turn, number=len(turns), think=3.0))
        session.turns[:] = turns
        result.append(session)
    return result


def with_strangers(rate: float, until: float, seed: int, strangers: float) -> list[Session]:
    """Conversations, and beside them so many requests a second of 1,000 tokens that no other request shares."""
    result = conversations(rate, until, seed)
    author = Author(seed + 1000)
    talk = Talk(lognormal(author.draw, 1000, 0.3, 100, 4000), answers(author), lambda: 0.0)
    alone = [author.session(began, author.lone(), 1, talk) for began in poisson(author.draw, strangers, until)]
    for session in alone:
        for turn in session.turns:
            turn.nodes = tuple(-node for node in turn.nodes)  # the two parts number their stretches independently
    return sorted([*result, *alone], key=lambda session: session.began)


def _beginnings(author: Author, rate: float, until: float) -> list[float]:
    under_way = round(rate * (1 - 1 / MEAN_TURNS) * PAUSE)
    draw = author.draw
    return [
        *(draw.expovariate(1 / PAUSE) for _ in range(under_way)),
        *poisson(draw, rate / MEAN_TURNS, until),
    ]


def _session(author: Author, began: float, root: Root) -> Session:
    return author.session(began, root, geometric(author.draw, MEAN_TURNS, MOST_TURNS), chatting(author))
