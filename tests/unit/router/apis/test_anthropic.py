import orjson
import pytest

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_contract.messages import canonical_messages
from promptgroup_contract.table import Prompt
from promptgroup_router.apis.anthropic import (
    chat_tools,
    messages_tools,
    parse_messages,
    system_text,
    with_ordered_tools,
    with_preamble,
)
from promptgroup_router.apis.request import preamble
from promptgroup_router.apis.session_key import find_session
from promptgroup_router.base.errors import ApiError

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "number"}}}
TOOL = {"name": "find", "description": "Finds.", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": SCHEMA}}
DECLARED = canonical_tools([FUNCTION])


def message(*messages: tuple[str, object], **fields: object):
    listed = [{"role": role, "content": content} for role, content in messages or [("user", "Hi")]]
    return parse_messages(orjson.dumps({"model": "llama", "max_tokens": 9, "messages": listed} | fields))


def refused(**fields: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_messages(orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]} | fields))
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("system", "text"),
    [
        (None, ""),
        ("Be brief.", "Be brief."),
        ([], ""),
        ([{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}], "Be brief."),
        ([{"type": "text", "text": "Be.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}], "Be."),
        ([{"type": "text", "text": "x-anthropic-billing-header: cch=1f;"}, {"type": "text", "text": "Be."}], "Be."),
        ([{"type": "image"}, "text", None, {"type": "text", "text": 7}, {"type": "text", "text": "Be."}], "Be."),
    ],
)
def test_the_system_text_is_what_engines_make_of_the_field(system, text):
    ask = message(system=system) if system is not None else message()
    assert (system_text(system), ask.system, ask.has_system) == (text, text, bool(text))


def test_a_system_message_in_the_conversation_is_no_prefix_but_is_one():
    ask = message(("user", "Hi"), ("system", "Be brief."))
    assert (ask.system, ask.has_system) == ("", True)


def test_a_tool_is_a_function_of_chat_completions():
    assert chat_tools([TOOL]) == [FUNCTION]
    assert message(tools=[TOOL]).tools == DECLARED
    assert message(tools=[]).tools == ""


def test_what_says_nothing_to_the_engine_is_no_part_of_a_tool():
    marked = TOOL | {"cache_control": {"type": "ephemeral"}, "type": "custom", "strict": None}
    assert message(tools=[marked]).tools == DECLARED


def test_a_schema_without_a_type_is_of_type_object():
    (tool,) = chat_tools([{"name": "find", "input_schema": {"properties": {}}}])
    assert tool["function"]["parameters"] == {"properties": {}, "type": "object"}


@pytest.mark.parametrize("tool", [{"type": "web_search_20250305", "name": "web_search"}, "find", {"input_schema": {}}])
def test_what_is_no_function_stays_as_it_is(tool):
    assert chat_tools([tool]) == [tool]


def test_declared_tools_in_the_form_of_this_api():
    assert orjson.loads(messages_tools(DECLARED)) == [TOOL]
    strict = [{"type": "function", "function": FUNCTION["function"] | {"strict": True}}]
    assert orjson.loads(messages_tools(canonical_tools(strict))) == [TOOL | {"strict": True}]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "find"}},
        {"type": "function", "function": {"name": "find", "parameters": {"properties": {}}}},
        {"type": "function", "function": FUNCTION["function"], "extra": 1},
        {"type": "function", "function": FUNCTION["function"] | {"other": 1}},
        {"type": "web_search"},
        "find",
    ],
)
def test_tools_that_this_api_cannot_state(tool):
    assert messages_tools(canonical_tools([tool])) is None


