import argparse
import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from promptgroup_cli.commands.usage import SERIES, CallerUsage, add, document, query, table
from promptgroup_router.base.metrics import Metrics


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(["--prometheus", "http://p:9090", *words])


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("24h", 86400), ("30d", 2592000)])
def test_a_period(text, seconds):
    assert parsed("--period", text).period == seconds


def test_the_period_is_the_last_day_unless_another_is_given():
    assert (parsed().period, parsed().end) == (86400, None)
    assert parsed("--end", "2026-11-01T00:00:00Z").end == datetime(2026, 11, 1, tzinfo=UTC)
    assert parsed("--end", "2026-11-01").end == datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--period", "0h", "is no period"),
        ("--period", "400d", "at most 366d"),
        ("--period", "1h30m", "write 90m"),
        ("--end", "today", "is no time"),
        ("--group", 'a/b"} or x{', "is not a group"),
        ("--prometheus", "p:9090", "not the address of a server"),
    ],
)
def test_what_cannot_be_used_says_the_way_out(flag, value, said, capsys):
    with pytest.raises(SystemExit):
        parsed(flag, value)
    assert said in capsys.readouterr().err


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


END = datetime(2026, 11, 2, tzinfo=UTC)


def test_one_caller_needs_no_total_and_no_prompt_has_no_rate():
    text = table([CallerUsage("a/b", "c", 1, 0, 0, 0)], END, 60)
    assert "total" not in text
    assert text.splitlines()[-1].split() == ["a/b", "c", "1", "0", "0", "-", "0", "0", "0"]


def test_the_document_says_the_period():
    assert json.loads(document([], END, 60)) == {
        "start": "2026-11-01T23:59:00Z",
        "end": "2026-11-02T00:00:00Z",
        "usage": [],
    }


def test_the_query_names_series_that_routers_have():
    names = {each.name for each in Metrics().all}
    assert set(SERIES.values()) <= names
    assert all(series in query(60, "") for series in SERIES.values())
