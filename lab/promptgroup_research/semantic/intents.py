"""Questions of a file that names the intent of each, such as BANKING77 (Casanueva et al., 2020): text and category."""

import csv
import random
from collections.abc import Sequence
from operator import mul
from pathlib import Path

from promptgroup_cli.calibration.endpoint import Embed
from promptgroup_cli.calibration.pairs import Pair
from promptgroup_research.semantic.faq import Question

NEAREST = 3
"""Pairs per question: with the nearest ones, which a cache would return."""


def read(path: Path, seed: int) -> list[Question]:
    """Return the questions of a file in an order that the seed decides; an intent counts as an answer."""
    with path.open(newline="", encoding="utf-8") as file:
        questions = [Question(row["category"], row["text"].strip()) for row in csv.DictReader(file)]
    random.Random(seed).shuffle(questions)  # noqa: S311 - a sample
    return questions


def pairs(questions: Sequence[Question], embed: Embed) -> list[Pair]:
    """Return each question with those before it that are the nearest: the pairs that a cache of these would compare."""
    vectors = embed([question.text for question in questions])
    result = []
    for number, question in enumerate(questions):
        mine = vectors[number]
        cosines = [(sum(map(mul, mine, vectors[other])), other) for other in range(number)]
        for _, other in sorted(cosines, reverse=True)[:NEAREST]:
            before = questions[other]
            result.append(Pair(question.text, before.text, same=question.answer == before.answer))
    return result
