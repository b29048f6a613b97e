import json
import re
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from promptgroup_cli.commands.size.observed import observed_size, table
from promptgroup_cli.forecast.forecast import ReplicaForecast, Workload, expect
from promptgroup_cli.forecast.preview import observed
from promptgroup_operator.sizing.limits import Limit
from promptgroup_operator.world.load import GroupLoad

CHAT = Workload(rate=20, sessions=400, prefix=3000, history=1200, turn=100, answer=200)
REPLICA = ReplicaForecast(kv_tokens=400_000, prefill_rate=10_000, step=0.007, context_rate=25e6)
LOAD = observed(CHAT, REPLICA, expect(CHAT, REPLICA, 4))


def small(kv_tokens):
    """The load of replicas whose cache is too small for it."""
    replica = replace(REPLICA, kv_tokens=kv_tokens)
    return observed(CHAT, replica, expect(CHAT, replica, 4))


def test_what_was_observed_stands_among_the_numbers_around_it():
    found = observed_size(LOAD, 0.3, 64)
    present = next(each for each in found.prospects if each.replicas == 4)
    assert [each.replicas for each in found.prospects] == [2, 3, 4, 5, 6]
    assert present.hit_rate == pytest.approx(LOAD.engines.hit_rate)
    assert (found.observed, found.rate, found.prompt_tokens) == (4, 20, 4300)


def test_what_is_needed_is_shown_even_far_from_what_there_is():
    found = observed_size(small(40_000), 0.3, 64)
    assert found.needed > 6
    assert found.prospects[-1].replicas == found.needed
    assert found.prospects[-1].lacks is None
    assert found.prospects[0].lacks is Limit.WORKING_SET
    assert "WorkingSetOutgrewCache" in table(found)


def test_a_need_beyond_the_most_is_none():
    found = observed_size(small(40_000), 0.3, 8)
    assert found.needed is None
    assert "more replicas than were tried" in table(found)


def test_an_idle_group_needs_one():
    quiet = replace(LOAD.engines, requests=0, queries=0, hits=0, generated=0, usage=0, running=0)
    assert observed_size(GroupLoad(600, quiet), None, 8).needed == 1


@pytest.mark.parametrize("stale", ["", "Prometheus at http://there does not answer"])
def test_nothing_known_is_said_with_its_reason(stale):
    with pytest.raises(ValueError, match=stale or "too little is known"):
        observed_size(GroupLoad(600, None, stale=stale), 0.3, 8)


VALUES = {
    "requests": 20, "queries": 86_000, "hits": 83_000, "generated": 4000, "running": 40, "waiting": 0, "usage": 0.06,
    "sessions": 400, "session_tokens": 600_000, "tokens": 86_000, "served": 20, "errors": 0,
}  # fmt: skip
PODS = [f"support-9f2c61d0-{each}" for each in range(4)]


class Answers(BaseHTTPRequestHandler):
    """Says what is asked for by name, and counts the questions."""

    def do_GET(self):
        asked = parse_qs(urlsplit(self.path).query)
        self.server.queries.append(asked["query"][0])
        found = []
        wanted = [] if self.server.silent else re.findall(r'"what", "(\w+)"', asked["query"][0])
        for what in wanted:
            if what == "scrapes":
                found += [({"what": what, "pod": pod}, 8) for pod in PODS]
            elif what == "newest":
                found.append(({"what": what}, float(asked["time"][0]) - 5))
            elif what in VALUES:
                found.append(({"what": what}, VALUES[what]))
        result = [{"metric": labels, "value": [0, str(value)]} for labels, value in found]
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def prometheus():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.queries, server.status, server.silent = [], 200, False
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def size(command, prometheus):
    def run(**changed):
        flags = {
            "from_prometheus": f"http://127.0.0.1:{prometheus.server_port}", "group": "chat/support", "output": "json",
            "revision": "9f2c61d0", "kv_tokens": "400000", "prefill_rate": "10000", "prompt_tokens": "3000", **changed,
        }  # fmt: skip
        words = [word for name, value in flags.items() if value for word in (f"--{name.replace('_', '-')}", value)]
        return command("size", *words, exits=True)

    return run


def test_what_runs_is_sized_by_what_prometheus_says(size, prometheus):
    status, out, _ = size()
    found = json.loads(out)
    assert status == 0
    assert found["observed"] == {"replicas": 4, "requestsPerSecond": 20, "promptTokens": 4300}
    now = next(each for each in found["prospects"] if each["replicas"] == 4)
    assert now["hitRate"] == pytest.approx(83 / 86, abs=1e-3)
    assert any('namespace="chat"' in query and "support-9f2c61d0-" in query for query in prometheus.queries)
    assert any('group="chat/support",revision="9f2c61d0"' in query for query in prometheus.queries)


def test_another_engine_is_asked_for_in_its_own_words(size, prometheus):
    size(engine="SGLang")
    assert any("sglang:prompt_tokens_total" in query for query in prometheus.queries)
    assert not any("vllm:" in query for query in prometheus.queries)


def test_it_reads_as_a_table(size):
    assert "Observed:     4.0 replicas, 20.0 requests/s of 4,300 tokens" in size(output="table")[1]


def test_a_server_that_fails_is_named_without_its_words(size, prometheus):
    prometheus.status = 503
    status, _, errors = size()
    assert status == 3
    assert f"--from-prometheus http://127.0.0.1:{prometheus.server_port}: status 503" in errors


def test_a_group_that_nobody_scrapes_is_said(size, prometheus):
    prometheus.silent = True
    status, _, errors = size()
    assert status == 3
    assert "engine" in errors


REFUSALS = {
    "a flag is missing": ({"revision": None}, "--from-prometheus also needs --revision"),
    "no address": ({"from_prometheus": "prometheus:9090"}, "argument --from-prometheus: not the address of a server"),
    "no group": ({"group": "support"}, "argument --group: 'support' is not a group: write NAMESPACE/NAME"),
    "a query in a group": ({"group": 'chat/a"} or vector(1) or x{a="'}, "is not a group"),
    "an unknown engine": ({"engine": "vllm"}, "argument --engine: 'vllm' is not known, did you mean vLLM?"),
    "no revision": ({"revision": "latest"}, "argument --revision: 'latest' is not a short fingerprint"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_wrong_flag_is_named_with_its_value_and_a_way_out(size, prometheus, case):
    changed, message = REFUSALS[case]
    status, _, errors = size(**changed)
    assert status == 2
    assert message in errors
    assert not prometheus.queries
