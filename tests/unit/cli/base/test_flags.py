"""Mistakes at the command line: one line, status 2, and the word that was probably meant."""

import argparse
import importlib

import pytest

from promptgroup_cli.__main__ import COMMANDS, as_flags, build_parser
from promptgroup_cli.base.flags import (
    MOST_OF_GROUP,
    ClusterChoice,
    add_cluster,
    add_interval,
    add_prometheus_files,
    add_router,
    group_name,
    server_address,
)
from promptgroup_operator.api.prompt_group import MAX_NAME


def test_without_the_flags_the_kubeconfig_and_the_routers_of_the_namespace_decide():
    parser = argparse.ArgumentParser()
    add_cluster(parser)
    add_router(parser)
    assert vars(parser.parse_args([])) == {
        "namespace": None,
        "context": None,
        "kubeconfig": None,
        "router": None,
    }
    line = "-n chat --context prod --kubeconfig k.yaml --router http://r:9090"
    assert vars(parser.parse_args(line.split())) == {
        "namespace": "chat",
        "context": "prod",
        "kubeconfig": "k.yaml",
        "router": "http://r:9090",
    }


@pytest.mark.parametrize("name", ["status", "top", "dashboard", "explain", "responses", "discover"])
def test_every_command_that_asks_a_cluster_has_kubectls_flags(name):
    parser = argparse.ArgumentParser()
    importlib.import_module(f"promptgroup_cli.commands.{name}").add(parser)
    assert {"-n", "--context", "--kubeconfig"} <= set(parser._option_string_actions)


def test_several_routers_can_be_named_where_a_command_asks_several():
    parser = argparse.ArgumentParser()
    add_router(parser, several=True)
    assert parser.parse_args(["--router", "http://a:1", "--router", "http://b:1"]).router == [
        "http://a:1",
        "http://b:1",
    ]


@pytest.mark.parametrize(
    ("text", "valid"), [("0.5", True), ("3600", True), ("0.4", False), ("nan", False), ("a", False)]
)
def test_the_interval_has_bounds(text, valid, capsys):
    parser = argparse.ArgumentParser()
    add_interval(parser, 2.0, 0.5, "time between two looks")
    if valid:
        assert parser.parse_args(["--interval", text]).interval == float(text)
        return
    with pytest.raises(SystemExit):
        parser.parse_args(["--interval", text])
    assert f"{text!r} is not a number of seconds from 0.5 to 3600" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["top", "explain", "discover", "responses purge --all", "dashboard --no-cluster"])
@pytest.mark.parametrize("url", ["127.0.0.1:9090", "ftp://x", ""])
def test_a_router_is_named_by_an_address(command, line, url):
    status, out, err = command(*line.split(), "--router", url, exits=True)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "argument --router: not the address of a server, expected http://HOST:PORT" in err


@pytest.mark.parametrize("text", ["http://127.0.0.1:9090", "https://user:word@h/prometheus/", "http://[::1]:9090"])
def test_an_address_of_a_server(text):
    assert server_address(text) == text


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:9090", "ftp://h", "http://", "http://h?a=b", "http://u:word@[::1", "http://u:word@h:99999"]
)
def test_what_is_none_is_not_repeated(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected http://HOST:PORT") as refused:
        server_address(text)
    assert "word" not in str(refused.value)


@pytest.mark.parametrize("flag", ["--prometheus-token-file", "--prometheus-ca-file"])
@pytest.mark.parametrize(
    "line",
    ["usage --prometheus http://127.0.0.1:1", "size --from-prometheus http://127.0.0.1:1", "dashboard --no-cluster"],
)
def test_a_file_that_is_not_there_is_a_wrong_flag(command, line, flag):
    status, out, err = command(*line.split(), flag, "nope", exits=True)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"argument {flag}: 'nope' is no file" in err


def test_a_file_that_is_there_is_taken(tmp_path):
    (tmp_path / "token").write_text("t")
    parser = argparse.ArgumentParser()
    add_prometheus_files(parser)
    found = parser.parse_args(["--prometheus-token-file", str(tmp_path / "token")])
    assert (found.prometheus_token_file, found.prometheus_ca_file) == (tmp_path / "token", None)


@pytest.mark.parametrize("text", ["support", "a", "support-2.eu", "a" * 50])
def test_a_name_that_the_api_server_takes(text):
    assert group_name(text) == text


@pytest.mark.parametrize("text", ["", "Support", "a_b", "-a", "a-", "a..b", "a" * 51, "a\n"])
def test_a_name_that_it_refuses(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a name of a PromptGroup"):
        group_name(text)


def test_the_limit_is_that_of_the_models():
    assert MOST_OF_GROUP == MAX_NAME


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ClusterChoice(namespace="chat"), "kubectl"),
        (ClusterChoice(context="prod"), "kubectl --context prod"),
        (ClusterChoice(context="a b", kubeconfig="/k"), "kubectl --kubeconfig /k --context 'a b'"),
    ],
)
def test_kubectl_is_told_of_the_same_cluster(choice, said):
    assert choice.kubectl == said


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
