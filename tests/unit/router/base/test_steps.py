import asyncio
import gc

import pytest

from promptgroup_router.base import steps as steps_module
from promptgroup_router.base.steps import RUN, at_once, filtered_steps, in_slices, sorted_steps


def test_all_steps_run_and_the_result_is_that_of_the_last():
    done = []

    def steps():
        for number in range(3):
            done.append(number)
            yield
        return sum(done)

    assert at_once(steps()) == 3
    assert done == [0, 1, 2]


def test_many_values_are_sorted_in_steps():
    values = [(number * 7919) % 10_007 for number in range(10 * RUN)]
    steps = sorted_steps(values, lambda each: each // 10)
    assert at_once(steps) == sorted(values, key=lambda each: each // 10)
    assert sum(1 for _ in sorted_steps(values, str)) == 20


def test_many_values_are_filtered_in_steps():
    values = list(range(10 * RUN + 1))
    assert at_once(filtered_steps(values, lambda value: value % 3 == 0)) == values[::3]
    assert sum(1 for _ in filtered_steps(values, bool)) == 11
    assert at_once(filtered_steps([], bool)) == []


def test_others_have_their_turn_between_slices(monkeypatch):
    monkeypatch.setattr(steps_module, "SLICE_SECONDS", 0.0)
    turns = []

    def steps():
        for _ in range(3):
            yield
        return len(turns)

    async def check():
        for number in range(9):
            asyncio.get_running_loop().call_soon(turns.append, number)
        return await in_slices(steps())

    assert asyncio.run(check()) == 9


class Row:
    """Something that garbage collections visit."""


@pytest.mark.parametrize("lasting", [True, False])
def test_what_lasts_is_visited_by_no_collection(lasting):
    made = []

    def steps():
        for _ in range(3):
            made.append(Row())
            yield

    asyncio.run(in_slices(steps(), lasting=lasting))
    visited = {id(thing) for thing in gc.get_objects()}
    assert [id(row) in visited for row in made] == [not lasting] * 3
