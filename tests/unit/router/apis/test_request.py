import json
import tracemalloc

import orjson
import pytest

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_contract.messages import canonical_messages
from promptgroup_contract.table import Prompt
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import (
    ApiKind,
    parse,
    preamble,
    with_ordered_tools,
    with_preamble,
)
from promptgroup_router.base.errors import ApiError

TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"b": 1, "a": {"z": 1, "y": 2}}}}]


def chat(*messages: tuple[str, object], **fields: object):
    body = {"model": "llama", "messages": [{"role": role, "content": content} for role, content in messages]}
    return parse(ApiKind.CHAT, orjson.dumps(body | fields))


def text(prompt: object, **fields: object):
    return parse(ApiKind.TEXT, orjson.dumps({"model": "llama", "prompt": prompt} | fields))


def refused(body: bytes, kind: ApiKind = ApiKind.CHAT) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(kind, body)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_system_text_is_that_of_the_first_message(role):
    ask = chat((role, "Be brief."), ("user", "Hi"))
    assert (ask.model, ask.system, ask.has_system, ask.tools) == ("llama", "Be brief.", True, "")


def test_text_parts_of_a_system_message_are_lines():
    parts = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "two"}]
    assert chat(("system", parts), ("user", "Hi")).system == "one\ntwo"


def test_a_system_message_that_is_not_the_first_is_no_prefix_but_is_one():
    ask = chat(("user", "Hi"), ("system", "Be brief."))
    assert (ask.system, ask.has_system) == ("", True)


def sizes(ask):
    return ask.text, ask.history, ask.turn


def test_text_is_counted_in_bytes_and_history_up_to_the_last_answer():
    system, question, answer = ("system", "S" * 100), ("user", "ü" * 5), ("assistant", "A" * 30)
    assert sizes(chat(system, question)) == (110, 0, 2)
    assert sizes(chat(system, question, answer, ("user", "More"))) == (144, 140, 4)
    assert sizes(chat(system, question, answer, ("user", "a"), ("user", "b"))) == (142, 140, 5)
    assert sizes(chat(system, question, answer, question, answer, question)) == (190, 180, 6)


def test_tools_and_tool_calls_are_text():
    tools = len(orjson.dumps(TOOLS))
    calls = [{"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}]
    assert chat(("user", "Hi"), tools=TOOLS).text == 2 + tools
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
        {"role": "tool", "tool_call_id": "call_2", "content": "no"},
    ]
    ask = parse(ApiKind.CHAT, orjson.dumps({"model": "llama", "messages": messages, "tools": TOOLS}))
    asked = 2 + len(orjson.dumps(calls)) + tools
    assert sizes(ask) == (asked + 7, asked, 4)


def test_a_greeting_and_the_beginning_of_an_answer_are_no_earlier_turn():
    greeting = ("assistant", "How can I help?")
    assert chat(greeting, ("user", "Hi")).history == 0
    assert chat(("user", "Hi"), ("assistant", "Sure,")).history == 0
    assert chat(greeting, ("user", "Hi"), ("assistant", "Yes"), ("user", "x"), ("assistant", "Su")).history == 20


def test_parts_that_are_no_text_make_the_length_unknown():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}}
    ask = chat(("user", [{"type": "text", "text": "What is it?"}, image]))
    assert (ask.text, ask.media) == (11, True)
    assert not chat(("user", [{"type": "text", "text": "What is it?"}])).media


@pytest.mark.parametrize(("stream", "streamed"), [(True, True), (False, False), (None, False)])
def test_whether_the_answer_is_streamed(stream, streamed):
    assert chat(("user", "Hi"), stream=stream).streamed is streamed
    assert text("Hi", stream=stream).streamed is streamed


@pytest.mark.parametrize("stream", ["true", "yes", 1, 0, 1.0, "", [], {}])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/completions", b"/v1/messages", b"/v1/responses"])
def test_what_engines_might_take_for_true_is_refused(path, stream):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "input": "Hi"}
    with pytest.raises(ApiError, match=r"stream is .*, expected true or false") as caught:
        ENDPOINTS[path].parse(json.dumps(body | {"stream": stream}).encode())
    assert (caught.value.status, caught.value.param) == (400, "stream")


def test_tools_are_compared_in_canonical_form():
    ask = chat(("user", "Hi"), tools=TOOLS)
    assert ask.tools == canonical_tools(TOOLS)
    assert not ask.tools_in_order
    again = chat(("user", "Hi"), tools=json.loads(ask.tools))
    assert again.tools == ask.tools
    assert again.tools_in_order
    assert chat(("user", "Hi"), tools=[]).tools == ""


def test_a_text_prompt_is_what_a_declared_text_may_begin():
    assert text("Once").system == "Once"
    assert text(["Once", "Twice"]).system == "Once"
    assert (text("Once").text, text(["Once", "Twice"]).text, text("").text) == (4, 9, 0)


