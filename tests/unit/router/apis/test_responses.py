import orjson
import pytest

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_contract.messages import canonical_messages
from promptgroup_contract.table import Prompt
from promptgroup_router.apis.request import ApiKind, parse, preamble
from promptgroup_router.apis.responses import (
    chat_tools,
    goes_on,
    parse_response,
    previous_response,
    responses_tools,
    with_id,
    with_ordered_tools,
    with_preamble,
)
from promptgroup_router.apis.session_key import find_session
from promptgroup_router.base.errors import ApiError

PARAMETERS = {"type": "object", "properties": {"b": {}, "a": {}}}
TOOL = {"type": "function", "name": "find", "description": "Finds.", "parameters": PARAMETERS, "strict": None}
PLAIN = {name: value for name, value in TOOL.items() if value is not None}
FUNCTION = {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": PARAMETERS}}
DECLARED = canonical_tools([FUNCTION])


def response(given: object = "Hi", **fields: object):
    return parse_response(orjson.dumps({"model": "llama", "input": given} | fields))


def said(role: str, text: object) -> dict:
    return {"type": "message", "role": role, "content": text}


@pytest.mark.parametrize(
    ("given", "instructions", "system", "has_system"),
    [
        ("Hi", None, "", False),
        ("Hi", "Be brief.", "Be brief.", True),
        ([said("developer", "Be brief."), said("user", "Hi")], None, "Be brief.", True),
        ([said("developer", [{"type": "input_text", "text": "Be brief."}])], "Be kind.", "Be kind.", True),
        ([said("user", "Hi"), said("system", "Be brief.")], None, "", True),
        ([{"role": "system", "content": "Be brief."}], "", "Be brief.", True),
    ],
)
def test_the_system_text_is_the_first_message_that_engines_make(given, instructions, system, has_system):
    ask = response(given, instructions=instructions)
    assert (ask.system, ask.has_system) == (system, has_system)


def test_a_function_tool_is_a_function_of_chat_completions():
    assert chat_tools([TOOL]) == [FUNCTION]
    assert response(tools=[TOOL]).tools == DECLARED
    strict = chat_tools([TOOL | {"strict": False}])[0]["function"]
    assert strict["strict"] is False


def test_tools_that_are_not_rendered_are_no_part_of_a_prompt():
    custom = {"type": "custom", "name": "patch"}
    assert chat_tools([{"type": "web_search"}, TOOL, custom, "find"]) == [FUNCTION, custom, "find"]
    assert response(tools=[{"type": "web_search"}, TOOL]).tools == DECLARED
    built_in = response(tools=[{"type": "web_search"}])
    assert built_in.tools == ""
    doc = orjson.loads(with_preamble(built_in, preamble(Prompt("Sys", DECLARED), "m"), "llama"))
    assert doc["tools"] == [PLAIN, {"type": "web_search"}]


def test_declared_tools_in_the_form_of_this_api():
    assert orjson.loads(responses_tools(DECLARED)) == [PLAIN]
    assert responses_tools(canonical_tools([{"type": "web_search", "function": {}}])) is None
    assert responses_tools(canonical_tools([FUNCTION | {"extra": 1}])) is None


def test_lengths_count_what_becomes_the_prompt():
    items = [
        said("user", [{"type": "input_text", "text": "ü"}]),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
    ]
    ask = response(items, instructions="Sys", tools=[TOOL])
    before, call = 3 + len(DECLARED), len(orjson.dumps(["find", "{}", None]))
    assert (ask.text, ask.history, ask.turn) == (before + 2 + 2 + call + 5, before + 2 + 2 + call, 5)
    assert not ask.media
    assert (response("Hi").text, response("Hi").history, response("Hi").turn) == (2, 0, 1)


@pytest.mark.parametrize(
    "item",
    [
        said("user", [{"type": "input_image", "image_url": "data:"}]),
        {"type": "computer_call"},
        {"type": "function_call_output", "output": [{"type": "input_image"}]},
        {"type": "item_reference", "id": "msg_1"},
    ],
)
def test_what_is_no_text_makes_the_length_unknown(item):
    assert response([item]).media


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["Hi"]}, "input"),
        ({"instructions": ["Be"]}, "instructions"),
        ({"tools": {}}, "tools"),
        ({"previous_response_id": 7}, "previous_response_id"),
        ({"model": None}, "model"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused_with_its_field(fields, param):
    with pytest.raises(ApiError) as caught:
        response(**{"given": "Hi"} | {("given" if name == "input" else name): value for name, value in fields.items()})
    assert (caught.value.status, caught.value.param) == (400, param)


def test_content_of_any_shape_is_read():
    odd = [None, 7, {}, [7, None, {}, {"type": "text"}, {"type": "refusal", "refusal": 7}]]
    assert response([said("user", content) for content in odd] + [{}, {"type": 7}]).turn == 6


def test_the_response_before():
    assert previous_response(response(previous_response_id="resp_1")) == "resp_1"
    assert previous_response(response()) == previous_response(response(previous_response_id=None)) == ""


# --- bodies for the engine


def test_the_declared_prompt_is_put_in_front():
    doc = orjson.loads(with_preamble(response(store=False), preamble(Prompt("Sys", DECLARED), "m"), "llama-70b"))
    assert doc == {"model": "llama-70b", "input": "Hi", "instructions": "Sys", "tools": [PLAIN], "store": False}


@pytest.mark.parametrize(
    ("ask", "tools", "code", "param"),
    [
        (response(instructions="Mine"), "", "prompt_given_twice", "instructions"),
        (response([said("developer", "Mine")]), "", "prompt_given_twice", "input"),
        (response(tools=[TOOL]), "", "tools_given_twice", "tools"),
        (response(), canonical_tools([FUNCTION | {"extra": 1}]), "tools_not_in_this_api", "model"),
    ],
)
def test_what_cannot_be_combined_with_the_declared_prompt(ask, tools, code, param):
    with pytest.raises(ApiError) as caught:
        with_preamble(ask, preamble(Prompt("Sys", tools), "m"), "llama")
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)


