import io
import json
from pathlib import Path

import orjson
import pytest

from promptgroup_router.feed import table_file
from support.rawobjects import router, serving
from support.tables import SYSTEM, table

CHAT = {"model": "llama", "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]}


@pytest.fixture
def explain(command, monkeypatch):
    """Exit status, output and errors of a command; the body comes by standard input."""

    def run(*flags, body=CHAT):
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return command("explain", *flags)

    return run


@pytest.fixture
def served(tmp_path):
    path = tmp_path / "table.json"
    table_file.write(path, table())
    return str(path)


def test_by_a_table_file_and_no_cluster(explain, served, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    code, out, _ = explain("--table", served, "-H", "X-Session-ID: 7")
    assert code == 0
    assert "chat/support (model llama), matched by its system prompt" in out
    assert "by header x-session-id" in out


def test_json_is_the_routers_word_and_who_said_it(explain, served):
    code, out, _ = explain("--table", served, "-o", "json")
    found = json.loads(out)
    assert (code, found["by"], found["match"]["how"]) == (0, f"table {served}", "content")


def test_a_file_and_a_text_prompt(explain, served, tmp_path):
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"model": "llama", "prompt": SYSTEM + " And then"}))
    code, out, _ = explain(str(file), "--table", served, "-o", "json", body=b"not read")
    assert (code, json.loads(out)["match"]["how"]) == (0, "content")


def test_a_request_for_a_response(explain, served):
    body = {"model": "llama", "instructions": SYSTEM, "input": "Hi"}
    code, out, _ = explain("--table", served, "-o", "json", body=body)
    assert (code, json.loads(out)["match"]["how"]) == (0, "content")


def test_what_would_be_refused_is_one(explain, served):
    code, out, _ = explain("--table", served, body={"model": "nobody", "messages": CHAT["messages"]})
    assert (code, out[:12].strip()) == (1, "Refused:")
    assert explain("--table", served, body=b"{")[0] == 1


@pytest.mark.parametrize(
    ("flags", "body", "said"),
    [
        (("/no/file", "--table", "{table}"), CHAT, (2, "/no/file: there is no folder /no")),
        (("--table", "/no/table"), CHAT, (2, "/no/table: there is no folder /no")),
        (("--table", "{table}"), b"\xff", (2, "not text in UTF-8")),
        (("--router", "http://127.0.0.1:1"), CHAT, (3, "does not answer")),
    ],
)
def test_what_cannot_be_asked_is_one_line(explain, served, flags, body, said):
    status, words = said
    code, out, err = explain(*(each.replace("{table}", served) for each in flags), body=body)
    assert (code, out, err.count("\n")) == (status, "", 1)
    assert words in err


def test_a_table_is_read_up_to_a_limit(explain, served, monkeypatch):
    monkeypatch.setattr("promptgroup_cli.commands.explain.TABLE_BYTES", len(Path(served).read_bytes()) - 1)
    code, out, err = explain("--table", served)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{served}: longer than 0 MiB" in err


@pytest.mark.parametrize(
    ("content", "said"), [("{", "the file is not JSON: "), ("{}", "table: it has no format, so it is neither a table")]
)
def test_a_table_that_is_none(explain, tmp_path, content, said):
    path = tmp_path / "table.json"
    path.write_text(content)
    code, out, err = explain("--table", str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--table {path}: {said}" in err


def test_a_router_of_the_namespace_is_asked_with_the_body_and_the_headers(explain, kube):
    refusal = {"status": 503, "code": "no_replica", "param": None, "message": "retry"}
    serving(kube, router("r2"), router("r1"), explain={"refusal": refusal})
    code, out, _ = explain("-H", "authorization: Bearer a:b", "-H", "x-session-id:7")
    assert code == 1
    assert "503 no_replica: retry" in out
    method, path, headers, body = kube.requests[-1]
    assert (method, path) == ("POST", "/api/v1/namespaces/chat/pods/r1:9090/proxy/explain")
    assert headers["authorization"] == "Bearer t", "of the kubeconfig"
    asked = json.loads(body)
    assert asked["headers"] == {"authorization": "Bearer a:b", "x-session-id": "7"}
    assert (json.loads(asked["body"]), asked["path"]) == (CHAT, "/v1/chat/completions")


@pytest.mark.parametrize("answer", [b"{}", b'{"refusal": null, "ring": []}', b"[]", b"<html>"])
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_server_that_is_no_router_is_one_line(explain, monkeypatch, answer, output):
    monkeypatch.setattr("promptgroup_cli.reach.connect.router_at", lambda _: lambda *_: answer)
    status, out, err = explain("--router", "http://user:word@127.0.0.1:80", "-o", output)
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert "router http://127.0.0.1:80 does not answer as a router of this version does" in err
