import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_local.engine.tokenizer import NewText, Special, detokenize, tokenize


@given(st.text())
def test_every_text_comes_back_exactly(text: str) -> None:
    assert detokenize(tokenize(text)) == text


@given(st.text(), st.text())
def test_whole_pieces_of_a_text_are_a_prefix_of_every_longer_text(text: str, more: str) -> None:
    whole = len(text.encode()) // 4
    assert tokenize(text + more)[:whole] == tokenize(text)[:whole]


def test_four_bytes_make_a_token_and_zero_bytes_count() -> None:
    assert len(tokenize("abcdefgh")) == 2
    assert len(tokenize("abcdefghi")) == 3
    assert len({*tokenize("\0"), *tokenize("\0\0"), *tokenize("\0\0\0\0")}) == 3


def test_no_text_yields_a_special_token() -> None:
    assert detokenize([Special.SYSTEM, *tokenize("hi")]) == "<|system|>hi"


@given(st.text())
def test_tokens_have_32_bits_and_none_is_special(text: str) -> None:
    assert all(0 <= token < 1 << 32 and token not in set(Special) for token in tokenize(text))


@pytest.mark.parametrize("number", [-1, 0xF8000000, 0xF80000FF, 0xF8000300, 0xFA000000, 0xFF000000, 1 << 32, 1 << 62])
def test_a_number_that_is_no_token_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        detokenize([number])


def test_a_character_is_told_with_the_token_that_ends_it() -> None:
    first, second = tokenize("aa€€")
    text = NewText(tokenize("prompt"))
    assert [text.add([first]), text.add([second])] == ["", "aa€€"]
    assert NewText(()).add([*tokenize("abcd"), first]) == "abcd"


def test_behind_a_prompt_that_ends_within_a_character_all_text_is_new() -> None:
    first, second = tokenize("aa€€")
    assert NewText([*tokenize("abcd"), first]).add([second]) == "abcdaa€€"
    assert NewText([*tokenize("abcd"), first, second]).add(tokenize("z")) == "z"
