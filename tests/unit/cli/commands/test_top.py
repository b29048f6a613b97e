import json
from functools import partial

import pytest

from promptgroup_cli.commands.top import CLEAR
from promptgroup_router.base.metrics import Metrics
from support.rawobjects import promptgroup, router, serving
from support.scriptedkube import Answer

INTERVAL = ("--interval", "0.1")
TABLE = {"replicas": {f"chat/support/78aace27{'0' * 24}/0": {
    "inFlight": 1, "waitSeconds": 0.0, "liveSessions": 1, "liveTokens": 10, "kvTokens": 100,
}}}  # fmt: skip


@pytest.fixture
def top(command):
    return partial(command, "top", *INTERVAL)


def counting(kube, *objects, silent=""):
    """Routers that have served one more request each time that they are asked; `silent` does not answer."""
    serving(kube, *objects, metrics="", table=TABLE)
    listed, asked = kube.serve, Metrics()

    def serve(method, path):
        if silent and f"/{silent}:" in path:
            return Answer(cut=True)
        if path.endswith("/metrics"):
            asked.requests.add("chat/support", "200")
            return Answer(200, asked.text().encode())
        return listed(method, path)

    kube.serve = serve


def test_once_has_rates_and_what_stands_in_the_status(kube, top):
    counting(kube, promptgroup(), router("r1"))
    code, out, _ = top("--once", "-o", "json")
    (group,) = json.loads(out)["groups"]
    assert code == 0
    assert group["requestsPerSecond"] > 0
    assert (group["ready"], group["warm"], group["inFlight"]) == (True, "2/2", 1)
    assert "chat/support/78aace27/0" in top("--once")[1]


def stopped_after(looks, monkeypatch):
    """Ctrl-C at the sleep after so many looks."""
    sleeps = []

    def sleep(seconds):
        sleeps.append(seconds)
        if len(sleeps) > looks:
            raise KeyboardInterrupt

    monkeypatch.setattr("promptgroup_cli.commands.top.time.sleep", sleep)


@pytest.mark.heavy
def test_it_goes_on_until_it_is_stopped_and_redraws_on_a_terminal_only(kube, top, monkeypatch):
    counting(kube, promptgroup(), router("r1"))
    stopped_after(2, monkeypatch)
    code, out, _ = top()
    assert (code, out.count("GROUP"), CLEAR in out) == (0, 2, False)
    stopped_after(2, monkeypatch)
    assert len(top("-o", "json")[1].splitlines()) == 2
    stopped_after(2, monkeypatch)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert top()[1].count(CLEAR) == 2


def test_a_router_that_does_not_answer_is_named_and_the_others_are_shown(kube, top):
    counting(kube, router("r1"), router("r2"), silent="r2")
    found = json.loads(top("--once", "-o", "json")[1])
    assert (found["routers"], found["silent"]) == (1, ["r2"])


def test_when_none_answers_it_ends(kube, top):
    counting(kube, router("r1"), silent="r1")
    code, out, err = top("--once")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "r1 does not answer" in err