def test_lengths_count_what_becomes_the_prompt():
    tools, result = [TOOL], {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "found"}]}
    call = {"type": "tool_use", "id": "t", "name": "find", "input": {"a": 1}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "0" * 99}
    ask = message(("user", "ü"), ("assistant", [thought, call]), ("user", [result]), system="Sys", tools=tools)
    before = 3 + len(DECLARED)
    assert (ask.text, ask.history, ask.turn) == (before + 2 + 2 + 7 + 5, before + 2 + 2 + 7, 4)
    assert not ask.media
    assert message().history == 0


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image", "source": {"type": "base64", "data": "A" * 1000}}],
        [{"type": "tool_result", "content": [{"type": "image", "source": {}}]}],
        [{"type": "document"}],
    ],
)
def test_parts_that_are_no_text_make_the_length_unknown(content):
    ask = message(("user", content))
    assert (ask.text, ask.media) == (0, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages"),
        ({"messages": [{"content": "Hi"}]}, "messages"),
        ({"system": 7}, "system"),
        ({"tools": {"a": 1}}, "tools"),
        ({"model": ""}, "model"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused_with_its_field(fields, param):
    assert refused(**fields).param == param


def test_content_of_any_shape_is_read():
    odd = [None, 7, [], {}, [7, None, {"type": "tool_result", "content": 7}, {"type": "tool_use"}, {"type": "text"}]]
    assert message(*(("user", content) for content in odd)).turn == 5


def test_deep_nesting_is_refused():
    deep = b"[" * 500 + b"]" * 500
    body = b'{"model":"m","messages":[{"role":"user","content":[{"type":"tool_use","input":' + deep + b"}]}]}"
    with pytest.raises(ApiError, match="deeply"):
        parse_messages(body)


# --- bodies for the engine


def put_in_front(ask, system="Sys", tools=""):
    return orjson.loads(with_preamble(ask, preamble(Prompt(system, tools), "m"), "llama-70b"))


def test_the_declared_prompt_is_put_in_front():
    doc = put_in_front(message(metadata={"user_id": "7"}), tools=DECLARED)
    assert (doc["system"], doc["tools"], doc["model"]) == ("Sys", [TOOL], "llama-70b")
    assert (doc["messages"], doc["max_tokens"], doc["metadata"]) == (
        [{"role": "user", "content": "Hi"}],
        9,
        {"user_id": "7"},
    )


SAID = canonical_messages([("user", "Where?"), ("assistant", "Here.")])


def test_declared_messages_stand_before_the_conversation():
    doc = orjson.loads(with_preamble(message(), preamble(Prompt("Sys", "", SAID), "m"), "llama-70b"))
    assert [each["content"] for each in doc["messages"]] == ["Where?", "Here.", "Hi"]


def test_a_group_may_append_a_clients_own_instructions():
    prompt = preamble(Prompt("Sys"), "m", appends=True)
    assert orjson.loads(with_preamble(message(system="Mine"), prompt, "llama"))["system"] == "Sys\n\nMine"
    with pytest.raises(ApiError, match="has a system message"):
        with_preamble(message(("user", "Hi"), ("system", "Mine")), prompt, "llama")


def test_declared_tools_may_be_repeated_and_their_marks_stay():
    marked = {"cache_control": {"type": "ephemeral"}} | TOOL
    assert put_in_front(message(tools=[marked]), tools=DECLARED)["tools"] == [marked]


@pytest.mark.parametrize(
    ("ask", "tools", "code"),
    [
        (message(system="Mine"), "", "prompt_given_twice"),
        (message(("system", "Mine"), ("user", "Hi")), "", "prompt_given_twice"),
        (message(tools=[TOOL]), "", "tools_given_twice"),
        (message(), canonical_tools([{"type": "web_search"}]), "tools_not_in_this_api"),
    ],
)
def test_what_cannot_be_combined_with_the_declared_prompt(ask, tools, code):
    with pytest.raises(ApiError) as caught:
        put_in_front(ask, tools=tools)
    assert (caught.value.status, caught.value.code) == (400, code)


def test_schemas_are_put_in_order_and_all_else_is_kept():
    system = [{"type": "text", "text": "Sys", "cache_control": {"type": "ephemeral"}}]
    marked = TOOL | {"cache_control": {"type": "ephemeral"}}
    ask = message(system=system, tools=[marked])
    assert not ask.tools_in_order
    body = with_ordered_tools(ask)
    assert orjson.loads(body) == ask.doc
    assert list(orjson.loads(body)["tools"][0]["input_schema"]["properties"]) == ["a", "b"]
    again = parse_messages(body)
    assert again.tools_in_order
    assert with_ordered_tools(again) is again.raw


# --- sessions


def test_a_session_is_the_same_however_later_turns_mark_it():
    first = message(("user", "A" * 300), metadata={"user_id": "u1"})
    marked = [{"type": "text", "text": "A" * 300, "cache_control": {"type": "ephemeral"}}]
    later = message(("user", marked), ("assistant", "Yes"), ("user", "More"), metadata={"user_id": "u1"})
    other = message(("user", "A" * 300), metadata={"user_id": "u2"})
    key = find_session(first, {}, "g")
    assert key.key == find_session(later, {}, "g").key != find_session(other, {}, "g").key
    assert (key.source, key.named) == ("field metadata.user_id", False)


def test_images_tell_sessions_apart():
    one, two = (
        message(("user", [{"type": "image", "source": {"type": "base64", "data": data * 400}}])) for data in "AB"
    )
    assert find_session(one, {}, "g").key != find_session(two, {}, "g").key
