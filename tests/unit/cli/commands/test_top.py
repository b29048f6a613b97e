import argparse
import json
from datetime import UTC, datetime
from functools import partial

import pytest

from promptgroup_cli.commands.top import CLEAR, UNMATCHED, TopFrame, TopState, add, document, table
from promptgroup_cli.reach.top_rates import ReplicaRate, TopRates
from promptgroup_router.base.metrics import Metrics
from support.rawobjects import promptgroup, router, serving
from support.scriptedkube import Answer


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("interval", ["0", "x", "nan", "1e9"])
def test_an_interval_that_is_none(interval, capsys):
    with pytest.raises(SystemExit):
        parsed("--interval", interval)
    assert "0.1 to 3600" in capsys.readouterr().err


def test_a_frame_takes_three_seconds_unless_another_time_is_given():
    assert (parsed().interval, parsed("--interval", "0.5").interval) == (3.0, 0.5)


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


BUSY = TopRates(
    requests=12.34,
    hit_rate=0.954,
    median=0.026,
    late=0.061,
    in_flight=3,
    waiting=2,
    replicas=(ReplicaRate("chat/support", "78aace27", 0, in_flight=3, wait=0.2, sessions=4, filled=0.31),),
)
NOW = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)


def look(rates=None, states=None, **fields):
    values = {"now": NOW, "seconds": 3.0, "routers": 2, "silent": ()} | fields
    return TopFrame(states=states or {}, rates=rates or {}, **values)


def test_a_line_a_group_and_a_line_a_replica():
    lines = table(look({"chat/support": BUSY}, {"chat/support": TopState(True, "1/2", 0.92)})).splitlines()
    assert lines[0] == "2026-11-03T12:00:00Z, the last 3 s, 2 routers"
    assert lines[3].split() == ["chat/support", "True", "1/2", "12.3", "95.4%", "92%", "26", "ms", "61", "ms", "3", "2"]
    assert lines[6].split() == ["chat/support/78aace27/0", "3", "200", "ms", "4", "31%"]


def test_guests_stand_with_their_host():
    states = {"chat/pool": TopState(True, "3/3"), "chat/returns": TopState(True, "2/3", host="pool")}
    lines = table(look({}, states)).splitlines()
    assert lines[2].endswith("REPLICAS OF")
    assert [line.split()[-1] for line in lines[3:5]] == ["-", "pool"]
    assert [each["engineFrom"] for each in json.loads(document(look({}, states)))["groups"]] == [None, "pool"]


def test_groups_that_routers_do_not_know_and_groups_that_no_cluster_was_asked_of():
    lines = table(look({"chat/support": TopRates()}, {"chat/new": TopState(False, "")}, routers=1)).splitlines()
    assert lines[0].endswith("1 router")
    assert [line.split()[:4] for line in lines[3:]] == [
        ["chat/new", "False", "-", "0.0"],
        ["chat/support", "-", "-", "0.0"],
    ]


def test_requests_of_no_group_are_shown_when_there_are_some():
    assert "(no group)" not in table(look({UNMATCHED: TopRates()}))
    assert (
        table(look({UNMATCHED: TopRates(requests=1.0), "chat/a": TopRates()})).splitlines()[-1].startswith("(no group)")
    )


def test_routers_that_do_not_answer_are_named():
    assert table(look(silent=("r3",))).splitlines()[0].endswith("2 routers, no answer from r3")


def test_the_document_is_one_line_with_everything():
    text = document(look({"chat/support": BUSY}, {"chat/support": TopState(True, "1/2", 0.92)}))
    assert "\n" not in text
    found = json.loads(text)
    assert (found["time"], found["seconds"], found["routers"]) == ("2026-11-03T12:00:00Z", 3.0, 2)
    assert found["groups"] == [
        {
            "group": "chat/support",
            "ready": True,
            "warm": "1/2",
            "engineFrom": None,
            "requestsPerSecond": 12.34,
            "hitRate": 0.954,
            "statusHitRate": 0.92,
            "ttftP50": 0.026,
            "ttftP99": 0.061,
            "inFlight": 3,
            "waiting": 2,
            "replicas": [
                {
                    "revision": "78aace27",
                    "slot": 0,
                    "rank": None,
                    "inFlight": 3,
                    "backlogSeconds": 0.2,
                    "sessions": 4,
                    "kvOfSessions": 0.31,
                }
            ],
        }
    ]
