"""The command `lint`: what it reads, its exit status, and that it prints no text of a prompt."""

import argparse
import json
from pathlib import Path

import pytest
import yaml

from promptgroup_cli.__main__ import main
from promptgroup_cli.commands.lint import WIDTH, add, document, sarif, text
from promptgroup_local.load.prompts import system_prompt
from support.lints import STATIC, chat, declared, report


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("flag", ["--block-size", "--show"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "²", "10001"])
def test_a_number_that_is_none_is_refused(flag, value, capsys):
    with pytest.raises(SystemExit):
        parsed("prompt.txt", f"{flag}={value}")
    assert "is not a whole number from 1 to 10000" in capsys.readouterr().err


def test_warnings_fail_and_nothing_is_quoted_unless_it_is_said():
    found = parsed("prompt.txt")
    assert (found.fail_on, found.show, found.block_size) == ("warning", 0, 16)


ROOT = Path(__file__).parents[4]


def group(system, name="support"):
    return {
        "apiVersion": "promptgroup.dev/v1alpha1", "kind": "PromptGroup", "metadata": {"name": name},
        "spec": {"prompt": {"system": system}},
    }  # fmt: skip


def body(system):
    return {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]}


@pytest.fixture
def lint(command, monkeypatch, tmp_path):
    """Lints a content; returns (status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(content, *words, name="file"):
        (tmp_path / name).write_text(content)
        return command("lint", name, *words)

    return run


def places(outcome):
    return [(each["rule"], each["file"], each["line"], each["offset"]) for each in json.loads(outcome[1])["findings"]]


def test_a_prompt_file(lint):
    assert lint(STATIC)[0] == 0
    assert places(lint(f"{STATIC}\n\nIt is 18:11:05.", "-o", "json")) == [("time", "file", 3, len(STATIC) + 8)]


def test_all_groups_of_a_manifest_with_the_lines_of_the_file(lint):
    literal = (
        "kind: PromptGroup\napiVersion: promptgroup.dev/v1alpha1\nmetadata: {name: a}\nspec:\n  prompt:\n"
        f"    system: |-\n      {STATIC}\n      18:11:05\n"
    )
    content = literal + "---\n" + yaml.safe_dump(group(f"{STATIC} 18:11:06"), sort_keys=True)
    outcome = lint(content, "-o", "json", name="a.yaml")
    assert [(rule, line) for rule, _, line, _ in places(outcome)] == [("time", 8), ("time", 16)]


def test_a_log_of_requests_and_lines_that_are_none(lint):
    lines = [json.dumps({"body": body(f"18:11:0{i} {STATIC}")}) for i in range(3)]
    outcome = lint("\n".join([*lines[:2], "{", lines[2]]), "-o", "json", name="a.jsonl")
    assert outcome[0] == 1
    assert places(outcome) == [("time", "a.jsonl", 1, 0), ("unreadable-request", "a.jsonl", 3, 0)]


@pytest.mark.parametrize(
    ("text", "words", "status"),
    [
        (f"{STATIC} 18:11:05", (), 1),
        (f"{STATIC} 18:11:05", ("--fail-on", "error"), 0),
        (f"{STATIC} 18:11", (), 0),
        (f"{STATIC} 18:11", ("--fail-on", "note"), 1),
        (f"Today is 2026-11-21. {STATIC}", ("--fail-on", "error"), 1),
        ("Be kind.", (), 1),
        ("Be kind.", ("--block-size", "2"), 0),
    ],
)
def test_exit_status(lint, text, words, status):
    assert lint(text, *words)[0] == status


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("kind: Pod\n", "a.yaml", "a.yaml: no PromptGroup in the file, but Pod"),
        ("kind: [\n", "a.yaml", "a.yaml: not YAML"),
        ("{\n{", "a.jsonl", "a.jsonl:1: not JSON"),
        ("", "a.jsonl", "a.jsonl: it has no request"),
    ],
)
def test_what_cannot_be_read(lint, content, name, said):
    status, out, err = lint(content, name=name)
    assert (status, out) == (2, "")
    assert err.startswith(f"promptgroup lint: {said}")


@pytest.mark.heavy
def test_the_page_shows_what_the_commands_print(lint, monkeypatch, capsys):
    page = (ROOT / "docs" / "how-to" / "cli.md").read_text()
    content = (
        "Today is Saturday, November 21, 2026.\nYou are the support assistant of Example Ltd. You answer in the "
        "language of the customer.\nsession id: 12ab\n"
    )
    assert f"$ promptgroup lint prompt.txt\n{lint(content, name='prompt.txt')[1]}```" in page
    summarise, code = system_prompt("summarise"), system_prompt("code")
    named = (f"{code[:700]}\nThe customer is called {chr(65 + i % 26)}. {i}\n{code[700:]}" for i in range(0, 1000, 2))
    log = "\n".join(json.dumps(body(text)) for each in named for text in (each, summarise))
    assert f"$ promptgroup lint requests.jsonl\n{lint(log, name='requests.jsonl')[1]}```" in page
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["promptgroup", "fingerprint", "manifests/samples/support.yaml"])
    assert main() == 0
    assert f"$ promptgroup fingerprint manifests/samples/support.yaml\n{capsys.readouterr().out}```" in page


@pytest.mark.parametrize("output", ["text", "json", "sarif"])
def test_no_text_of_a_prompt_is_printed_unless_asked_for(lint, output):
    hidden = ["Xyzzy", "18:11:05", "plugh", "4711ab"]
    content = f"Xyzzy {STATIC} 18:11:05 {{{{plugh_name}}}} session id: 4711ab"
    shown = lint(content, "-o", output)[1] + lint(json.dumps(body(content)), "-o", output)[1]
    assert [word for word in hidden if word in shown] == []
    assert "18:11:05" in lint(content, "--show", "8")[1]


def test_a_secrets_text_is_never_printed(lint):
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"k": f"18:11:05 {STATIC}"},
    }
    refers = group("")
    refers["spec"]["prompt"] = {"systemFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    status, out, _ = lint(yaml.safe_dump_all([secret, refers]), "--show", "100")
    assert status == 1
    assert "18:11" not in out


@pytest.mark.parametrize("path", sorted((ROOT / "manifests" / "samples").glob("*.yaml")), ids=lambda path: path.stem)
def test_our_samples_are_clean(lint, path):
    assert lint(path.read_text(), name=path.name)[0] == 0


DATED = report(declared(f"Time: 18:11:05. {STATIC}\n18:11:06", lines=True), show=20)
LOG = report(*[chat(STATIC)] * 3, chat(f"{STATIC} It is short."))


def test_text_explains_each_rule_once():
    lines = text(DATED).splitlines()
    assert lines[0] == (
        f"file:1: warning time at byte 6 of system: a time of day, followed by {len(STATIC) + 11} bytes: '18:11:05'"
    )
    assert lines[1].startswith("    why: ")
    assert lines[2].startswith("    fix: ")
    assert lines[-2].startswith("file:2: warning time at byte ")
    assert lines[-1] == "1 prompt examined: 2 warnings"
    assert [line for line in lines if "why:" in line] == [lines[1]]
    assert max(map(len, lines)) <= WIDTH


def test_text_has_a_table_of_prefixes():
    lines = text(LOG).splitlines()
    assert lines[1].split() == ["hash", "bytes", "tokens", "requests", "share", "then"]
    assert lines[2].split()[1:5] == [str(len(STATIC)), str(len(STATIC) // 4), "4", "100%"]
    assert lines[2].endswith(f"2 prompts, from byte {len(STATIC)} of system")
    assert lines[-1] == "4 prompts examined: nothing found"


def test_json():
    found = json.loads(document(DATED))
    assert found["prompts"] == 1
    first = found["findings"][0]
    assert {key: value for key, value in first.items() if key not in ("message", "why", "wayOut")} == {
        "rule": "time", "severity": "warning", "file": "file", "line": 1, "field": "system", "offset": 6, "requests": 1,
        "excerpt": "18:11:05",
    }  # fmt: skip
    assert json.loads(document(LOG))["prefixes"][0] == {
        "model": "m", "hash": LOG.prefixes[0].hash, "bytes": len(STATIC), "tokens": len(STATIC) // 4, "requests": 4,
        "share": 1.0, "prompts": 2, "field": "system", "offset": len(STATIC),
    }  # fmt: skip


def test_sarif():
    (run,) = json.loads(sarif(DATED))["runs"]
    known = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} <= known
    assert [result["locations"][0]["physicalLocation"]["region"]["startLine"] for result in run["results"]] == [1, 2]
    assert {result["level"] for result in run["results"]} == {"warning"}