def test_a_prompt_of_tokens_has_their_number():
    assert [text(prompt).ids for prompt in ([1, 2, 3], [[1, 2], [3]], [[]], "Once")] == [3, 3, 0, 0]
    assert sizes(text([1, 2, 3])) == (0, 0, 1)
    assert text([1, 2, 3]).system == ""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"model": NaN}', "not JSON"),
        (b"[]", "the body is empty, expected an object"),
        (b"[1]", "the body is a list, expected an object"),
        (b"{}", "model is missing"),
        (b'{"model": 7}', "model is a number"),
        (b'{"model": ""}', "model is empty"),
        (b'{"model": "m"}', "messages is missing"),
        (b'{"model": "m", "messages": []}', "messages is empty"),
        (b'{"model": "m", "messages": "hi"}', "messages is a text"),
        (b'{"model": "m", "messages": ["hi"]}', "messages[0] is a text"),
        (b'{"model": "m", "messages": [{}]}', "messages[0].role is missing"),
        (
            b'{"model": "m", "messages": [{"role": "user"}, {"role": 1}]}',
            "messages[1].role is a number, expected a text",
        ),
        (b'{"model": "m", "messages": [{"role": "user"}], "tools": {"a": 1}}', "tools is an object"),
        (b'{"model": "m", "messages": [{"role": "user", "tool_calls": ' + b"[" * 500 + b"]" * 500 + b"}]}", "deeply"),
        (b'{"model": "m", "messages": [{"role": "user"}], "tools": ' + b"[" * 300 + b"]" * 300 + b"}", "deeply"),
        (b"[" * 100_000, "not JSON"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}', "not JSON"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused_with_its_field(body, words):
    assert words in str(refused(body))


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({"prompt": "a"}, (1, 0)),
        ({"prompt": ["a", "b", "c"]}, (3, 0)),
        ({"prompt": [1, 2, 3]}, (1, 0)),
        ({"prompt": [[1, 2], [3]]}, (2, 0)),
        ({"prompt": ["a", "b"], "prompt_embeds": ["AA", "BB", "CC"]}, (2, 3)),
        ({"prompt": "a", "prompt_embeds": "AA"}, (1, 1)),
        ({"prompt": "a", "prompt_embeds": {"x": 1}}, (1, 0)),
    ],
)
def test_prompts_of_a_text_completion_are_counted_apart_from_embeddings(fields, counted):
    asked = parse(ApiKind.TEXT, json.dumps({"model": "llama"} | fields).encode())
    assert (asked.prompts, asked.embedded) == counted
    assert (asked.with_doc({}).prompts, asked.with_doc({}).embedded) == counted


@pytest.mark.parametrize("prompt", ["null", "[]", "{}", "true", "[null]", "[true]", "1.5", "7"])
def test_a_prompt_that_cannot_be_used(prompt):
    error = refused(b'{"model": "m", "prompt": ' + prompt.encode() + b"}", ApiKind.TEXT)
    assert error.param == "prompt"


def test_a_body_that_cannot_be_spelled_anew_is_refused():
    deep = b"[" * 500 + b"]" * 500
    ask = parse(ApiKind.CHAT, b'{"model": "m", "messages": [{"role": "user", "content": ' + deep + b"}]}")
    tools = parse(
        ApiKind.CHAT, b'{"model": "m", "messages": [{"role": "user"}], "tools": [{"b": 1, "a": 2}], "x": ' + deep + b"}"
    )
    prompt = parse(ApiKind.TEXT, b'{"model": "m", "prompt": "Hi", "x": ' + deep + b"}")
    for refuse in (
        lambda: with_preamble(ask, preamble(Prompt("S", ""), "m"), "llama"),
        lambda: with_preamble(prompt, preamble(Prompt("S", ""), "m"), "llama"),
        lambda: with_ordered_tools(tools),
    ):
        with pytest.raises(ApiError, match="deeply"):
            refuse()


def test_refusals_never_repeat_what_was_sent():
    error = refused(b'{"model": "m", "messages": "a secret"}')
    assert "secret" not in str(error)


# --- Bodies for the engine ----------------------------------------------------------------------------------


def test_a_declared_prompt_is_put_in_front_with_the_same_bytes_each_time():
    prompt = preamble(Prompt("Be ünbrief.\n", canonical_tools(TOOLS)), "m")
    one = with_preamble(chat(("user", "Hi"), model="support", temperature=1), prompt, "llama")
    other = with_preamble(chat(("user", "Ho"), seed=3, model="support"), prompt, "llama")
    parsed = json.loads(one)
    assert parsed["model"] == "llama"
    assert parsed["messages"] == [{"role": "system", "content": "Be ünbrief.\n"}, {"role": "user", "content": "Hi"}]
    assert parsed["tools"] == TOOLS
    assert parsed["temperature"] == 1
    front = '[{"role":"system","content":"Be ünbrief.\\n"},'.encode()
    tools = b'"tools":' + canonical_tools(TOOLS).encode()
    assert all(part in body for part in (front, tools) for body in (one, other))


