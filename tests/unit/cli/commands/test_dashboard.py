import json
import os
import signal
import urllib.request

import pytest

from promptgroup_cli.dashboard.observer import DashboardObserver
from promptgroup_router.base.metrics import Metrics
from support.rawobjects import promptgroup, router, serving


def test_help_says_what_it_does(command):
    code, out, _ = command("dashboard", "--help", exits=True)
    assert code == 0
    assert "changes nothing" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "70000"), "'70000' is not a whole number from 0 to 65535"),
        (("--port", "x"), "'x' is not a whole number"),
        (("--interval", "0.1"), "'0.1' is not a number of seconds from 0.5"),
        (("--interval", "nan"), "'nan' is not a number of seconds"),
    ],
)
def test_a_wrong_value_is_one_line(command, words, said):
    code, _, err = command("dashboard", *words, exits=True)
    assert code == 2
    assert said in err


@pytest.fixture
def looked_at(monkeypatch, capsys):
    """What the page shows while the command serves it; then Ctrl-C."""
    found = []

    def run(observer, *_):
        url = capsys.readouterr().out.split("The page is at ")[1].split()[0]
        with urllib.request.urlopen(f"{url}view") as answer:
            found.append(json.load(answer))
        raise KeyboardInterrupt

    monkeypatch.setattr(DashboardObserver, "run", run)
    return found


def test_it_serves_the_page_until_it_is_stopped(kube, command, looked_at):
    table = {"groups": [], "replicas": {}, "moves": []}
    serving(kube, promptgroup(), router("r1"), metrics=Metrics().text(), table=table, unmatched={"unmatched": []})
    code, out, err = command("dashboard")
    assert (code, out, err) == (0, "", "")
    (view,) = looked_at
    assert (view["namespace"], [each["label"] for each in view["groups"]]) == ("chat", ["chat/support"])


def test_sigterm_ends_it_too(kube, command, monkeypatch):
    serving(kube, promptgroup(), router("r1"), metrics=Metrics().text())
    before = signal.getsignal(signal.SIGTERM)

    def run(_, ended, *__):
        assert not ended.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(10)

    monkeypatch.setattr(DashboardObserver, "run", run)
    assert command("dashboard")[0] == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_cannot_be_reached_at_all_ends_it(kube, command):
    code, out, err = command("dashboard")
    assert (code, out, err.count("\n")) == (3, "", 1)


def test_without_a_cluster_a_router_must_be_named(command):
    code, _, err = command("dashboard", "--no-cluster")
    assert code == 2
    assert "name a router with --router URL" in err
    code, _, err = command("dashboard", "--no-cluster", "--router", "http://127.0.0.1:1")
    assert code == 3
    assert "does not answer" in err
