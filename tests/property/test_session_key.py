"""Keys over whole conversations: when they change, when they do not, and that sessions which differ have two."""

import orjson
from hypothesis import assume, given
from hypothesis import strategies as st

from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.session_key import START_BYTES, find_session

words = st.text(max_size=120)
calls = st.lists(
    st.builds(
        lambda number, text: {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": text}},
        st.integers(0, 9),
        words,
    ),
    min_size=1,
    max_size=2,
)
answers = st.one_of(
    st.builds(lambda text: [{"role": "assistant", "content": text}], words),
    st.builds(
        lambda made, text: [
            {"role": "assistant", "content": None, "tool_calls": made},
            *({"role": "tool", "tool_call_id": call["id"], "content": text} for call in made),
            {"role": "assistant", "content": text},
        ],
        calls,
        words,
    ),
)
questions = st.builds(lambda text: {"role": "user", "content": text}, words)
conversations = st.lists(st.tuples(questions, answers), min_size=1, max_size=8)
instructions = st.sampled_from(
    [[], [{"role": "system", "content": "S"}], [{"role": "developer", "content": "D" * 300}]]
)


def turns(conversation, before=()):
    """The requests of a conversation: each repeats what was said before."""
    said = list(before)
    for question, answer in conversation:
        said = [*said, question]
        yield said
        said = said + answer


def key(messages, headers=None):
    return find_session(
        parse(ApiKind.CHAT, orjson.dumps({"model": "llama", "messages": messages})), headers or {}, "chat/support"
    )


def said_bytes(message):
    made = message.get("tool_calls")
    return len((message["content"] or "").encode()) + (len(orjson.dumps(made)) if made else 0)


@given(conversations, instructions)
def test_from_the_turn_on_that_has_enough_the_key_never_changes(conversation, before):
    keys = [
        (sum(said_bytes(each) for each in request if each["role"] not in ("system", "developer")), key(request))
        for request in turns(conversation, before)
    ]
    settled = {found.key for size, found in keys if size >= START_BYTES}
    assert len(settled) <= 1
    # and every turn knows the key of the first
    assert {found.first for _, found in keys} == {keys[0][1].key}


def all_equal(found):
    return all(each == found[0] for each in found)


@given(st.text(min_size=START_BYTES, max_size=2 * START_BYTES), conversations)
def test_with_a_long_first_message_the_key_never_changes(first, conversation):
    conversation = [({"role": "user", "content": first}, conversation[0][1]), *conversation]
    assert all_equal([key(request) for request in turns(conversation)])


@given(conversations, conversations)
def test_conversations_that_differ_in_their_first_bytes_have_two_keys(one, other):
    def start(conversation):
        """Everything said until there is enough, by its definition."""
        said = [message for question, answer in conversation for message in (question, *answer)]
        size = 0
        for count, message in enumerate(said, 1):
            size += said_bytes(message)
            if size >= START_BYTES:
                return said[:count]
        return said

    last = [list(turns([*each, ({"role": "user", "content": "x" * START_BYTES}, [])]))[-1] for each in (one, other)]
    first, second = (
        [(each["role"], each["content"] or "", each.get("tool_calls")) for each in start(c)] for c in (one, other)
    )
    assume(first[: len(second)] != second[: len(first)])
    assert key(last[0]).key != key(last[1]).key


@given(
    conversations, st.dictionaries(st.sampled_from([b"x-session-id", b"x-session-affinity"]), st.just(b"s"), min_size=1)
)
def test_a_named_session_has_one_key_whatever_is_said(conversation, headers):
    assert all_equal([key(request, headers) for request in turns(conversation)])


@given(conversations)
def test_spelling_texts_as_parts_changes_nothing(conversation):
    def spelled(message):
        if not isinstance(message["content"], str):
            return message
        return message | {
            "content": [{"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}]
        }

    for request in turns(conversation):
        assert key([spelled(message) for message in request]) == key(request)
