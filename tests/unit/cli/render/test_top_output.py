import json
from datetime import UTC, datetime

from promptgroup_cli.reach.top_rates import ReplicaRate, TopRates
from promptgroup_cli.render.top_output import UNMATCHED, TopFrame, TopState, document, table

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
    lines = table(look({"chat/support": BUSY}, {"chat/support": TopState(True, "1/2")})).splitlines()
    assert lines[0] == "2026-11-03T12:00:00Z, the last 3 s, 2 routers"
    assert lines[3].split() == ["chat/support", "True", "1/2", "12.3", "95.4%", "26", "ms", "61", "ms", "3", "2"]
    assert lines[6].split() == ["chat/support/78aace27/0", "3", "200", "ms", "4", "31%"]


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
    text = document(look({"chat/support": BUSY}, {"chat/support": TopState(True, "1/2")}))
    assert "\n" not in text
    found = json.loads(text)
    assert (found["time"], found["seconds"], found["routers"]) == ("2026-11-03T12:00:00Z", 3.0, 2)
    assert found["groups"] == [
        {
            "group": "chat/support",
            "ready": True,
            "warm": "1/2",
            "requestsPerSecond": 12.34,
            "hitRate": 0.954,
            "ttftP50": 0.026,
            "ttftP99": 0.061,
            "inFlight": 3,
            "waiting": 2,
            "replicas": [
                {
                    "revision": "78aace27",
                    "slot": 0,
                    "inFlight": 3,
                    "backlogSeconds": 0.2,
                    "sessions": 4,
                    "kvOfSessions": 0.31,
                }
            ],
        }
    ]
