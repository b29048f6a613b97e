import itertools

import pytest

from promptgroup_local.engine.tokenizer import tokenize
from promptgroup_local.load.prompts import TASKS, system_prompt

PROMPTS = {(task, release): system_prompt(task, release) for task in TASKS for release in (1, 2)}


@pytest.mark.parametrize("prompt", PROMPTS.values())
def test_a_prompt_is_as_long_as_real_ones(prompt: str) -> None:
    assert 1500 <= len(tokenize(prompt)) <= 2500


def test_no_prompt_is_a_prefix_of_another() -> None:
    for one, two in itertools.permutations(PROMPTS.values(), 2):
        assert not one.startswith(two)


def test_tasks_differ_from_their_first_sentence_on() -> None:
    openings = {system_prompt(task)[:16] for task in TASKS}
    assert len(openings) == len(TASKS)


def test_a_release_is_the_same_every_time_and_keeps_the_opening() -> None:
    assert system_prompt("code", 2) == PROMPTS["code", 2]
    assert PROMPTS["code", 2].splitlines()[0] == PROMPTS["code", 1].splitlines()[0]
