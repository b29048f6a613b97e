"""Choices of a router that knows all: which engine computes, and which generates."""

from promptgroup_research.disaggregation.pair_policy import PairOracle
from promptgroup_research.disaggregation.pair_world import Link, PairWorld
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.turns import Session, Turn

LINK = Link("fast", 0.005, 0.000_002)


def world_of(threshold=512, model=None):
    router = PairOracle(threshold)
    return router, PairWorld(router, [], 4, 2, model=model or Model(), link=LINK)


def turn(node, prompt, output=50):
    return Turn(Session(node, 0, 0, 0.0), (node,), (prompt,), output, 0)


def placed(router, world, request):
    replica = router.place(request, 0.0)
    return replica, router.prefiller(request)


def test_only_prompts_above_the_threshold_are_computed_elsewhere():
    router, world = world_of()
    assert placed(router, world, turn(1, 512))[1] is None
    assert placed(router, world, turn(2, 513))[1] in world.prefillers


def test_a_prompt_goes_to_the_engines_that_have_it():
    router, world = world_of()
    world.engines[1].warm(7, 4000)
    assert placed(router, world, turn(7, 4000))[1] == 1
    world.engines[3].warm(8, 4000)
    assert placed(router, world, turn(8, 4000)) == (3, None)


def test_requests_on_their_way_count():
    router, world = world_of()
    chosen = []
    for node in range(1, 5):
        request = turn(node, 4000)
        replica = router.place(request, 0.0)
        chosen.append(replica)
        world.send(request, replica)
    assert sorted(chosen) == [2, 2, 3, 3]


def test_an_engine_without_room_is_the_last_choice():
    router, world = world_of(model=Model(kv_tokens=8000))
    world.engines[3].warm(9, 4000)
    world.engines[3].cache.admit((1,), (7000,), 100)
    assert placed(router, world, turn(9, 4000))[0] == 2
