"""The two steps of a request: what is computed, what is copied, and what is cached where."""

import pytest

from promptgroup_research.disaggregation.pair_world import Link, PairWorld
from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.turns import Session, Turn

MODEL = Model()
LINK = Link("slow", 0.1, 0.001)


class Fixed(Peer):
    """Sends every request to the last engine; the first one computes the prompts of those that are `apart`."""

    def __init__(self, apart):
        super().__init__()
        self._apart = apart

    def choose(self, turn, now):
        return self.world.up[-1]

    def prefiller(self, turn):
        return 0 if turn.prompt in self._apart else None


def sessions(*lengths, turns=1, answer=5):
    """A session for each length of the first message; later turns add 100 tokens."""
    result = []
    for number, length in enumerate(lengths, start=1):
        session = Session(number, 0, 0, 0.0)
        nodes, sizes = (), ()
        for index in range(turns):
            nodes, sizes = (*nodes, number * 100 + index), (*sizes, 100 if index else length)
            session.turns.append(Turn(session, nodes, sizes, answer, index, think=1.0 if index else 0.0))
            sizes = (*sizes[:-1], sizes[-1] + answer)
        result.append(session)
    return result


def played(apart, some):
    world = PairWorld(Fixed(apart), some, 2, 1, model=MODEL, link=LINK)
    world.run(1000.0)
    assert all(turn.ended > 0 for turn in world.turns)
    assert world.coming[1] == 0
    return world


def test_the_first_token_comes_after_prefill_and_transfer():
    world = played({3000}, sessions(3000))
    (request,) = world.turns
    prefill = MODEL.overhead + MODEL.prefill(0, 3000)
    transfer = LINK.latency + 3000 * LINK.token
    step = MODEL.overhead + MODEL.prefill(2999, 1)
    assert request.ttft == pytest.approx(prefill + transfer + step)
    assert (world.computed[request], world.copied[request], request.cached) == (3000, 3000, 2999)


def test_a_request_that_is_not_split_is_served_as_ever():
    world = played(set(), sessions(3000))
    (request,) = world.turns
    assert request.ttft == pytest.approx(MODEL.overhead + MODEL.prefill(0, 3000))
    assert (request.cached, world.computed, world.copied) == (0, {}, {})
    assert world.engines[0].cache.used == 0


def test_only_what_the_decode_engine_lacks_is_copied():
    world = played({3000, 3105}, sessions(3000, turns=2))
    second = world.turns[1]
    # the decode engine has the answer of the first turn; the prefill engine does not, but for its one token
    assert world.copied[second] == 3105 - 3005 // 16 * 16
    assert world.computed[second] == 3105 - 3001 // 16 * 16


def test_transfers_to_one_engine_follow_each_other():
    world = played({3000, 3001}, sessions(3000, 3001))
    first, second = sorted(world.turns, key=lambda turn: turn.first)
    assert second.first - first.first >= 3000 * LINK.token


def test_requests_are_placed_on_decode_engines_alone():
    assert PairWorld(Fixed(set()), [], 8, 3, model=MODEL, link=LINK).up == (3, 4, 5, 6, 7)
