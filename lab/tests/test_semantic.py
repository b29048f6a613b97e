"""The made-up questions, and how the shares are counted."""

from array import array

from promptgroup_research.semantic import faq, intents, traps
from promptgroup_research.semantic.__main__ import words
from promptgroup_research.semantic.faq import Question
from promptgroup_research.semantic.shares import agents, made_up_faq, open_ended, recorded_questions, shares
from promptgroup_router.semantic.embedding import unit


def about(text: str) -> "array[float]":
    """An embedding that knows two subjects."""
    return unit([1, len(text) / 1000]) if "return" in text else unit([0, 1])


def test_half_of_the_pairs_have_one_answer_and_none_is_a_question_with_itself():
    pairs = faq.pairs(1)
    assert sum(pair.same for pair in pairs) * 2 == len(pairs) > 1000
    assert all(pair.one != pair.other for pair in pairs if not pair.same)
    assert faq.pairs(1) == pairs


def test_no_trap_is_in_the_same_words():
    pairs = traps.pairs()
    assert len(set(pairs)) == len(pairs) > 50
    assert all(words(pair.one) != words(pair.other) and not pair.same for pair in pairs)
    assert words("Please open an account!") == words("open the account") != words("account open")


def test_a_question_is_paired_with_those_before_it_that_are_the_nearest():
    questions = [Question("r", "return one"), Question("x", "other"), Question("r", "return two")]
    made = intents.pairs(questions, lambda texts: [about(text) for text in texts])
    assert [(pair.one, pair.other, pair.same) for pair in made] == [
        ("other", "return one", False),
        ("return two", "return one", True),
        ("return two", "other", False),
    ]


def test_what_repeats_is_exact_and_what_is_similar_is_semantic():
    questions = [
        Question("r", "A return?"),
        Question("r", "A return?"),
        Question("r", "return it"),
        Question("x", "Why?"),
    ]
    found = shares(recorded_questions(questions), about, 0.9)
    assert found == (4, 1, 1, 0)
    assert shares(recorded_questions(questions), None, 0.9) == (4, 1, 0, 0)
    wrong = [Question("r", "A return?"), Question("s", "return it")]
    assert shares(recorded_questions(wrong), about, 0.9) == (2, 0, 1, 1)


def test_agents_and_chats_that_sample_have_no_questions():
    assert shares(agents(30, 1), about, 0.1).semantic == 0
    assert shares(open_ended(10, 1), about, 0.1) == (50, 0, 0, 0)
    assert shares(made_up_faq(300, 1), None, 0.9).exact > 100
