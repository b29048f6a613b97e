"""Completion: the scripts, a shell's question as argcomplete's protocol asks it, kubectl's question."""

import argparse
import os
import subprocess
import sys

import pytest

from promptgroup_cli.__main__ import build_parser, kubectl_complete, main
from promptgroup_cli.commands import completion
from promptgroup_cli.commands.completion import SHELLS, add


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(words)


def test_a_shell_without_a_script_is_refused(capsys):
    with pytest.raises(SystemExit):
        parsed("powershell")
    assert "zsh" in capsys.readouterr().err


def answered(*words):
    *lines, directive = completion.answer_kubectl(build_parser("promptgroup", words), words)
    assert directive == ":0"
    return [line.split("\t")[0] for line in lines]


def test_kubectl_is_told_the_commands():
    assert {"plan", "size", "fingerprint", "completion"} <= set(answered(""))
    assert answered("fing") == ["fingerprint"]
    assert answered() == answered("")


def test_kubectl_is_told_flags_and_choices_of_a_command_with_what_they_mean():
    assert "--check" in answered("fingerprint", "--")
    assert answered("size", "--kv-dtype", "fp8") == ["fp8"]
    lines = completion.answer_kubectl(build_parser("promptgroup", ["fingerprint"]), ["fingerprint", "--che"])
    assert lines == ["--check\tcompare with spec.prompt.fingerprint of PromptGroups", ":0"]


def test_files_are_left_to_the_shell():
    assert answered("fingerprint", "") == []
    assert answered("fingerprint", "it's a prompt.txt", "") == []


def test_the_environment_is_as_before():
    before = dict(os.environ)
    answered("")
    assert dict(os.environ) == before


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["promptgroup", "completion", shell])
    assert main() == 0
    assert "promptgroup" in capsys.readouterr().out


def test_a_shell_gets_an_answer_and_no_command_runs(tmp_path):
    out = tmp_path / "out"
    line = "promptgroup completion z"
    asked = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(out), "COMP_LINE": line, "COMP_POINT": str(len(line)),
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-m", "promptgroup_cli"], env=os.environ | asked, capture_output=True, check=True
    )
    assert run.stdout == b""
    assert out.read_text().split() == ["zsh"]


def test_kubectl_calls_it_by_its_own_name(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-promptgroup", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.startswith("usage: kubectl promptgroup ")
    monkeypatch.setattr("sys.argv", ["kubectl_complete-promptgroup", "compl"])
    assert kubectl_complete() == 0
    assert capsys.readouterr().out == "completion\tprint a shell's completion script\n:0\n"
