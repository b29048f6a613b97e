"""The load: task groups with chat, a smaller copy of the simulator's, for engines that two cores can stand in for.

A pure list of sessions from a seed, the same for every router and for the simulator: when each begins, its group, the
lengths of its turns in tokens, and the pauses between them. Prompts and pauses are those of the simulator's load.
Engines compute 6.7 times slower, so that the milliseconds by which processes on a laptop are late do not count, and
their caches are smaller by as much: to compute all that a cache holds takes 40 s in both, about two pauses. Answers are
shorter (median 60 tokens, not 150): each token is an event that three processes handle. Unique prompts end at 4,000
tokens, since one of 16,000 would hold an engine for a good part of a run.
"""

from promptgroup_local.engine.scheduler import Cost, Limits
from promptgroup_research.simulator.draws import geometric, lognormal, poisson, zipf
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.turns import Session
from promptgroup_research.simulator.workloads import MOST_TURNS, Author, Talk

ENGINES = 8
COST = Cost(prefill_rate=1500.0, step=0.020)
"""Both figures of the stand-in engine are those of the simulator's, slowed; the others are the stand-in's own."""
KV_TOKENS = 64_000
BLOCK = 16
MODEL = Model(
    prefill_rate=COST.prefill_rate,
    attention_length=COST.attention_length,
    overhead=COST.step,
    sequence=COST.decode_sequence,
    context=COST.decode_kilotoken / 1000,
    step_tokens=Limits().tokens,
    sequences=Limits().requests,
    kv_tokens=KV_TOKENS,
    block=BLOCK,
)
"""The same engine in the simulator."""

CAPACITY = 19.8
"""Requests a second at which an oracle's mean wait is twice the mean own prefill, as `--capacity` finds."""
GROUPS = 6
PROMPT_TOKENS = (2000, 4000)
SHARED = 0.8
"""Share of requests that belong to a group; the others are unique, one turn each."""
MEAN_TURNS = 5.0
SHORTEST_THINK, MORE_THINK = 1.0, 19.0
"""Seconds between an answer and the next turn: the first, and a mean on top of it, exponential."""
PAUSE = SHORTEST_THINK + MORE_THINK + 2.0
"""Seconds between two turns, an answer of usual length included."""


def sessions(rate: float, until: float, seed: int) -> list[Session]:
    """`rate` requests a second from the beginning on; no session begins after `until` seconds."""
    author = Author(seed)
    draw = author.draw
    pick = zipf(draw, GROUPS)
    roots = [author.root(draw.randint(*PROMPT_TOKENS), group) for group in range(GROUPS)]
    answer = lognormal(draw, 60, 0.7, 4, 400)

    def think() -> float:
        return SHORTEST_THINK + draw.expovariate(1 / MORE_THINK)

    talk = Talk(lognormal(draw, 80, 0.8, 8, 2000), answer, think)
    alone = Talk(lognormal(draw, 1000, 0.8, 32, 4000), answer, think)
    # those that are under way have as many turns to come as those that begin: a geometric number has no memory
    under_way = [draw.expovariate(1 / PAUSE) for _ in range(round(rate * SHARED * (1 - 1 / MEAN_TURNS) * PAUSE))]
    begun = (*under_way, *poisson(draw, rate * SHARED / MEAN_TURNS, until))
    found = [author.session(at, roots[pick()], geometric(draw, MEAN_TURNS, MOST_TURNS), talk) for at in begun]
    found += [author.session(at, author.lone(), 1, alone) for at in poisson(draw, rate * (1 - SHARED), until)]
    return sorted((each for each in found if each.began < until), key=lambda session: session.began)
