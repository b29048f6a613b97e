import json

import pytest

from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.dashboard.reading import MOST_MOVES, SessionMove, router_reading
from promptgroup_operator.world.snapshot import Key
from promptgroup_router.base.metrics import Metrics

FULL = "78aace27" + "0" * 24
GROUP = {
    "namespace": "chat", "name": "support", "model": "llama",
    "aliases": [{"name": "assistant", "since": "2026-11-25T10:00:00Z"}],
    "revisions": [{"fingerprint": FULL, "weight": 100, "slots": [{"slot": 0, "state": "Ready", "address": "x"}]}],
}  # fmt: skip
MOVE = {"from": "chat/support/78aace27/0", "to": "chat/support/78aace27/1", "secondsAgo": 1.5}


def read(*, metrics=None, **table):
    told = {"groups": [GROUP], "replicas": {}, "moves": [MOVE]} | table
    return router_reading((metrics or Metrics()).text().encode(), json.dumps(told).encode(), {"unmatched": []})


def test_a_router_is_read_whole():
    metrics = Metrics()
    metrics.requests.add("chat/support", "200")
    metrics.revision_requests.add("chat/support", "78aace27", "first", "name", "true", "ok")
    found = read(metrics=metrics)
    assert found.page.requests == {"chat/support": 1}
    assert found.counts[Key("chat", "support")].requests == 1
    assert found.moves == (SessionMove("chat/support/78aace27/0", "chat/support/78aace27/1", 1.5),)
    assert found.routes["chat/support"]["spec"]["aliases"] == [{"name": "assistant"}]
    (revision,) = found.routes["chat/support"]["spec"]["revisions"]
    assert revision == {"fingerprint": FULL, "weight": 100, "slots": [{"slot": 0, "state": "Ready"}]}


def test_a_router_of_an_earlier_version_tells_no_moves():
    told = json.dumps({"groups": [], "replicas": {}}).encode()
    assert router_reading(b"", told, {"unmatched": []}).moves == ()


def test_of_many_moves_the_latest_are_read():
    moves = [MOVE | {"secondsAgo": float(number)} for number in range(2 * MOST_MOVES)]
    assert [each.seconds_ago for each in read(moves=moves).moves] == [
        float(each) for each in range(MOST_MOVES, 2 * MOST_MOVES)
    ]


@pytest.mark.parametrize(
    "table",
    [
        {"moves": 3},
        {"moves": [{}]},
        {"groups": [{}]},
        {"groups": 3},
        {"groups": [GROUP | {"aliases": [3]}]},
        {"replicas": [1]},
        {"replicas": {"x": {}}},
    ],
)
def test_what_is_no_table_raises_what_its_reader_expects(table):
    with pytest.raises((JsonError, ValueError, KeyError, TypeError, AttributeError, IndexError)):
        read(**table)
