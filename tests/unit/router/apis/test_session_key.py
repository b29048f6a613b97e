import orjson
import pytest

from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.session_key import CREDENTIAL_BITS, START_BYTES, TEXT_BYTES, chat_start, find_session

LONG = "x" * START_BYTES


def chat(*messages, **fields):
    listed = [{"role": role, "content": content} for role, content in messages or [("user", LONG)]]
    return parse(ApiKind.CHAT, orjson.dumps({"model": "llama", "messages": listed} | fields))


def text(prompt, **fields):
    return parse(ApiKind.TEXT, orjson.dumps({"model": "llama", "prompt": prompt} | fields))


def key(ask, headers=None, group="chat/support", **how):
    return find_session(ask, headers or {}, group, **how).key


# --- What the client names -------------------------------------------------------------------------------------

SOURCES = [
    ({b"x-session-id": b"1"}, {}),
    ({}, {"conversation": "2"}),
    ({}, {"conversation": {"id": "3"}}),
    ({}, {"session_id": "4"}),
    ({}, {"session_params": {"session_id": "5"}}),
    ({b"x-dynamo-session-id": b"6"}, {}),
    ({b"x-session-affinity": b"7"}, {}),
    ({b"x-smg-routing-key": b"8"}, {}),
    ({}, {"prompt_cache_key": "9"}),
    ({b"x-claude-code-session-id": b"10"}, {}),
    ({b"session-id": b"11"}, {}),
    ({b"authorization": b"Bearer 12"}, {}),
    ({b"api-key": b"13"}, {}),
    ({b"x-api-key": b"14"}, {}),
]
"""Headers and fields, as they come before each other; two of one rank are not sent at once."""
NAMES = 8
"""So many of them name a session, whatever is said in it."""


@pytest.mark.parametrize("rank", range(len(SOURCES)))
def test_each_source_counts_and_comes_before_those_after_it(rank):
    headers, fields = SOURCES[rank]
    assert key(chat(**fields), headers) != key(chat())
    for other_headers, other_fields in SOURCES[rank + 1 :]:
        if not fields.keys() & other_fields.keys():
            both = chat(**(other_fields | fields))
            assert key(both, other_headers | headers) == key(chat(**fields), headers)


@pytest.mark.parametrize("rank", range(len(SOURCES)))
def test_the_source_is_named_and_not_what_stands_there(rank):
    headers, fields = SOURCES[rank]
    named = [f"header {name.decode()}" for name in headers] + [f"field {name}" for name in fields]
    source = find_session(chat(**fields), headers, "g").source
    assert source.startswith(named[0])
    assert str(rank + 1) not in source
    assert find_session(chat(), {}, "g").source == ""


@pytest.mark.parametrize("rank", range(len(SOURCES)))
def test_a_name_is_taken_at_its_word_what_is_shared_has_several_conversations(rank):
    headers, fields = SOURCES[rank]
    one, other = chat(**fields), chat(("user", "y" * START_BYTES), **fields)
    assert (key(one, headers) == key(other, headers)) is (rank < NAMES)
    assert find_session(one, headers, "chat/support").named is (rank < NAMES)


def test_a_name_is_the_same_wherever_it_stands():
    assert key(chat(), {b"x-session-id": b"s"}) == key(chat(session_id="s")) == key(text("Hi", session_id="s"))


def test_a_group_may_name_its_own_header():
    own = key(chat(), {b"x-mine": b"s"}, header="x-mine")
    assert own == key(chat(), {b"x-session-id": b"s"})
    assert key(chat(), {b"x-session-id": b"s"}, header="x-mine") == key(chat())


def test_sessions_of_two_groups_are_two():
    for headers in ({}, {b"x-session-id": b"s"}):
        assert key(chat(), headers) != key(chat(), headers, group="chat/other")


@pytest.mark.parametrize("value", ["", 7, None, ["k"], {"id": 7}])
def test_what_is_no_text_names_nothing(value):
    fields = ("conversation", "session_id", "session_params", "prompt_cache_key")
    assert key(chat(**dict.fromkeys(fields, value))) == key(chat())
    assert key(chat(), {b"x-session-id": b""}) == key(chat())


def test_of_a_credential_little_is_in_the_key():
    keys = {key(chat(), {b"authorization": b"Bearer %d" % number}) for number in range(100)}
    assert len(keys) == 100
    assert CREDENTIAL_BITS <= 16


# --- The start of a conversation ---------------------------------------------------------------------------------


