"""The engine's fast-forward against the stand-in engine's scheduler, which computes every step."""

import random

import pytest

from promptgroup_local.engine.answer import Answer, Finish
from promptgroup_local.engine.kvcache import KVCache, TokenSequence
from promptgroup_local.engine.scheduler import Cost, Limits, Request, Scheduler
from promptgroup_research.simulator.engine import Engine, Model
from promptgroup_research.simulator.turns import Session, Turn

MODEL = Model()


def load(seed, count, gap):
    """(arrival, prompt, answer) of requests that share nothing."""
    draw = random.Random(seed)
    now, found = 0.0, []
    for _ in range(count):
        now += draw.expovariate(1 / gap)
        found.append((now, draw.choice((20, 300, 3000, 20_000)), draw.randint(1, 600)))
    return found


def simulated(requests, model=MODEL):
    """(first token, end) of each request."""
    told = []
    engine = Engine(
        0, model, lambda turn, now: told.append(("first", turn, now)), lambda turn, now: told.append(("end", turn, now))
    )
    turns = [
        Turn(Session(index, 0, 0, when), (index,), (prompt,), output, 0)
        for index, (when, prompt, output) in enumerate(requests)
    ]
    pending = [(when, turn) for (when, _, _), turn in zip(requests, turns, strict=True)]
    wake = None
    while pending or wake is not None:
        if pending and (wake is None or pending[0][0] < wake):
            when, turn = pending.pop(0)
            wake = engine.arrive(turn, when) or wake
        else:
            wake = engine.due()
    assert [kind for kind, _, _ in told].count("end") == len(turns)
    assert engine.running == 0
    assert engine.cache.held == 0
    return [(turn.first, turn.ended) for turn in turns]


def stepped(requests):
    """The same by the scheduler."""
    scheduler = Scheduler(KVCache(400_000 // 16, 16), Cost(), Limits())
    pending = [
        (
            when,
            Request(
                TokenSequence([index * 100_000 + at for at in range(prompt)]),
                Answer((7,) * output, Finish.LENGTH),
                when,
            ),
        )
        for index, (when, prompt, output) in enumerate(requests)
    ]
    everyone = [request for _, request in pending]
    first, ended, now = {}, {}, 0.0
    while len(ended) < len(everyone):
        while pending and pending[0][0] <= now:
            scheduler.add(pending.pop(0)[1])
        step = scheduler.schedule(now)
        if step is None:
            now = pending[0][0]
            continue
        now += step.seconds
        for request, finish in scheduler.complete(step):
            first.setdefault(id(request), now)
            if finish is not None:
                ended[id(request)] = now
    return [(first[id(request)], ended[id(request)]) for request in everyone]


@pytest.mark.parametrize(("seed", "gap"), [(1, 0.05), (2, 0.5), (3, 5.0)])
def test_first_tokens_and_ends_come_when_the_scheduler_has_them(seed, gap):
    requests = load(seed, 40, gap)
    for ours, theirs in zip(simulated(requests), stepped(requests), strict=True):
        # half a position's attention of every chunk is not counted here: 15 microseconds for a full step
        assert ours == pytest.approx(theirs, abs=0.002)


def test_one_more_than_fit_waits_for_an_end():
    model = Model(kv_tokens=1000)
    ends = simulated([(0.0, 500, 50), (0.0, 500, 50)], model)
    assert ends[1][0] > ends[0][1]


def test_what_dies_is_returned_once_and_nothing_is_cached_after():
    engine = Engine(0, MODEL, lambda *_: None, lambda *_: None)
    turns = [Turn(Session(index, 0, 0, 0.0), (index,), (6000,), 10, 0) for index in range(4)]
    for turn in turns:
        engine.arrive(turn, 0.0)
    engine.due()
    assert sorted(id(turn) for turn in engine.kill()) == sorted(map(id, turns))
    assert (engine.cache.used, engine.running, len(engine.waiting)) == (0, 0, 0)
