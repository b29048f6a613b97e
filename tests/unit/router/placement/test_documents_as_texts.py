"""Text completions that begin with one of several documents, which need more than the caches have together."""

import random

import pytest

from promptgroup_router.apis.usage import Usage
from promptgroup_router.policy.demand import Demand
from support.placements import pair

DOCUMENTS = 60
TOKENS = 9_000


def question(draw, document):
    """A question about a document: two questions about it differ behind the document alone."""
    words = draw.randrange(10, 100)
    return Demand(
        document,
        document,
        prompt=TOKENS + words,
        tier1=2000,
        marks=[100 * document, 100 * document + 1],
        lengths=[4000, 8000],
        estimated_bytes=4 * (TOKENS + words),
        declared=False,
    )


@pytest.mark.parametrize("routers", [1, 2])
def test_questions_about_documents_are_admitted_though_the_caches_hold_few_of_them(routers):
    candidates, *balancers = pair()
    draw, now, in_flight = random.Random(5), 0.0, []
    for number in range(400):
        balancer = balancers[number % routers]
        pick = balancer.pick(candidates, question(draw, 1 + int(DOCUMENTS * draw.random() ** 2)), now)
        assert pick is not None, f"question {number} finds no room"
        in_flight.append((balancer, pick))
        if len(in_flight) == 12:
            before, done = in_flight.pop(0)
            before.placed.first_token(done, now)
            before.placed.end(done, Usage(done.demand.prompt, int(done.cached), 50), now)
        now += 0.1
        for speaker in balancers[:routers]:
            placements, loads = speaker.peers.export(now)
            for other in balancers[:routers]:
                if other is not speaker:
                    other.peers.merge(id(speaker), placements, loads, now)


def test_texts_that_grow_wait_for_room_as_chats_do():
    candidates, balancer, _ = pair()
    now, refused = 0.0, 0
    for turn in range(6):
        for session in range(1, 61):
            size = 5_000 + 1_000 * turn
            pick = balancer.pick(candidates, Demand(session, session, prompt=size, estimated_bytes=4 * size), now)
            now += 0.02
            if pick is None:
                refused += 1
                continue
            balancer.placed.first_token(pick, now)
            balancer.placed.end(pick, Usage(size, int(pick.cached), 50), now)
    assert refused > 60
