"""Time between tokens, as engines make them."""

import pytest

from promptgroup_research.disaggregation.token_gaps import Gap, WatchedEngine, gap_percentile, gaps_of
from promptgroup_research.simulator.engine import Engine, Model
from promptgroup_research.simulator.turns import Session, Turn

MODEL = Model()


def turn(node, prompt, output):
    return Turn(Session(node, 0, 0, 0.0), (node,), (prompt,), output, 0)


def ran(*arrivals):
    """An engine that served requests, as (when, request)."""
    engine = WatchedEngine(0, MODEL, lambda *_: None, lambda *_: None)
    pending, due = list(arrivals), None
    while pending or due is not None:
        if pending and (due is None or pending[0][0] <= due):
            when, request = pending.pop(0)
            changed = engine.arrive(request, when)
            due = due if changed is None else changed
        else:
            due = engine.due()
    return engine


def test_each_token_but_the_first_ends_a_gap():
    engine = ran((0.0, turn(1, 100, 50)), (0.01, turn(2, 100, 30)))
    assert sum(gap.count for gap in engine.gaps) == 49 + 29


def test_the_gaps_of_an_answer_are_its_time():
    request = turn(1, 100, 50)
    engine = ran((0.0, request))
    assert sum(gap.seconds * gap.count for gap in engine.gaps) == pytest.approx(request.ended - request.first)


def test_a_long_prompt_makes_others_wait_for_a_token():
    alone = ran((0.0, turn(1, 100, 200)))
    beside = ran((0.0, turn(1, 100, 200)), (0.5, turn(2, 8000, 1)))
    worst = [gaps_of([engine], 0.0, 10.0)[-1].seconds for engine in (alone, beside)]
    assert worst[1] > MODEL.prefill(0, 8000) > 20 * worst[0]


def test_percentiles_count_gaps_and_not_steps():
    gaps = [Gap(0.01, 98, 0.0), Gap(0.5, 1, 1.0), Gap(0.9, 1, 2.0)]
    assert [gap_percentile(gaps, share) for share in (0.5, 0.98, 0.99, 1.0)] == [0.01, 0.01, 0.5, 0.9]
    assert gap_percentile([], 0.99) == 0.0


def test_only_a_time_is_looked_at_and_engines_that_are_not_watched_tell_nothing():
    engine = WatchedEngine(0, MODEL, lambda *_: None, lambda *_: None)
    engine.gaps += [Gap(0.2, 1, 1.0), Gap(0.1, 1, 2.0), Gap(0.3, 1, 3.0)]
    plain = Engine(1, MODEL, lambda *_: None, lambda *_: None)
    assert gaps_of([engine, plain], 1.0, 3.0) == [Gap(0.1, 1, 2.0), Gap(0.2, 1, 1.0)]
