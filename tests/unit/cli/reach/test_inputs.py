"""What a file is told to be, and the requests in it."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.base.errors import InputError
from promptgroup_cli.reach import inputs
from promptgroup_cli.reach.inputs import InputFormat, InputText
from promptgroup_router.apis.anthropic import BILLING
from promptgroup_router.apis.request import ApiKind

BODY = {"model": "m", "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]}
ANSWER = {"model": "m", "instructions": "Be kind.", "input": "Hi"}
EMBED = {"model": "m", "input": ["Hi", "Bye"]}
NO_BODY = "no body of a request: it has none of messages, prompt, instructions, input"
MANIFEST = "apiVersion: promptgroup.dev/v1alpha1\nkind: PromptGroup\n"


def read(path, given=None):
    with inputs.opened(str(path), given) as content:
        return (content.format, content.content) if isinstance(content, InputText) else list(content)


def write(tmp_path, content, name="file"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def systems(requests):
    return [(each.line, each.ask.system if each.ask else each.problem) for each in requests]


@pytest.mark.parametrize(
    "content",
    [MANIFEST, f"# ours\n---\n{MANIFEST}", '{"apiVersion": "promptgroup.dev/v1alpha1", "kind": "PromptGroup"}',
     '{\n  "kind": "PromptGroup",\n  "apiVersion": "promptgroup.dev/v1alpha1"\n}'],
)  # fmt: skip
def test_a_manifest_is_told_by_its_kind(tmp_path, content):
    assert read(write(tmp_path, content)) == (InputFormat.MANIFEST, content)


@pytest.mark.parametrize("content", ["You are kind.\n", "", "{name}, you are kind", "kind: of\n", "{\nnot JSON"])
def test_other_text_is_a_prompt(tmp_path, content):
    assert read(write(tmp_path, content)) == (InputFormat.PROMPT, content)


def test_a_prompt_is_read_byte_for_byte(tmp_path):
    assert read(write(tmp_path, b"a\r\nb\r\n")) == (InputFormat.PROMPT, "a\r\nb\r\n")


@pytest.mark.parametrize("indent", [None, 2])
def test_a_body_is_a_request(tmp_path, indent):
    assert systems(read(write(tmp_path, json.dumps(BODY, indent=indent)))) == [(1, "Be kind.")]
    assert systems(read(write(tmp_path, json.dumps([BODY, BODY], indent=indent)))) == [(1, "Be kind.")] * 2


@pytest.mark.parametrize(
    "wrapped",
    [{"body": BODY}, {"request": {"body": BODY}}, {"custom_id": "1", "body": json.dumps(BODY)}, {"input": BODY},
     {"prompt": "Be kind."}, {key: value for key, value in BODY.items() if key != "model"}],
)  # fmt: skip
def test_records_around_bodies(tmp_path, wrapped):
    path = write(tmp_path, f"{json.dumps(BODY)}\n\n{json.dumps(wrapped)}\n")
    assert systems(read(path)) == [(1, "Be kind."), (3, "Be kind.")]


@pytest.mark.parametrize(
    "record",
    [ANSWER, {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": ANSWER}, {"input": ANSWER},
     {"request": {"body": json.dumps(ANSWER)}}, {"instructions": "Be kind.", "input": json.dumps(BODY)},
     {"model": "m", "input": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}]},
     {"input": [{"role": "system", "content": [{"type": "input_text", "text": "Be kind."}]}]},
     {"prompt": {"id": "pmpt_1"}, **ANSWER}],
)  # fmt: skip
def test_bodies_of_the_responses_api(tmp_path, record):
    (found,) = read(write(tmp_path, json.dumps(record)))
    assert (found.problem, found.ask.kind, found.ask.system) == ("", ApiKind.RESPONSES, "Be kind.")


def test_an_input_is_what_is_asked_unless_a_body_is_in_it(tmp_path):
    lines = [{"model": "m", "input": each} for each in ("Hi", '{"a": 1}', "[]", json.dumps(BODY), BODY)]
    found = read(write(tmp_path, "\n".join(map(json.dumps, lines))))
    assert [each.ask.kind for each in found] == [ApiKind.RESPONSES] * 3 + [ApiKind.CHAT] * 2


@pytest.mark.parametrize("body", [EMBED, {"model": "m", "input": "Hi", "encoding_format": "base64"}])
def test_bodies_without_a_prompt_that_engines_keep(tmp_path, body):
    told = {"url": "/v1/embeddings", "body": {"model": "m", "input": "Hi"}}
    found = read(write(tmp_path, f"{json.dumps(body)}\n{json.dumps(told)}\n"))
    assert [each.problem for each in found] == ["a request for /v1/embeddings: it has no prompt that engines keep"] * 2


def test_a_path_that_no_router_serves_says_nothing(tmp_path):
    record = {"url": "https://api.example.com/v1/embeddings", "body": BODY}
    assert systems(read(write(tmp_path, json.dumps(record)))) == [(1, "Be kind.")]


def test_lines_that_are_no_request_are_said_and_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "MOST_BYTES", 256)
    lines = [json.dumps(BODY), "{", "[]", '{"id": 1}', '{"messages": []}', json.dumps({"body": "{"}), "x" * 1000]
    found = systems(read(write(tmp_path, "\n".join([*lines, json.dumps(BODY)])), InputFormat.LOG))
    assert found[0] == (1, "Be kind.")
    assert found[-1] == (8, "Be kind.")
    assert [problem for _, problem in found[1:-1]] == [
        "not JSON",
        NO_BODY,
        NO_BODY,
        "messages is empty, expected a list of at least one message",
        NO_BODY,
        "longer than 0 MiB",
    ]


def test_a_name_says_what_a_file_is_and_a_flag_overrules_it(tmp_path):
    path = write(tmp_path, json.dumps(BODY), "file.md")
    assert read(path) == (InputFormat.PROMPT, json.dumps(BODY))
    assert systems(read(path, InputFormat.LOG)) == [(1, "Be kind.")]


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(BODY).encode())))
    assert systems(read("-")) == [(1, "Be kind.")]


@pytest.mark.parametrize(
    ("content", "given", "said"),
    [
        (b"caf\xe9", None, "file: not text in UTF-8, at byte 3"),
        (
            b"text",
            InputFormat.REQUEST,
            "file: not JSON, at line 1 column 1; --as prompt, log or manifest names another format",
        ),
        (b"x" * 300, None, "file: longer than 0 MiB: a log of requests is read with --as log"),
    ],
)
def test_what_cannot_be_read(tmp_path, monkeypatch, content, given, said):
    monkeypatch.setattr(inputs, "MOST_BYTES", 256)
    with pytest.raises(InputError) as error:
        read(write(tmp_path, content), given)
    assert str(error.value).endswith(said)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="none: there is no such file in "):
        read(tmp_path / "none")
    with pytest.raises(InputError, match="it is a folder: name a file in it"):
        read(tmp_path)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(lambda text: not text.startswith(BILLING))
SCHEMA = st.dictionaries(TEXT, TEXT | st.integers(-9, 9), max_size=3).map(lambda found: {"type": "object"} | found)
TOOLS = st.lists(st.tuples(TEXT, TEXT, SCHEMA), max_size=3)


@given(blocks=st.lists(TEXT, max_size=4), tools=TOOLS)
def test_anthropic_and_openai_bodies_of_one_prompt_are_one_prompt(blocks, tools):
    hi = [{"role": "user", "content": "Hi"}]
    ours = {
        "system": [{"type": "text", "text": each} for each in blocks],
        "tools": [{"name": name, "description": text, "input_schema": schema} for name, text, schema in tools],
        "messages": hi,
    }
    functions = [
        {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
        for name, text, schema in tools
    ]
    theirs = {"messages": [{"role": "system", "content": "".join(blocks)}, *hi], "tools": functions}
    read = [inputs._parsed(body, inputs.path_of(body)) for body in (ours, ours | {"system": "".join(blocks)}, theirs)]
    assert len({(each.system, each.tools) for each in read}) == 1


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": [], "system": "Be kind."}, "/v1/messages"),
        ({"messages": [], "anthropic_version": "bedrock-2023-05-31"}, "/v1/messages"),
        ({"messages": [], "tools": [{"name": "look", "input_schema": {}}]}, "/v1/messages"),
        ({"messages": [], "tools": [{"type": "function"}, 7]}, "/v1/chat/completions"),
        ({"messages": [], "prompt": ""}, "/v1/chat/completions"),
        ({"prompt": "", "system": ""}, "/v1/completions"),
        ({}, "/v1/chat/completions"),
        ({"instructions": "Be kind.", "input": "Hi"}, "/v1/responses"),
        ({"instructions": "Be kind."}, "/v1/responses"),
        ({"input": "Hi"}, "/v1/responses"),
        ({"input": []}, "/v1/responses"),
        ({"input": [{"role": "user", "content": "Hi"}]}, "/v1/responses"),
        ({"input": "Hi", "prompt": {"id": "pmpt_1"}}, "/v1/responses"),
        ({"input": "Hi", "prompt": "x"}, "/v1/completions"),
        ({"input": [], "messages": []}, "/v1/chat/completions"),
        ({"input": ["Hi"]}, "/v1/embeddings"),
        ({"input": [[1, 2]]}, "/v1/embeddings"),
        ({"input": "Hi", "dimensions": 8}, "/v1/embeddings"),
    ],
)
def test_the_api_of_a_body(body, path):
    assert inputs.path_of(body) == path.encode()
