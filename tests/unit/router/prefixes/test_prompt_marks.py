import orjson
import pytest

from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.prefixes import prompt_marks
from promptgroup_router.prefixes.prompt_marks import (
    ID_BYTES,
    MOST_IDS,
    MOST_MARKS,
    REMEMBERED_BYTES,
    REMEMBERED_STARTS,
    STEP,
    marks_of,
    step_at,
)

TEXT = "".join(f"line {number} of a long text. " for number in range(4000))


def chat(*messages, **fields):
    listed = [{"role": role, "content": content} for role, content in messages]
    return parse(ApiKind.CHAT, orjson.dumps({"model": "m", "messages": listed} | fields))


def text(prompt):
    return parse(ApiKind.TEXT, orjson.dumps({"model": "m", "prompt": prompt}))


def common(one, other):
    """Bytes of the longest prefix that two prompts have a mark for in common."""
    both = [end for a, b, end in zip(one.hashes, other.hashes, one.ends, strict=False) if a == b]
    return both[-1] if both else 0


def test_fixed_places_depend_on_no_length_and_grow_with_it():
    whole, half = marks_of(text(TEXT)), marks_of(text(TEXT[:50_000]))
    assert list(half.ends) == [end for end in whole.ends if end <= 50_000]
    assert list(half.hashes) == list(whole.hashes[: len(half.hashes)])
    assert whole.ends[0] == STEP
    for end, following in zip(whole.ends, whole.ends[1:-1], strict=False):
        assert following - end == step_at(end)
        assert step_at(end) <= max(STEP, end / 8)


@pytest.mark.parametrize("size", [24_000, 61_000, 5000])
def test_a_prefix_in_the_one_user_message_is_found_to_an_eighth(size):
    one, other = (marks_of(chat(("user", TEXT[:size] + question * 300))) for question in ("why? ", "when? "))
    assert size * 7 / 8 - STEP <= common(one, other) <= size + 20


@pytest.mark.parametrize("as_parts", [False, True])
def test_a_message_that_ends_is_found_to_the_byte(as_parts):
    def asked(question):
        if as_parts:
            parts = [{"type": "text", "text": TEXT[:24_100]}, {"type": "text", "text": question * 300}]
            return marks_of(chat(("user", parts)))
        return marks_of(chat(("system", TEXT[:24_100]), ("user", question * 300)))

    assert common(asked("why? "), asked("when? ")) == 24_100


def test_a_place_is_found_by_all_before_it():
    one, other = marks_of(chat(("user", "a" + TEXT))), marks_of(chat(("user", "b" + TEXT)))
    assert not set(one.hashes) & set(other.hashes)


def test_roles_tools_and_calls_are_part_of_a_prompt():
    base = marks_of(chat(("user", TEXT)))
    tool = {"type": "function", "function": {"name": "look"}}
    for other in (chat(("system", "Be brief."), ("user", TEXT)), chat(("user", TEXT), tools=[tool])):
        assert not set(base.hashes) & set(marks_of(other).hashes)


def test_text_is_hashed_and_not_its_spelling():
    plain = marks_of(chat(("user", TEXT[:9000])))
    part = {"type": "text", "text": TEXT[:9000], "cache_control": {"type": "ephemeral"}}
    assert marks_of(chat(("user", [part]))) == plain


@pytest.mark.parametrize("content", [None, 7, [], [None, 3, {"type": "text"}], [{"type": "image_url"}], ""])
def test_contents_of_any_kind_are_read(content):
    assert marks_of(chat(("user", content), ("user", TEXT))).ends[-1] >= len(TEXT)


def test_texts_of_several_bytes_a_character_are_cut_by_bytes():
    plain, accented = (marks_of(chat(("user", TEXT[:9000] + end * 1000))) for end in ("e", "é"))
    assert common(plain, accented) == 8192
    assert accented.ends[-1] == 11_000
    assert plain.ends[-1] == 10_000


@pytest.mark.parametrize("prompt", [TEXT, [TEXT, "x"]])
def test_texts_without_messages_have_marks(prompt):
    assert marks_of(text(prompt)).ends[-1] == len(TEXT)


@pytest.mark.parametrize("several", [False, True])
def test_a_token_that_is_given_as_its_id_counts_as_four_bytes(several):
    def marks(ids):
        return marks_of(text([ids, [1, 2]] if several else ids))

    one, other = marks([*range(5000), *[7] * 500]), marks([*range(5000), *[8] * 500])
    assert 5000 * ID_BYTES * 7 / 8 <= common(one, other) <= 5000 * ID_BYTES
    assert 5000 * ID_BYTES < one.ends[-1] <= 5500 * ID_BYTES
    assert marks([7] * (MOST_IDS + 9)).ends[-1] <= MOST_IDS * ID_BYTES


def test_a_message_in_parts_is_not_one_of_their_whole_text():
    whole, parts = chat(("user", TEXT[:3000])), chat(("user", TEXT[:1500]), ("user", TEXT[1500:3000]))
    assert common(marks_of(whole), marks_of(parts)) == STEP


def test_marks_are_bounded():
    many = marks_of(chat(*[("user", TEXT[:1000])] * 5000))
    assert len(many.hashes) <= MOST_MARKS
    assert all(one < other for one, other in zip(many.ends, many.ends[1:], strict=False))


def test_those_of_a_digest_are_taken_as_they_are():
    ask = chat(("user", TEXT))
    ask.marks = orjson.loads(orjson.dumps(tuple(marks_of(ask))))
    assert marks_of(ask) == marks_of(chat(("user", TEXT)))


def test_the_marks_of_a_long_beginning_are_cached_and_those_of_a_short_one_are_not():
    prompt_marks._starts.clear()
    first = marks_of(chat(("system", TEXT[:REMEMBERED_BYTES]), ("user", TEXT)))
    assert len(prompt_marks._starts) == 1
    assert marks_of(chat(("system", TEXT[:REMEMBERED_BYTES]), ("user", TEXT))) == first
    marks_of(chat(("system", TEXT[: REMEMBERED_BYTES - 1]), ("user", TEXT)))
    assert len(prompt_marks._starts) == 1


def test_as_many_beginnings_are_cached_as_fit():
    prompt_marks._starts.clear()
    for number in range(REMEMBERED_STARTS + 1):
        marks_of(chat(("system", f"{number} {TEXT[:REMEMBERED_BYTES]}"), ("user", "Hi")))
        assert 0 < len(prompt_marks._starts) <= REMEMBERED_STARTS
