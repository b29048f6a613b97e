import pytest

from promptgroup_router.features.resumed_stream.kept_tokens import MOST_BYTES, KeptTokens


def kept(*parts, prompt=(1, 2)):
    tokens = KeptTokens()
    tokens.begin(list(prompt))
    for ids, text in parts:
        tokens.add(ids, text)
    return tokens


def test_tokens_with_a_text_are_gone_on_behind():
    tokens = kept(([3], "a"), ([4], "b"))
    assert (tokens.ids(), tokens.prompt, tokens.passed_on, tokens.complete) == (b"1,2,3,4", 2, 2, True)


def test_tokens_without_a_text_wait_for_the_next_that_has_one():
    tokens = kept(([3], "a"), ([4], ""), ([5], ""))
    assert (tokens.ids(), tokens.passed_on) == (b"1,2,3", 1)
    tokens.add([6], "é")
    assert (tokens.ids(), tokens.passed_on) == (b"1,2,3,4,5,6", 4)


def test_tokens_that_the_client_has_no_text_of_are_drawn_anew():
    tokens = kept(([3], "a"), ([4], ""))
    tokens.go_on()
    tokens.add([5], "é")
    assert (tokens.ids(), tokens.passed_on) == (b"1,2,3,5", 2)


def test_of_several_tokens_at_once_the_last_must_be_known_to_end_a_character():
    assert not kept(([3, 4], "ab")).complete
    assert kept(([4], "b"), ([3, 4], "ab")).complete
    assert kept(([3, 4], "ab"), ([5], "c")).complete
    # 4 has a text here because it ends a character that others began
    assert not kept(([3], ""), ([4], "é"), ([3, 4], "ab")).complete
    assert not kept(([3, 4], "ab"), ([5], "c"), ([6, 4], "ab")).complete
    # 5 came with the end of the text of the token before
    assert not kept(([3, 4], "ab"), ([5], "c"), ([6, 5], "dc")).complete


@pytest.mark.parametrize("ids", ["", [], [True], [-1], ["1"], [1.0], {"a": 1}, [[1]], None])
def test_a_prompt_that_is_no_list_of_ids_is_not_kept(ids):
    tokens = KeptTokens()
    tokens.begin(ids)
    assert not tokens.complete
    assert tokens.size == 0


@pytest.mark.parametrize(("ids", "text"), [(["x"], "a"), ([], "a"), ([3], None), (7, "a")])
def test_what_is_no_text_with_its_ids_ends_the_keeping(ids, text):
    tokens = kept(([3], "a"), (ids, text))
    assert not tokens.complete or (ids, text) == ([], "a")
    tokens.add([4], "b")
    assert not (tokens.complete and tokens.passed_on == 1)


def test_a_text_of_which_nobody_told_the_ids_is_not_gone_on_behind():
    assert not kept(([3], "a"), ([], "b")).complete


def test_an_answer_that_has_ended_does_not_go_on():
    tokens = kept(([3], "a"))
    tokens.finished = True
    assert not tokens.complete


def test_memory_is_bounded():
    tokens = kept(prompt=[10**6] * 100)
    for _ in range(4 * MOST_BYTES // 70_000):
        tokens.add([10**6] * 10_000, "a")
        assert tokens.size <= MOST_BYTES
    assert tokens.size == 0
    assert not tokens.complete
