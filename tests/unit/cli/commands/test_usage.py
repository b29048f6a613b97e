import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

FOUND = [
    ({"group": "chat/support", "caller": "web", "what": "prompt"}, "1000.4"),
    ({"group": "chat/support", "caller": "web", "what": "cached"}, "900"),
    ({"group": "chat/support", "caller": "web", "what": "answer"}, "50"),
    ({"group": "chat/support", "caller": "web", "what": "requests"}, "4"),
    ({"group": "chat/support", "caller": "web", "what": "kept"}, "12"),
    ({"group": "chat/support", "caller": "web", "what": "unmetered"}, "1"),
    ({"group": "chat/support", "caller": "batch", "what": "prompt"}, "9000"),
    ({"group": "chat/support", "caller": "batch", "what": "requests"}, "NaN"),
]


@pytest.fixture
def prometheus():
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(parse_qs(urlsplit(self.path).query))
            result = [{"metric": labels, "value": [0, value]} for labels, value in self.server.found]
            body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.asked, server.found = [], FOUND
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url(server):
    return f"http://127.0.0.1:{server.server_port}"


def test_callers_by_what_they_used(command, prometheus):
    status, out, _ = command("usage", "--prometheus", url(prometheus), "--end", "2026-11-02T00:00:00Z")
    assert status == 0
    assert out == (
        "2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z\n"
        "\n"
        "GROUP          CALLER   REQUESTS   PROMPT   CACHED   HIT RATE   ANSWER   KEPT   UNMETERED\n"
        "chat/support   batch           0    9,000        0      0.0 %        0      0           0\n"
        "chat/support   web             4    1,000      900     90.0 %       50     12           1\n"
        "total                          4   10,000      900      9.0 %       50     12           1\n"
    )
    (asked,) = prometheus.asked
    assert asked["time"] == ["1793577600.000"]
    assert asked["query"][0].count("[86400s]") == 6


def test_one_group_as_json(command, prometheus):
    words = ("--group", "chat/support", "--period", "1h", "--end", "2026-11-02T00:00:00Z", "-o", "json")
    status, out, _ = command("usage", "--prometheus", url(prometheus), *words)
    assert (status, json.loads(out)["start"]) == (0, "2026-11-01T23:00:00Z")
    web = {"group": "chat/support", "caller": "web", "requests": 4, "prompt": 1000, "cached": 900, "answer": 50}
    web |= {"kept": 12, "unmetered": 1}
    assert json.loads(out)["usage"][1] == web
    assert 'caller_requests_total{group="chat/support"}[3600s]' in prometheus.asked[0]["query"][0]


def test_nobody_has_used_anything(command, prometheus):
    prometheus.found = []
    status, out, _ = command("usage", "--prometheus", url(prometheus))
    assert status == 0
    assert "no caller that is known has used anything" in out


def test_a_prometheus_that_does_not_answer_is_said(command):
    status, _, errors = command("usage", "--prometheus", "http://127.0.0.1:9")
    assert status == 3
    assert "--prometheus http://127.0.0.1:9: the connection was refused" in errors
