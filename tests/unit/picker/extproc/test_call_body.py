import pytest

from promptgroup_picker.extproc.call_body import CallBody
from promptgroup_router.proxy.body_budget import BodyBudget

KIB = 1 << 10


def test_a_body_is_the_parts_that_came_and_takes_their_memory():
    budget = BodyBudget(1 << 20)
    body = CallBody(budget, 1 << 16)
    assert body.take_head(100)
    assert body.add(b"ab") is None
    assert body.add(b"cd") is None
    body.join()
    assert (body.whole, budget.used) == (b"abcd", 104)
    body.free()
    assert (body.whole, budget.used) == (b"", 0)


def test_a_body_of_one_part_is_not_copied():
    part = b"x" * 100
    body = CallBody(BodyBudget(1 << 20), 1 << 16)
    body.add(part)
    body.join()
    assert body.whole is part


def test_a_large_message_takes_its_memory_before_it_comes():
    budget = BodyBudget(1 << 20)
    body = CallBody(budget, 1 << 18)
    assert body.expect(200 * KIB, 16) is None
    assert budget.used == 200 * KIB
    body.came()
    assert budget.used == 0
    assert body.expect_other(10 * KIB)
    body.drop()
    assert budget.used == 0


@pytest.mark.parametrize(
    ("most", "memory", "refusal"),
    [
        (100 * KIB, 1 << 20, (413, "body_too_large")),
        (400 * KIB, 100 * KIB, (503, "body_memory")),
    ],
    ids=["more than a body may have", "more than is left"],
)
@pytest.mark.parametrize("way", ["add", "expect"])
def test_what_does_not_fit_is_refused_and_takes_nothing(most, memory, refusal, way):
    budget = BodyBudget(memory)
    body = CallBody(budget, most)
    problem = body.add(b"x" * 200 * KIB) if way == "add" else body.expect(200 * KIB, 16)
    assert (problem.status, problem.code) == refusal
    assert budget.used == 0
