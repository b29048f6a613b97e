import argparse
import importlib

import pytest

from promptgroup_cli.base.cluster_flags import add_cluster, add_interval, add_router


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
    importlib.import_module(f"promptgroup_cli.flags.{name}").add(parser)
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