def test_a_prompt_of_tools_alone_has_no_message():
    parsed = json.loads(with_preamble(chat(("user", "Hi")), preamble(Prompt("", canonical_tools(TOOLS)), "m"), "llama"))
    assert [message["role"] for message in parsed["messages"]] == ["user"]
    assert parsed["tools"] == TOOLS


def test_tools_of_the_request_stay_where_they_are_the_groups():
    prompt = preamble(Prompt("S", canonical_tools(TOOLS)), "m")
    assert json.loads(with_preamble(chat(("user", "Hi"), tools=TOOLS), prompt, "llama"))["tools"] == TOOLS


@pytest.mark.parametrize(
    ("ask", "param"),
    [
        (lambda: chat(("system", "Mine"), ("user", "Hi"), model="support"), "messages"),
        (lambda: chat(("user", "Hi"), ("developer", "Mine"), model="support"), "messages"),
        (lambda: chat(("user", "Hi"), model="support", tools=[{"name": "other"}]), "tools"),
        (lambda: text("Hi", model="support"), "model"),
    ],
)
def test_a_request_by_name_that_brings_its_own_prompt_is_refused(ask, param):
    with pytest.raises(ApiError) as caught:
        with_preamble(ask(), preamble(Prompt("S", canonical_tools(TOOLS)), "m"), "llama")
    assert (caught.value.status, caught.value.param) == (400, param)
    assert "'support'" in str(caught.value)


SAID = canonical_messages([("user", "Where?"), ("assistant", "Here.")])


def test_declared_messages_stand_between_the_instructions_and_the_conversation():
    parsed = json.loads(with_preamble(chat(("user", "Hi")), preamble(Prompt("S", "", SAID), "m"), "llama"))
    assert [(each["role"], each["content"]) for each in parsed["messages"]] == [
        ("system", "S"), ("user", "Where?"), ("assistant", "Here."), ("user", "Hi"),
    ]  # fmt: skip
    parsed = json.loads(with_preamble(chat(("user", "Hi")), preamble(Prompt("", "", SAID), "m"), "llama"))
    assert [each["content"] for each in parsed["messages"]] == ["Where?", "Here.", "Hi"]
    with pytest.raises(ApiError, match="with messages, which /v1/completions does not support"):
        with_preamble(text("Hi", model="support"), preamble(Prompt("S", "", SAID), "m"), "llama")


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_group_may_append_a_clients_own_instructions(role):
    prompt = preamble(Prompt("S"), "m", appends=True)
    parsed = json.loads(with_preamble(chat((role, "Be brief."), ("user", "Hi")), prompt, "llama"))
    assert parsed["messages"] == [
        {"role": role, "content": "S\n\nBe brief."}, {"role": "user", "content": "Hi"},
    ]  # fmt: skip
    assert json.loads(with_preamble(chat(("user", "Hi")), prompt, "llama"))["messages"][0]["content"] == "S"
    with pytest.raises(ApiError, match="brings its own prompt"):
        with_preamble(chat(("user", "Hi"), ("system", "Mine")), prompt, "llama")


def test_a_text_prompt_gets_the_declared_text_in_front():
    prompt = preamble(Prompt("S: ", ""), "m")
    assert json.loads(with_preamble(text("Hi", model="support"), prompt, "llama"))["prompt"] == "S: Hi"
    assert json.loads(with_preamble(text(["a", "b"]), prompt, "llama"))["prompt"] == ["S: a", "S: b"]
    with pytest.raises(ApiError) as caught:
        with_preamble(text([1, 2]), prompt, "llama")
    assert caught.value.param == "prompt"


def test_a_body_is_forwarded_byte_for_byte_unless_its_tools_are_out_of_order():
    plain = b' {"model": "llama",  "messages": [{"role": "user", "content": "Hi"}]} '
    assert with_ordered_tools(parse(ApiKind.CHAT, plain)) is plain
    ordered = orjson.dumps(
        {"model": "llama", "messages": [{"role": "user"}], "tools": orjson.Fragment(canonical_tools(TOOLS))}
    )
    assert with_ordered_tools(parse(ApiKind.CHAT, ordered)) == ordered
    turned = with_ordered_tools(chat(("user", "Hi"), tools=TOOLS))
    assert b'"tools":' + canonical_tools(TOOLS).encode() in turned
    assert json.loads(turned)["messages"] == [{"role": "user", "content": "Hi"}]


def test_a_declared_prompt_is_kept_in_no_more_memory_than_it_has_bytes():
    prompts = [Prompt(f"{number} {'x' * 500}", "") for number in range(100)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [preamble(each, "m") for each in prompts]
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < len(kept) * 1_500
