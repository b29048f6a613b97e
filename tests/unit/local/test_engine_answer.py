from promptgroup_local.engine.answer import Finish, answer
from promptgroup_local.engine.tokenizer import Special, detokenize, tokenize


def test_one_prompt_has_one_answer_and_another_prompt_another() -> None:
    assert answer([1, 2, 3], 20) == answer([1, 2, 3], 20)
    assert answer([1, 2, 3], 20).tokens != answer([1, 2, 4], 20).tokens


def test_a_shorter_limit_gives_the_beginning_of_the_same_answer() -> None:
    assert answer([7], 512, ignore_eos=True).tokens[:5] == answer([7], 5, ignore_eos=True).tokens


def test_an_answer_read_back_as_text_has_the_generated_tokens() -> None:
    for seed in range(50):
        tokens = answer([seed], 40).tokens
        assert tuple(tokenize(detokenize(tokens))) == tokens


def test_an_answer_ends_by_itself_or_at_the_limit() -> None:
    natural = answer([7], 512)
    assert natural.finish is Finish.STOP
    assert detokenize(natural.tokens).endswith(".")
    cut = answer([7], len(natural.tokens) - 1)
    assert (cut.finish, len(cut.tokens)) == (Finish.LENGTH, len(natural.tokens) - 1)
    filled = answer([7], 600, ignore_eos=True)
    assert (filled.finish, len(filled.tokens)) == (Finish.LENGTH, 600)


def test_the_beginning_of_an_answer_to_a_chat_is_followed_by_the_rest() -> None:
    prompt = [Special.BEGIN, Special.USER, 7, Special.END, Special.ASSISTANT]
    for scripts in (False, True):
        whole = answer(prompt, 40, ignore_eos=True, scripts=scripts).tokens
        for begun in range(1, 40):
            rest = answer([*prompt, *whole[:begun]], 40 - begun, ignore_eos=True, scripts=scripts)
            assert rest.tokens == whole[begun:]
    natural = answer(prompt, 512)
    rest = answer([*prompt, *natural.tokens[:1]], 511)
    assert (rest.tokens, rest.finish) == (natural.tokens[1:], natural.finish)


def test_what_is_not_the_beginning_of_its_answer_is_another_prompt() -> None:
    prompt = [Special.BEGIN, Special.USER, 7, Special.END, Special.ASSISTANT]
    assert answer([*prompt, 1, 2], 20).tokens != answer(prompt, 22).tokens[2:]
    assert answer([*prompt, 1, 2], 20) == answer([*prompt, 1, 2], 20)


def test_tokens_of_several_scripts_end_within_characters() -> None:
    tokens = answer([7], 40, ignore_eos=True, scripts=True).tokens
    assert len(tokens) == 40
    assert any("\N{REPLACEMENT CHARACTER}" in detokenize(tokens[:end]) for end in range(1, 40))
