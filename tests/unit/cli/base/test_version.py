"""Mistakes at the command line: one line, status 2, and the word that was probably meant."""

import pytest

from promptgroup_cli.__main__ import COMMANDS, as_flags, build_parser


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("statsu", "'statsu' is not known, did you mean status? (known: status, top,"),
        ("status --namespce chat", "unknown argument '--namespce', did you mean --namespace?"),
        ("status --outputt=json", "unknown argument '--outputt=json', did you mean --output?"),
        ("lint --fail-on eror x", "'eror' is not known, did you mean error? (known: note, warning, error)"),
        ("status a b", "unknown argument 'b';"),
        ("status -o yaml", "'yaml' is not known (known: table, json)"),
        ("lint", "the following arguments are required: FILE"),
        ("--versoin", "unknown argument '--versoin', did you mean --version?"),
        ("lint --fail-onn error", "unknown argument '--fail-onn', did you mean --fail-on?"),
        ("usage --promethues http://p:9090", "unknown argument '--promethues', did you mean --prometheus?"),
        ("", "the following arguments are required: COMMAND"),
    ],
)
def test_a_mistake_is_one_line(line, words, capsys):
    with pytest.raises(SystemExit) as ended:
        build_parser("promptgroup", line.split()).parse_args(line.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert "--help` lists the flags" in err


@pytest.mark.parametrize("words", [[], ["status"], ["lint"]], ids=" ".join)
def test_the_version_of_every_command_is_the_programs(words, capsys):
    with pytest.raises(SystemExit) as ended:
        build_parser("promptgroup", words).parse_args([*words, "--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("promptgroup ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_the_exit_statuses(command, capsys):
    with pytest.raises(SystemExit) as ended:
        build_parser("promptgroup", [command]).parse_args([command, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "exit status:\n  0  " in shown
    assert "\n  3  " in shown


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("help", "--help"),
        ("help status", "status --help"),
        ("version", "--version"),
        ("status help", "status help"),
        ("", ""),
    ],
)
def test_help_and_version_may_be_spelt_as_commands(line, flags):
    assert as_flags(line.split()) == flags.split()


@pytest.mark.parametrize(("line", "said"), [("help status", "usage: promptgroup status "), ("version", "promptgroup ")])
def test_they_do_what_the_flags_do(command, line, said):
    code, out, err = command(*line.split(), exits=True)
    assert (code, err) == (0, "")
    assert out.startswith(said)
