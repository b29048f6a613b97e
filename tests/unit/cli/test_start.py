"""The command line as a process: what it imports, how it ends, and that nothing ends in a traceback."""

import json
import os
import subprocess
import sys
from importlib import metadata

import pytest

from promptgroup_cli.__main__ import COMMANDS

HEAVY = (
    "aiohttp", "kopf", "kubernetes", "prometheus_client", "prometheus_api_client", "pydantic", "requests", "urllib3",
    "yaml", "argcomplete", "asyncio", "promptgroup_operator.api", "promptgroup_operator.world",
)  # fmt: skip
"""Modules that take long to import, or bring some that do."""
LOAD = (
    "--model meta-llama/Llama-3.1-8B-Instruct --gpu H100-80GB --prompt-tokens 3000 --turn-tokens 100 "
    "--answer-tokens 200 --sessions 2000 --rate 100"
)
STARTS = {
    "promptgroup_cli lint prompt.txt": 70, "promptgroup_cli fingerprint -": 50,
    f"promptgroup_cli size {LOAD}": 60, "promptgroup_cli status": 35, "promptgroup_router --version": 30,
    "promptgroup_operator --version": 20, "promptgroup_picker --version": 30,
}  # fmt: skip
"""Command line that shall not wait → most modules of ours that it may import, with room for a few more."""


@pytest.mark.parametrize("line", STARTS)
def test_what_shall_not_wait_imports_little(line, tmp_path):
    (tmp_path / "prompt.txt").write_text("Be kind. " * 40)
    name, *words = line.split()
    program = (
        f"import runpy, sys; sys.argv = [{name!r}, *{words!r}]\n"
        f"try:\n    runpy.run_module({name!r}, run_name='__main__')\n"
        "finally:\n    print('\\n', *sys.modules, file=sys.stderr)\n"
    )
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "none")}
    ran = subprocess.run(
        [sys.executable, "-c", program], input="Be kind.", capture_output=True, text=True, check=False,
        env=environment, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    imported = ran.stderr.splitlines()[-1].split()
    # `size` has the operator's own model of loads
    heavy = {*HEAVY, "uvloop", "cryptography"} - {"promptgroup_operator.world"}
    assert heavy & set(imported) == set()
    ours = [each for each in imported if each.startswith("promptgroup_")]
    assert len(ours) <= STARTS[line]


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["fingerprint", "-"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_nothing_heavy_is_imported(words):
    program = (
        "import sys; from promptgroup_cli.__main__ import main\n"
        f"sys.argv = ['promptgroup', *{words!r}]\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], input="Be kind.", capture_output=True, text=True, check=True)
    assert set(HEAVY) & set(ran.stderr.split()) == set()
    assert ran.stdout


@pytest.mark.parametrize("name", ["promptgroup", "kubectl-promptgroup"])
def test_the_version(name, command, monkeypatch, capsys):
    from promptgroup_cli.__main__ import main  # noqa: PLC0415

    monkeypatch.setattr("sys.argv", [f"/usr/local/bin/{name}", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"promptgroup {metadata.version('promptgroup')}\n"


@pytest.mark.parametrize("words", [["--help"], ["fingerprint", "-"]])
def test_a_reader_that_goes_away_is_no_traceback(words):
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-m", "promptgroup_cli", *words], env=os.environ | {"PYTHONUNBUFFERED": ""},
        input=b"Be kind.", stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60,
    )  # fmt: skip
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_a_full_disk_is_no_traceback():
    command = [sys.executable, "-m", "promptgroup_cli", "fingerprint", "-"]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        ran = subprocess.run(command, input=b"Be kind.", stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (2, b"promptgroup: cannot write the output: No space left on device\n")


NO_INPUT = "standard input: it is closed: name a FILE, or send one in with <"


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ("--version >&-", "promptgroup: cannot write the output: Bad file descriptor"),
        ("fingerprint - </dev/null 1</dev/null", "promptgroup: cannot write the output: Bad file descriptor"),
        ("fingerprint - <&-", f"promptgroup fingerprint: {NO_INPUT}"),
        ("explain - <&-", f"promptgroup explain: {NO_INPUT}"),
        ("status --nope 2>&-", ""),
    ],
)  # fmt: skip
def test_a_closed_stream_is_one_line(shell, said):
    line = f"{sys.executable} -m promptgroup_cli {shell}"
    ran = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"{said}\n" if said else "")


BROKEN = {
    "not YAML": "clusters: [",
    "a list": "- a\n- b\n",
    "a text": "nothing",
    "empty": "",
    "two documents": "a: 1\n---\nb: 2\n",
    "deep": "[" * 100_000,
    "parts of wrong types": "clusters: 1\ncontexts: 2\nusers: 3\ncurrent-context: x\n",
    "half a context": "current-context: x\ncontexts: [{name: x}]\nclusters: []\nusers: []\n",
    "context of nothing": "current-context: x\ncontexts: [{name: x, context: null}]\nclusters: []\nusers: []\n",
    "binary": b"\xff\xfe",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_kubeconfig_is_one_line(command, tmp_path, monkeypatch, content):
    path = tmp_path / "kubeconfig"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.setenv("KUBECONFIG", str(path))
    status, out, err = command("status")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert str(path) in err or "set KUBECONFIG" in err


@pytest.mark.heavy
def test_a_kubeconfig_is_looked_for_before_the_models_are_imported(tmp_path):
    program = (
        "import sys; from promptgroup_cli.__main__ import main\n"
        "sys.argv = ['promptgroup', 'status']\n"
        "main()\nprint(*sys.modules)\n"
    )
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "none")}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert {"pydantic", "kubernetes", "promptgroup_operator.api"} & set(ran.stdout.split()) == set()


@pytest.mark.parametrize("path", ["none", "."])
def test_a_kubeconfig_that_is_no_file_is_one_line(command, tmp_path, monkeypatch, path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / path))
    status, out, err = command("status")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert str(tmp_path) in err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
