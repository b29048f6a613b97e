import pytest
from pydantic import TypeAdapter

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.callers.longest_answer import MOST, SAYING, UNSTATED, longest_answer

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
        (ApiKind.RESPONSES, {"max_output_tokens": 3, "max_tokens": 1}, 3),
        (ApiKind.MESSAGES, {"max_tokens": 3, "max_completion_tokens": 1, "n": 5}, 3),
    ],
)
def test_the_length_of_answers_is_what_the_body_allows_on_its_api(kind, body, most):
    assert longest_answer(kind, body) == (most, True)


@pytest.mark.parametrize("value", ["x", "-5", "0", "1.5", "1e2", 0.5, -5, 0, None, [1], 1e300, float("nan")])
def test_what_is_no_length_states_none(value):
    assert longest_answer(CHAT, {"max_tokens": value, "n": value}) == (UNSTATED, False)


def test_several_answers_without_a_stated_length_have_as_much_reserved_each():
    assert longest_answer(CHAT, {"n": 100, "max_output_tokens": 1}) == (100 * UNSTATED, False)


SPELLINGS = ["8", " 8\n", "+8", "08", "8.0", "8_0", 8.0, 8e0, True, "1", 10**19, "1" * 30]


@pytest.mark.parametrize("value", SPELLINGS, ids=str)
@pytest.mark.parametrize("name", sorted(SAYING))
def test_a_number_counts_in_every_spelling_that_engines_take(name, value):
    plain = TypeAdapter(int).validate_python(value)
    for kind in ApiKind:
        assert longest_answer(kind, {name: value}) == longest_answer(kind, {name: plain})
        stated = {"max_tokens": "500", "max_output_tokens": "500"}
        assert longest_answer(kind, stated | {name: value}) == longest_answer(kind, stated | {name: plain})


def test_each_prompt_has_answers_of_its_own():
    assert longest_answer(TEXT, {"max_tokens": 9, "n": 2}, 3) == (54, True)
    assert longest_answer(TEXT, {}, 3) == (3 * UNSTATED, False)
    assert longest_answer(TEXT, {"max_tokens": 9, "n": 10**9}, 10**6) == (MOST, True)


def test_eight_answers_are_reserved_as_eight():
    assert longest_answer(CHAT, {"n": "8", "max_tokens": "500"}) == (4000, True)
