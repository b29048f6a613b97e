import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgroup_local.engine.answer import Answer, Finish
from promptgroup_local.engine.kvcache import KVCache, TokenSequence
from promptgroup_local.engine.scheduler import Cost, Limits, Request, Scheduler, State

NO_ATTENTION = Cost(prefill_rate=1000, attention_length=1e18, step=1, decode_sequence=0.1, decode_kilotoken=0)


def request(start: int, prompt: int, answer: int = 3) -> Request:
    return Request(TokenSequence(list(range(start, start + prompt))), Answer((1,) * answer, Finish.LENGTH), arrived=0.0)


def scheduler(*, blocks: int = 1000, tokens: int = 8192, requests: int = 256, cost: Cost = NO_ATTENTION) -> Scheduler:
    return Scheduler(KVCache(blocks, 4), cost, Limits(tokens, requests))


def run(engine: Scheduler, most: int = 10_000) -> list[Request]:
    """Step to the end; the requests in the order in which they ended."""
    ended = []
    for now in range(most):
        step = engine.schedule(float(now))
        if step is None:
            return ended
        ended += [request for request, finish in engine.complete(step) if finish]
    raise AssertionError(f"work left after {most} steps")


def test_without_work_there_is_no_step() -> None:
    assert scheduler().schedule(0) is None


def test_a_prompt_is_prefilled_then_a_token_comes_each_step() -> None:
    engine = scheduler()
    only = request(0, 100)
    engine.add(only)
    step = engine.schedule(5.0)
    assert step is not None
    assert step.seconds == pytest.approx(1 + 0.1)
    assert (step.admitted, only.admitted, only.state) == ((only,), 5.0, State.RUNNING)
    assert engine.complete(step) == [(only, None)]
    for finish in (None, Finish.LENGTH):
        step = engine.schedule(6.0)
        assert step is not None
        assert step.seconds == pytest.approx(1 + 0.1)
        assert engine.complete(step) == [(only, finish)]
    assert (engine.schedule(7.0), only.state) == (None, State.ENDED)


def test_a_long_prompt_is_prefilled_in_chunks_beside_those_who_decode() -> None:
    engine = scheduler(tokens=50)
    short, long = request(0, 10), request(1000, 100)
    engine.add(short)
    engine.add(long)
    chunks = []
    while long.produced == 0:
        before = long.computed
        step = engine.schedule(0)
        assert step is not None
        engine.complete(step)
        chunks.append(long.computed - before)
    assert chunks == [40, 49, 11]
    assert short.produced == 3


def test_admission_is_first_come_first_served_up_to_the_limit() -> None:
    engine = scheduler(requests=2)
    three = [request(100 * number, 10) for number in range(3)]
    for one in three:
        engine.add(one)
    step = engine.schedule(0)
    assert step is not None
    assert step.admitted == (three[0], three[1])
    assert list(engine.waiting) == [three[2]]
    engine.complete(step)
    assert run(engine) == three


def test_a_cached_prefix_is_not_computed_again_and_the_answer_is_cached_too() -> None:
    engine = scheduler()
    first = request(0, 16, answer=9)
    engine.add(first)
    run(engine)
    again = Request(TokenSequence([*range(16), *(1,) * 9, 5]), Answer((1,), Finish.LENGTH), arrived=0)
    engine.add(again)
    step = engine.schedule(0)
    assert step is not None
    assert again.cached == 24  # of 16 + 9 tokens the last one was never computed
    assert step.seconds == pytest.approx(1 + 2 / 1000)


def test_who_finds_no_room_pushes_out_the_one_admitted_last_who_then_resumes_first() -> None:
    engine = scheduler(blocks=6)
    first, second, third = request(0, 8, answer=12), request(100, 8, answer=12), request(200, 12, answer=1)
    for one in (first, second, third):
        engine.add(one)
    preempted: list[Request] = []
    ended = []
    while (step := engine.schedule(0)) is not None:
        preempted += step.preempted
        ended += [request for request, finish in engine.complete(step) if finish]
    assert preempted == [second]
    assert ended == [first, second, third]
    assert (second.produced, second.cached) == (12, 0)


def test_an_aborted_request_gets_nothing_more_and_frees_its_blocks() -> None:
    cache = KVCache(100, 4)
    engine = Scheduler(cache, NO_ATTENTION, Limits())
    runs, waits = request(0, 10), request(100, 10)
    engine.add(runs)
    step = engine.schedule(0)
    assert step is not None
    engine.add(waits)
    engine.abort(runs)
    engine.abort(waits)
    engine.abort(runs)
    assert engine.complete(step) == []
    assert cache.free == cache.capacity
    assert engine.schedule(0) is None


def test_a_prompt_token_costs_more_the_deeper_it_stands() -> None:
    cost = Cost(prefill_rate=10_000, attention_length=30_000)
    assert cost.prefill(30_000, 1) == pytest.approx(2 * cost.prefill(0, 1))
    assert cost.prefill(0, 100) + cost.prefill(100, 50) == pytest.approx(cost.prefill(0, 150))
    assert cost.decode(10, 4000) == pytest.approx(10 * 0.06e-3 + 4 * 0.04e-3)


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=12),
    st.integers(15, 40),
    st.integers(1, 64),
    st.integers(1, 4),
    st.data(),
)
def test_every_request_ends_with_its_whole_answer_whatever_the_room(
    shapes: list[tuple[int, int, int]], blocks: int, tokens: int, requests: int, data: st.DataObject
) -> None:
    cache = KVCache(blocks, 4)
    engine = Scheduler(cache, NO_ATTENTION, Limits(tokens, requests))
    added = [request(1000 * family, prompt, answer) for family, prompt, answer in shapes]
    for one in added:
        engine.add(one)
    aborted = set()
    for _ in range(5000):
        step = engine.schedule(0)
        if step is None:
            break
        assert len(engine.running) <= requests
        if data.draw(st.integers(0, 19)) == 0:
            victim = data.draw(st.sampled_from(added))
            engine.abort(victim)
            aborted.add(id(victim))
        engine.complete(step)
    assert engine.schedule(0) is None
    assert all(one.produced == len(one.answer.tokens) or id(one) in aborted for one in added)
    assert cache.free == cache.capacity
