import argparse
import io
import json
from pathlib import Path

import orjson
import pytest

from promptgroup_cli.base.text import INDENT, WIDTH
from promptgroup_cli.commands.explain import add
from promptgroup_cli.commands.explain import table as explained
from promptgroup_contract.table import Engine, Policy, SlotState
from promptgroup_router.explain import explain_with_table, parse_explain_request
from promptgroup_router.feed import table_file
from support.rawobjects import router, serving
from support.tables import SYSTEM, group, revision, slot, table


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(words)


def test_a_header_that_is_none_is_not_repeated(capsys):
    with pytest.raises(SystemExit):
        parsed("-H", "secret")
    err = capsys.readouterr().err
    assert "expected 'NAME: VALUE'" in err
    assert "secret" not in err


def test_names_of_headers_are_in_lower_case():
    assert parsed("-H", "X-Session-ID: 7", "-H", "authorization:Bearer a:b").header == [
        ("x-session-id", "7"),
        ("authorization", "Bearer a:b"),
    ]


def test_either_a_router_or_a_table_answers():
    with pytest.raises(SystemExit):
        parsed("--router", "http://r:9090", "--table", "t.json")


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


SLOTS = (slot(0), slot(1, SlotState.ABSENT), slot(2))
SUPPORT = group("support", revision(slots=SLOTS, engine=Engine("one", 100_000, 10_000), tokens=2000))


def told(system=SYSTEM, model="llama", headers=None, groups=(SUPPORT,)):
    said = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": "Hi"}]
    body = orjson.dumps({"model": model, "messages": said}).decode()
    question = parse_explain_request(orjson.dumps({"body": body, "headers": headers or {}}))
    return orjson.loads(explain_with_table(table(*groups), question))


def facts(text):
    """Name → text of the facts, joined; the table's lines are left out."""
    found, name = {}, ""
    for line in text.partition("\n\n")[0].splitlines():
        name = line[:INDENT].strip().removesuffix(":") or name
        found[name] = f"{found.get(name, '')} {line[INDENT:]}".strip()
    return found


def test_a_request_that_brings_the_prompt():
    found = told(headers={"x-session-id": "7"})
    text = explained(found)
    shown = facts(text)
    assert list(shown) == ["Group", "Session", "Revision", "Tokens", "Home", "Goes to"]
    assert shown["Group"] == "chat/support (model llama), matched by its system prompt"
    assert shown["Session"] == f"{found['session']['key']}, named by header x-session-id; not seen before"
    assert shown["Tokens"].startswith("about 2,001, with 2,000 of the prefix and 0 of the history")
    assert shown["Goes to"] == f"{found['choice']}: {found['why']} (ExpectedTTFT)"
    assert all(len(line) <= WIDTH + 20 for line in text.splitlines())


@pytest.mark.parametrize(
    ("caller", "words"), [({"name": "alice"}, "alice"), ({"name": None}, "not known here")], ids=["known", "unknown"]
)
def test_the_caller_is_shown_where_the_group_asks_who_it_is(caller, words):
    shown = facts(explained(told() | {"caller": caller}))
    assert list(shown)[:3] == ["Group", "Caller", "Session"]
    assert shown["Caller"].startswith(words)


def test_replicas_are_listed_as_weighed_and_then_the_slots_that_get_nothing():
    rows = [line.split() for line in explained(told()).partition("\n\n")[2].splitlines()]
    assert rows[0][:5] == ["REPLICA", "RING", "STATE", "REQUESTS", "CACHED"]
    assert rows[0][-1] == "COST"
    assert [row[2] for row in rows[1:]] == ["Ready", "Ready", "Absent"]
    assert {row[1] for row in rows[1:]} == {"0", "1", "2"}
    assert rows[1][4] == "2,000"


def test_a_policy_that_weighs_no_time_shows_none():
    simple = group("support", revision(), policy=Policy.LEAST_REQUEST)
    rows = [line.split() for line in explained(told(groups=(simple,))).partition("\n\n")[2].splitlines()]
    assert rows[0] == ["REPLICA", "RING", "STATE", "REQUESTS"]


@pytest.mark.parametrize(
    ("changes", "fact", "words"),
    [
        ({"match": {"how": "name", "group": "chat/support", "model": "llama"}}, "Group", "by its name"),
        (
            {"match": {"how": "content", "group": "chat/support", "model": "llama", "alias": "gpt-4o"}},
            "Group",
            "(model llama by its alias gpt-4o), matched by its system prompt",
        ),
        (
            {"session": {"key": "ff", "named": False, "source": "", "last": None}},
            "Session",
            "ff, recognised by the start of the",
        ),
        (
            {"session": {"key": "ff", "named": False, "source": "header api-key", "last": None}},
            "Session",
            "by the start of the conversation, within header api-key",
        ),
        (
            {"session": {"key": "ff", "named": True, "source": "header a",
                         "last": {"replica": "a/b/c/0", "tokens": 2345, "secondsAgo": 3.5}}},
            "Session",
            "served 3.5 s ago by a/b/c/0, with 2,345 tokens",
        ),
        (
            {"revision": {"fingerprint": "a" * 32, "weight": 10, "weights": 100, "why": "weight"}},
            "Revision",
            "aaaaaaaa (weight 10 of 100): drawn by weight for a new session",
        ),
        (
            {"revision": {"fingerprint": "a" * 32, "weight": 0, "weights": 100, "why": "session"}},
            "Revision",
            "the session began with it",
        ),
        ({"ring": [{"replica": "a/b/c/1", "state": "Absent"}], "candidates": []}, "Home", "c/1 (Absent)"),
        ({"choice": None, "why": "no room"}, "Goes to", "no replica yet: no room"),
    ],
)  # fmt: skip
def test_facts_in_words(changes, fact, words):
    assert words in facts(explained(told() | changes))[fact]


def test_a_request_without_a_group_is_told_which_prompt_it_leaves():
    shown = facts(explained(told(system=SYSTEM[:-1] + "!")))
    assert shown["Group"].startswith("none (model llama): no group declares")
    assert f"departs from the prompt of chat/support at byte {len(SYSTEM) - 1}" in shown["Group"]
    assert "Revision" not in shown


def test_states_that_a_replica_cannot_be_taken_in():
    found = told()
    first, second = found["candidates"]
    found["candidates"] = [first | {"room": False}, second | {"ejected": True, "cost": None, "room": None}]
    rows = [line.split() for line in explained(found).partition("\n\n")[2].splitlines()[1:]]
    assert [row[2] for row in rows] == ["Full", "Ejected", "Absent"]
    found["candidates"] = [first | {"lent": True}, second]
    assert "Lent" in explained(found)


def test_a_refusal():
    shown = explained(told(model="nobody"))
    assert shown.startswith("Refused:      404 model_not_found: model 'nobody' is neither")


def test_a_group_without_a_replica():
    nobody = group("support", revision(slots=(slot(0, SlotState.ABSENT),)))
    shown = facts(explained(told(groups=(nobody,))))
    assert list(shown) == ["Group", "Session", "Revision", "Tokens", "Refused"]
    assert shown["Refused"].startswith("503 no_replica: group 'chat/support' has no replica")
