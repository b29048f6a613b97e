import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

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