SAID = canonical_messages([("user", "Where?"), ("assistant", "Here.")])


@pytest.mark.parametrize("given", ["Hi", [said("user", "Hi")]])
def test_declared_messages_stand_before_the_input_of_a_first_turn(given):
    prompt = preamble(Prompt("Sys", "", SAID), "m")
    doc = orjson.loads(with_preamble(response(given), prompt, "llama"))
    assert [each["content"] for each in doc["input"]] == ["Where?", "Here.", "Hi"]
    later = orjson.loads(with_preamble(response(given, previous_response_id="resp_1"), prompt, "llama"))
    assert (later["input"], later["instructions"]) == (given, "Sys")


def test_a_group_may_append_a_clients_own_instructions():
    prompt = preamble(Prompt("Sys"), "m", appends=True)
    assert orjson.loads(with_preamble(response(instructions="Mine"), prompt, "llama"))["instructions"] == "Sys\n\nMine"
    with pytest.raises(ApiError, match="input has a system"):
        with_preamble(response([said("system", "Mine")]), prompt, "llama")


def test_tools_are_put_in_order_and_all_else_is_kept():
    ask = response(tools=[TOOL], instructions="Sys", unknown={"z": 1, "a": 2})
    body = with_ordered_tools(ask)
    assert orjson.loads(body) == ask.doc
    again = parse_response(body)
    assert again.tools_in_order
    assert with_ordered_tools(again) is again.raw


@pytest.mark.parametrize("space", [b"", b" \n\t"])
def test_an_id_is_put_into_the_body(space):
    body = space + orjson.dumps({"model": "m", "input": "{"})
    assert orjson.loads(with_id(body, "resp_1")) == {"request_id": "resp_1", "model": "m", "input": "{"}


# --- sessions


def test_a_session_is_the_same_in_text_and_in_items():
    first = response("A" * 300)
    later = response(
        [
            said("user", [{"type": "input_text", "text": "A" * 300}]),
            said("assistant", [{"type": "output_text", "text": "Yes"}]),
            said("user", "More"),
        ]
    )
    assert find_session(first, {}, "g").key == find_session(later, {}, "g").key
    assert find_session(response("B" * 300), {}, "g").key != find_session(first, {}, "g").key
    named = response("A" * 300, conversation={"id": "conv_1"})
    assert find_session(named, {}, "g").source == "field conversation.id"


@pytest.mark.parametrize("value", [True, 1, 1.0, "true", "ON", "y", "maybe", [], 2, {}], ids=str)
def test_a_response_that_goes_on_in_the_background_in_every_spelling(value):
    asked = orjson.dumps({"model": "m", "input": "Hi", "background": value})
    assert goes_on(parse_response(asked))


@pytest.mark.parametrize("value", [False, None, 0, 0.0, "false", "No", "f"], ids=str)
def test_a_response_that_ends_with_its_answer(value):
    assert not goes_on(parse_response(orjson.dumps({"model": "m", "input": "Hi", "background": value})))
    assert not goes_on(parse_response(b'{"model":"m","input":"Hi"}'))
    assert not goes_on(parse(ApiKind.TEXT, b'{"model":"m","prompt":"Hi","background":true}'))