DEEP = "[" * 100_000
SIZE = (
    "size --config FILE --parameters 8B --gpu H100-80GB --prompt-tokens 9 --turn-tokens 9 --answer-tokens 9 "
    "--sessions 9 --rate 9"
)


@pytest.mark.parametrize(
    ("line", "name", "content"),
    [
        ("plan FILE", "f.yaml", LAUGHS),
        ("lint FILE", "f.yaml", LAUGHS),
        ("fingerprint FILE", "f.yaml", LAUGHS),
        ("plan FILE", "f.yaml", DEEP),
        ("lint FILE", "f.json", DEEP),
        ("lint FILE", "f.jsonl", DEEP),
        ("lint --as request FILE", "f", DEEP),
        ("fingerprint FILE", "f.json", '{"messages": ' + "[" * 600 + "]" * 600 + "}"),
        ("fingerprint FILE", "f.jsonl", '{"messages": [{"role": "user", "content": ' + "[" * 600 + "]" * 600 + "}]}"),
        ("fingerprint prompt.txt --tools FILE", "t.json", "[" * 600 + "]" * 600),
        ("fingerprint prompt.txt --tools FILE", "t.json", DEEP),
        ("explain --table FILE prompt.txt", "t.json", DEEP),
        (SIZE, "config.json", DEEP),
        ("lint FILE", "f.json", "no JSON"),
        ("fingerprint FILE", "f.json", "{name}, you are kind"),
    ],
)  # fmt: skip
def test_a_hostile_file_is_one_line_that_names_it(command, folder, line, name, content):
    (folder / "prompt.txt").write_text("Be kind.")
    (folder / name).write_text(content)
    status, out, err = command(*line.replace("FILE", name).split())
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert name in err
    assert len(err) < 400


def test_a_deep_body_is_the_routers_to_refuse(command, tmp_path):
    from promptgroup_router.feed import table_file  # noqa: PLC0415
    from support.tables import table  # noqa: PLC0415

    table_file.write(tmp_path / "table.json", table())
    (tmp_path / "body.json").write_text(DEEP)
    status, out, _ = command("explain", "--table", str(tmp_path / "table.json"), str(tmp_path / "body.json"))
    assert status == 1
    assert "not JSON" in out


ANTHROPIC = {
    "model": "claude", "system": [{"type": "text", "text": "Be kind. "}, {"type": "text", "text": "Be brief."}],
    "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}],
    "messages": [{"role": "user", "content": "Hi"}],
}  # fmt: skip
OPENAI = {
    "model": "m",
    "tools": [{"type": "function", "function": {
        "name": "look", "description": "Looks.", "parameters": {"type": "object"}}}],
    "messages": [{"role": "system", "content": "Be kind. Be brief."}, {"role": "user", "content": "Hi"}],
}  # fmt: skip


def test_an_anthropic_body_has_the_fingerprint_of_the_equal_openai_body(command, tmp_path):
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, (ANTHROPIC, OPENAI, {"body": ANTHROPIC}))))
    status, out, _ = command("fingerprint", str(tmp_path / "log.jsonl"))
    assert status == 0
    assert len({line.split()[0] for line in out.splitlines()}) == 1
    assert "system 18 bytes, tools" in out


def test_lint_looks_into_anthropic_bodies_and_late_system_messages(command, tmp_path):
    dated = "Today is 2026-11-22 10:00. You answer questions about parcels, politely, in one sentence, in English."
    file = tmp_path / "body.json"
    file.write_text(json.dumps(ANTHROPIC | {"system": dated}))
    status, out, _ = command("lint", str(file))
    assert (status, "current-date at byte 0 of system" in out) == (1, True)
    late = [{"role": "user", "content": "Hi"}, {"role": "system", "content": dated}]
    file.write_text(json.dumps({"messages": late}))
    status, out, _ = command("lint", str(file))
    assert status == 1
    assert "late-system at byte 0 of messages[1]" in out
    assert "current-date at byte 0 of messages[1]" in out
    assert "no-prefix" not in out


def test_a_request_without_a_prompt_has_no_fingerprint_to_pin(command, tmp_path):
    (tmp_path / "body.json").write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}))
    status, out, _ = command("fingerprint", str(tmp_path / "body.json"))
    assert (status, "neither a system text nor tools" in out) == (1, True)
