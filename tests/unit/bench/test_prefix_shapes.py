import pytest

from bench.prefix.shapes import CHAT, REQUESTS, SHAPES, talks


@pytest.mark.parametrize("shape", SHAPES)
def test_a_seed_asks_the_same_and_another_one_something_else(shape):
    assert talks(shape, 1) == talks(shape, 1)
    assert talks(shape, 1) != talks(shape, 2)
    assert sum(1 + len(each.later) for each in talks(shape, 1)) == REQUESTS


def test_prefixes_stand_where_the_shape_says():
    for shape, role in (("message", "user"), ("system", "system")):
        asked = [each.body["messages"][0] for each in talks(shape, 1)]
        assert {each["role"] for each in asked} == {role}
        assert 40 <= len({each["content"][:8000] for each in asked}) <= 48
    assert all("prompt" in each.body and each.path != CHAT for each in talks("texts", 1))
