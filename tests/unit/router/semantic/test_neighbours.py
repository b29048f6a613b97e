"""Which remembered questions are near."""

import random
from operator import mul

import pytest

from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.semantic.embedding import unit
from promptgroup_router.semantic.neighbours import QuestionIndex
from promptgroup_router.semantic.question import Circumstances, Question

HERE, THERE = Circumstances(b"here"), Circumstances(b"there")


def key(n: int) -> CacheKey:
    return CacheKey(n.to_bytes(32, "big"))


def index_of(*vectors, circumstances=HERE, limit=1000):
    index = QuestionIndex(("url", "m"))
    for number, vector in enumerate(vectors):
        index.add(Question(f"question {number}", circumstances), unit(vector), key(number), limit)
    return index


def found(index, vector, threshold=0.5, circumstances=HERE):
    near = index.nearest(Question("Why?", circumstances), unit(vector), threshold)
    return [int.from_bytes(each.key, "big") for each in near]


def test_the_most_similar_comes_first_and_what_is_not_similar_does_not_come():
    index = index_of([1, 0], [1, 1], [0, 1], [-1, 0])
    assert found(index, [1, 0.2]) == [0, 1]
    assert found(index, [1, 0.2], threshold=0.99) == []


def test_questions_asked_in_other_circumstances_do_not_meet():
    assert found(index_of([1, 0]), [1, 0], circumstances=THERE) == []


def test_embeddings_of_another_model_are_not_compared():
    assert found(index_of([1, 0, 0]), [1, 0]) == []


def test_the_oldest_leave():
    index = index_of([1, 0], [1, 0.1], [1, 0.2], limit=2)
    assert len(index) == 2
    assert set(found(index, [1, 0])) == {1, 2}
    index.shrink(0)
    assert found(index, [1, 0]) == []
    assert index._by_circumstances == {}, "nothing is left of them"


def test_a_question_is_remembered_once_for_an_answer():
    index = index_of([1, 0])
    index.add(Question("Again?", HERE), unit([0, 1]), key(0), 10)
    assert (len(index), found(index, [0, 1]), found(index, [1, 0])) == (1, [0], [])


@pytest.mark.heavy
def test_among_many_the_nearest_is_found_by_signatures():
    draws = random.Random(7)
    bias = [draws.gauss(0, 1) for _ in range(128)]  # as where all embeddings of a model lean to one side
    vectors = [[b + draws.gauss(0, 1) for b in bias] for _ in range(2000)]
    index = index_of(*vectors, limit=2000)
    units = [unit(vector) for vector in vectors]
    hits = 0
    for number in range(0, 2000, 40):
        asked = [value + draws.gauss(0, 0.5) for value in vectors[number]]
        nearest = max(range(2000), key=lambda n: sum(map(mul, units[n], asked)))
        hits += found(index, asked)[:1] == [nearest]
    assert hits == 50
