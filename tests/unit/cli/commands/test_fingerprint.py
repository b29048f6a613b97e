"""The command `fingerprint`: of what, and whether pins are right. tests/golden/fingerprints.json has the hashes."""

import argparse
import json

import pytest
import yaml

from promptgroup_cli.commands.fingerprint import add
from promptgroup_contract.fingerprint import fingerprint


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(words)


def test_the_standard_input_is_read_unless_files_are_named():
    assert (parsed().files, parsed("a", "b").files) == (["-"], ["a", "b"])


def test_a_format_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        parsed("--as", "yaml")
    assert "manifest" in capsys.readouterr().err


TOOLS = [{"type": "function", "function": {"name": "look"}}]
TEXT = "You are kind.\n"
HASH = fingerprint(TEXT)


def group(name="support", **prompt):
    return {
        "apiVersion": "promptgroup.dev/v1alpha1", "kind": "PromptGroup", "metadata": {"name": name},
        "spec": {"prompt": {"system": TEXT} | prompt},
    }  # fmt: skip


@pytest.fixture
def run(command, monkeypatch, tmp_path):
    """Runs the command; returns (status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return command("fingerprint", *words)

    def written(name, *documents):
        content = documents[0] if isinstance(documents[0], str) else yaml.safe_dump_all(documents)
        (tmp_path / name).write_text(content)
        return name

    run.written = written
    return run


def test_of_a_prompt(run):
    path = run.written("prompt.txt", TEXT)
    assert run(path) == (0, f"{HASH}  prompt.txt (system 14 bytes, no tools)\n", "")
    tools = run.written("tools.json", json.dumps(TOOLS))
    status, out, _ = run(path, "--tools", tools)
    assert (status, out.split()[0]) == (0, fingerprint(TEXT, TOOLS))


def test_of_requests_as_the_router_matches_them(run):
    messages = [{"role": "system", "content": TEXT}, {"role": "user", "content": "Hi"}]
    late = [{"role": "user", "content": "Hi"}, {"role": "system", "content": TEXT}]
    bodies = ({"messages": messages, "tools": TOOLS}, {"body": {"messages": late}}, {"prompt": TEXT})
    path = run.written("log.jsonl", "\n".join(map(json.dumps, bodies)))
    status, out, _ = run(path)
    lines = out.splitlines()
    assert status == 1
    assert [line.split()[0] for line in lines] == [fingerprint(TEXT, TOOLS), HASH, HASH]
    assert lines[1].endswith(
        "log.jsonl:2 (system 14 bytes, no tools; the system text is messages[1], and PromptGroups match the first "
        "message only: send it first)"
    )


def test_of_requests_for_responses(run):
    late = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "output": "Nothing."},
        {"role": "developer", "content": TEXT},
    ]
    bodies = ({"instructions": TEXT, "input": "Hi", "tools": [{"type": "function", "name": "look"}]}, {"input": late})
    path = run.written("log.jsonl", "\n".join(map(json.dumps, bodies)))
    status, out, _ = run(path)
    assert status == 1
    assert [line.split()[0] for line in out.splitlines()] == [fingerprint(TEXT, TOOLS), HASH]
    assert "the system text is input[3], and" in out


def test_of_all_groups_of_a_manifest_whatever_else_is_wrong_in_them(run):
    texts = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "texts"}, "data": {"system": "Other."}}
    source = {"systemFrom": {"configMapKeyRef": {"name": "texts", "key": "system"}}}
    refers = group("b")
    refers["spec"]["prompt"] = source
    path = run.written("groups.yaml", group("a"), texts, refers)
    _, out, _ = run(path)
    assert [line.split(" (")[0] for line in out.splitlines()] == [
        f"{HASH}  groups.yaml: PromptGroup a",
        f"{fingerprint('Other.')}  groups.yaml: PromptGroup b",
    ]


def test_check(run):
    right = run.written("right.yaml", group(fingerprint=HASH))
    wrong = run.written("wrong.yaml", group(fingerprint="0" * 32))
    bare = run.written("bare.yaml", group())
    assert run("--check", right, bare)[0] == 0
    status, out, _ = run("--check", right, wrong)
    assert status == 1
    assert "pinned)" in out.splitlines()[0]
    assert f"WRONG: pinned as {'0' * 32}" in out.splitlines()[1]
    assert run(wrong)[0] == 0
    status, _, err = run("--check", bare)
    assert status == 2
    assert "nothing is checked" in err


def test_json(run):
    path = run.written("group.yaml", group(fingerprint=HASH))
    _, out, _ = run(path, "-o", "json")
    assert json.loads(out) == [
        {
            "name": "group.yaml: PromptGroup support",
            "fingerprint": HASH,
            "systemBytes": 14,
            "toolsBytes": 0,
            "messagesBytes": 0,
            "pinned": HASH,
            "note": None,
        }
    ]


@pytest.mark.parametrize(
    ("name", "content", "words", "said"),
    [
        ("a.yaml", "kind: Pod\n", (), "a.yaml: no PromptGroup in the file, but Pod"),
        ("a.jsonl", "{}", (), "a.jsonl:1: no body of a request"),
        ("a.txt", TEXT, ("--tools", "b.json"), "--tools b.json: there is no such file in "),
        ("a.txt", TEXT, ("--tools", "a.txt"), "--tools a.txt: not JSON"),
        ("a.jsonl", "{}", ("--tools", "tools.json"), "a.jsonl: it brings its own tools"),
    ],
)
def test_what_cannot_be_read(run, name, content, words, said):
    run.written("tools.json", "[]")
    status, _, err = run(run.written(name, content), *words)
    assert status == 2
    assert err.startswith(f"promptgroup fingerprint: {said}")


def test_an_empty_file_is_asked_about(run):
    status, out, _ = run(run.written("empty.txt", ""))
    assert status == 1
    assert "neither a system text nor tools, so that no PromptGroup can match it: is it the right file?" in out
