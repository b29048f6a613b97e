import pytest

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.callers.longest_answer import MOST, UNSTATED, longest_answer

CHAT, TEXT = ApiKind.CHAT, ApiKind.TEXT


@pytest.mark.parametrize(
    ("kind", "body", "most"),
    [
        (CHAT, {"max_tokens": 5}, 5),
        (CHAT, {"max_completion_tokens": 9, "max_tokens": 7}, 9),
        (CHAT, {"max_completion_tokens": 7, "max_tokens": 9}, 9),
        (CHAT, {"max_tokens": 5, "n": 3}, 15),
        (CHAT, {"max_tokens": 10**30, "n": 10**30}, MOST),
        (TEXT, {"max_completion_tokens": 1, "max_tokens": 9}, 9),
        (TEXT, {"max_tokens": 9, "n": 2, "best_of": 4}, 36),
        (TEXT, {"max_tokens": 9, "n": 2, "prompt": ["a", "b", "c"]}, 54),
        (TEXT, {"max_tokens": 9, "prompt": [[1, 2], [3]]}, 18),
        (TEXT, {"max_tokens": 9, "prompt": [1, 2, 3]}, 9),
        (ApiKind.RESPONSES, {"max_output_tokens": 3, "max_tokens": 1}, 3),
        (ApiKind.MESSAGES, {"max_tokens": 3, "max_completion_tokens": 1, "n": 5}, 3),
    ],
)
def test_the_length_of_answers_is_what_the_body_allows_on_its_api(kind, body, most):
    assert longest_answer(kind, body) == (most, True)


@pytest.mark.parametrize("value", ["x", -5, 0, 1.0, None, [1], 1e300, float("nan")])
def test_what_is_no_length_states_none(value):
    assert longest_answer(CHAT, {"max_tokens": value, "n": value}) == (UNSTATED, False)


def test_several_answers_without_a_stated_length_have_as_much_reserved_each():
    assert longest_answer(CHAT, {"n": 100, "max_output_tokens": 1}) == (100 * UNSTATED, False)
