import pytest

from promptgroup_router.apis.tokens import FIRST, MODELS, Tokens


def test_until_an_answer_came_a_token_is_four_bytes():
    assert Tokens().per_byte("llama") == FIRST


def test_models_are_learned_apart_within_a_few_answers():
    tokens = Tokens()
    for _ in range(20):
        tokens.learn("llama", 6000, 3000)
    assert tokens.per_byte("llama") == pytest.approx(0.5, abs=0.05)
    assert tokens.per_byte("qwen") == FIRST


def test_it_follows_when_what_is_written_changes():
    tokens = Tokens()
    for _ in range(10_000):
        tokens.learn("llama", 6000, 1500)
    for _ in range(3000):
        tokens.learn("llama", 6000, 2400)
    assert tokens.per_byte("llama") == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (0, 512),  # a prompt of tokens
        (11, 1100),  # an image beside a question
        (2, 9),  # the template's words around a short message
        (100_000, 7),  # invented
        (6000, 0),
        (6000, -50),  # less than what was counted before
    ],
)
def test_what_cannot_be_about_this_text_teaches_nothing(text, tokens):
    learned = Tokens()
    for _ in range(100):
        learned.learn("llama", text, tokens)
    assert learned.per_byte("llama") == FIRST


def test_one_long_text_outweighs_no_traffic():
    tokens = Tokens()
    for _ in range(300):
        tokens.learn("llama", 6000, 1500)
    tokens.learn("llama", 50_000_000, 50_000_000)
    assert tokens.per_byte("llama") < 0.28


def test_models_are_bounded_and_the_oldest_goes():
    tokens = Tokens()
    for number in range(MODELS + 1):
        tokens.learn(f"m{number}", 60_000, 30_000)
    assert len(tokens._sums) == MODELS
    assert tokens.per_byte("m0") == FIRST
    assert tokens.per_byte("m1") > FIRST
