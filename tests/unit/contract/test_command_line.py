"""Mistakes at the command line of each program: one line, status 2, and the word that was probably meant."""

import pytest

import promptgroup_operator.__main__
import promptgroup_picker.settings
import promptgroup_router.base.settings
from promptgroup_contract.command_line import did_you_mean


def operator(words):
    return promptgroup_operator.__main__.main()


def router(words):
    return promptgroup_router.base.settings.parse(words, {})


def picker(words):
    return promptgroup_picker.settings.parse(words, {})


@pytest.mark.parametrize(
    ("program", "line", "words"),
    [
        (
            operator,
            "rnu",
            "promptgroup-operator: argument COMMAND: 'rnu' is not known, did you mean run? (known: run, crd)",
        ),
        (operator, "crd --otput x", "promptgroup-operator crd: unknown argument '--otput', did you mean --output?"),
        (router, "--tabel x", "promptgroup-router: unknown argument '--tabel', did you mean --table?"),
        (picker, "--tabel x", "promptgroup-picker: unknown argument '--tabel', did you mean --table?"),
    ],
    ids=["a command", "a flag of a command", "router", "picker"],
)
def test_a_mistake_is_one_line(program, line, words, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["program", *line.split()])
    with pytest.raises(SystemExit) as ended:
        program(line.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(words)


def test_what_is_close():
    assert did_you_mean("vllm", ["vLLM", "SGLang"]) == ", did you mean vLLM?"
    assert did_you_mean("x", ["vLLM", "SGLang"]) == ""