def test_a_long_first_message_is_the_key_on_every_turn():
    first = find_session(chat(("system", "S"), ("user", LONG)), {}, "g")
    later = find_session(chat(("system", "S"), ("user", LONG), ("assistant", "A"), ("user", "B")), {}, "g")
    assert first == later
    assert first.first == first.key


def test_a_short_first_message_is_told_apart_by_what_follows():
    hi = find_session(chat(("user", "hi")), {}, "g")
    one = find_session(chat(("user", "hi"), ("assistant", "Hello!"), ("user", "My order is late")), {}, "g")
    other = find_session(chat(("user", "hi"), ("assistant", "Hello!"), ("user", "Reset my password")), {}, "g")
    assert len({hi.key, one.key, other.key}) == 3
    assert hi.key == hi.first == one.first == other.first


def test_a_welcome_that_all_get_tells_no_two_apart():
    begun = (("user", "hi"), ("assistant", LONG))
    one, other = (chat(*begun, ("user", f"{said} {LONG}")) for said in ("My order is late", "Reset my password"))
    assert key(one) != key(other)
    later = chat(*begun, ("user", f"My order is late {LONG}"), ("assistant", "Sorry"), ("user", "Well"))
    assert key(later) == key(one)
    assert find_session(one, {}, "chat/support").first == key(chat(("user", "hi")))


def test_two_callers_who_begin_alike_are_two():
    turns = chat(("user", "hi"))
    assert key(turns, {b"authorization": b"Bearer a"}) != key(turns, {b"authorization": b"Bearer b"})


def test_instructions_are_no_part_of_it():
    plain = key(chat(("user", LONG)))
    for role in ("system", "developer"):
        assert key(chat((role, "today is Monday"), ("user", LONG))) == plain
        assert key(chat((role, "today is Tuesday"), ("user", LONG))) == plain
    later = (("assistant", "A"), ("user", "B" * 300))
    short = key(chat(("user", "hi"), *later))
    assert key(chat(("user", "hi"), ("developer", "be brief"), *later)) == short


def test_a_greeting_that_all_begin_with_tells_nothing():
    greeting = ("assistant", LONG)
    one, other = chat(greeting, ("user", "hi")), chat(greeting, ("user", "ho"))
    assert key(one) != key(other)
    later = find_session(chat(greeting, ("user", "hi"), ("assistant", "Yes?"), ("user", "B" * 300)), {}, "chat/support")
    assert later.first == key(one)


def test_the_same_words_in_other_json_are_the_same():
    parts = [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}]
    assert key(chat(("user", parts))) == key(chat(("user", LONG)))


def test_images_are_told_apart_by_the_end_of_their_data():
    def asked(data):
        return chat(
            ("user", [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": data}}])
        )

    one, other = "data:image/png;base64," + "A" * 1000 + "B", "data:image/png;base64," + "A" * 1000 + "C"
    assert key(asked(one)) != key(asked(other))
    assert key(asked(one)) == key(asked(one))
    sounds = [chat(("user", [{"type": "input_audio", "input_audio": {"data": data}}])) for data in (one, other)]
    assert key(sounds[0]) != key(sounds[1])


@pytest.mark.parametrize("part", [7, "text", None, {}, {"type": 7}, {"type": "image_url"}, {"type": "x", "x": [1]}])
def test_parts_of_any_shape_are_no_harm(part):
    assert chat_start(chat(("user", [part])))[0][0] == b"user"


def test_agents_that_call_the_same_tool_are_told_apart_by_the_calls():
    def loop(call_id):
        call = {"id": call_id, "type": "function", "function": {"name": "find", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "found"},
        ]
        return find_session(parse(ApiKind.CHAT, orjson.dumps({"model": "llama", "messages": messages})), {}, "g")

    assert loop("a").key != loop("b").key
    assert loop("a").first == loop("b").first == find_session(chat(("user", "go")), {}, "g").key


# --- Texts -----------------------------------------------------------------------------------------------------


def test_a_texts_start_is_beyond_what_is_declared():
    declared = "d" * 3000
    one, other = text(declared + "a"), text(declared + "b")
    assert key(one, declared=3000) != key(other, declared=3000)
    long = declared + "a" * TEXT_BYTES
    assert key(text(long), declared=3000) == key(text(long + "more"), declared=3000)


def test_prompts_of_tokens_are_told_apart_by_more_than_the_first():
    assert key(text([1, 2, 3])) != key(text([1, 2, 4]))
    assert key(text([[1, 2, 3], [4]])) == key(text([1, 2, 3]))
    assert find_session(text([1, [[2] * 3], "3"]), {}, "g").key == find_session(text([1]), {}, "g").key
