"""Against a server that says what a test tells it; a real Prometheus is asked by the integration tests."""

import json
import threading
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.dialects.vllm import METRICS as VLLM
from promptgroup_operator.load import prometheus, prometheus_api
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.load_source import load_subject
from promptgroup_operator.load.prometheus import FRESH, Prometheus
from promptgroup_operator.load.prometheus_api import PrometheusError
from promptgroup_operator.world.snapshot import Key
from support.builders import NOW, pod, revision

SUBJECT = load_subject(Key("chat", "support"), revision(pods=[pod("p0")]), VLLM)


class Server:
    def __init__(self):
        self.asked, self.status, self.body, self.headers, self.silence = [], 200, None, [], threading.Event()
        self.silence.set()
        self.values = {"queries": 200.0, "hits": 100.0, "newest": NOW.timestamp()}

    def answer(self, query):
        if self.body is not None:
            return self.body
        result = [
            {"metric": {"what": what}, "value": [0, str(value)]}
            for what, value in self.values.items()
            if f'"{what}"' in query
        ]
        if '"scrapes"' in query and self.values:
            result.append({"metric": {"what": "scrapes", "pod": "p0"}, "value": [0, "8"]})
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


@contextmanager
def serving():
    told = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            query = parse_qs(urlsplit(self.path).query)
            told.asked.append(query["query"][0])
            told.headers.append(self.headers)
            told.silence.wait(10)
            body = told.answer(query["query"][0])
            self.send_response(told.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield told
    finally:
        told.silence.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def server():
    with serving() as told:
        yield told


@pytest.fixture
def source(server):
    found = Prometheus(Settings(prometheus_url=server.url, prometheus_timeout=2.0), EngineHistory())
    yield found
    found.close()


def test_a_load(server, source):
    load = source.load(SUBJECT, NOW)
    assert (load.stale, load.seconds, load.engines.queries, load.engines.hit_rate) == ("", 120, 200, 0.5)
    assert load.clients is None
    assert len(server.asked) == 5


def test_the_environment_does_not_say_who_is_asked(server, source, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert source.load(SUBJECT, NOW).stale == ""


def test_a_load_is_asked_for_once_a_period(server, source):
    for second in range(15):
        source.load(SUBJECT, NOW + timedelta(seconds=second))
    assert len(server.asked) == 5
    source.load(SUBJECT, NOW + timedelta(seconds=15))
    assert len(server.asked) == 10


NOTHING = {
    "no series": ({}, "has no engine of this group"),
    "old samples": ({"queries": 1, "newest": NOW.timestamp() - 600}, "has nothing newer than 11:50 UTC"),
}


@pytest.mark.parametrize("case", NOTHING)
def test_what_prometheus_does_not_know_of_now_is_stale(server, source, case):
    server.values, why = NOTHING[case]
    load = source.load(SUBJECT, NOW)
    assert load.engines is None
    assert load.stale == f"Prometheus at {server.url} {why}"


WRONG = {
    "an error": (503, b"secret text", "status 503"),
    "no right": (401, b"secret text", "status 401"),
    "no JSON": (200, b"<html>", "the answer is not in Prometheus's format"),
    "another form": (200, b'{"data": {"result": [{"metric": 3}]}}', "the answer is not in Prometheus's format"),
    "labels that are none": (
        200,
        b'{"data": {"result": [{"metric": "x", "value": [0, "1"]}]}}',
        "the answer is not in Prometheus's format",
    ),
    "buckets that are none": (
        200,
        (
            b'{"data": {"result": [{"metric": {"what": "queries"}, "value": [0, "1"]}, {"metric": {"what": "scrapes",'
            b'"pod": "p"}, "value": [0, "1"]}, {"metric": {"what": "first", "le": "x"}, "value": [0, "1"]},'
            b'{"metric": {"what": "newest"}, "value": [0, "9999999999"]}]}}'
        ),
        "the answer is not in Prometheus's format",
    ),
    "not even an object": (200, b"[]", "the answer is not in Prometheus's format"),
    "somewhere else": (302, b"", "status 302"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_is_said_since_when_and_without_the_servers_words(server, source, case):
    server.status, server.body, why = WRONG[case]
    assert source.load(SUBJECT, NOW).stale == f"Prometheus at {server.url} has not answered since 12:00 UTC: {why}"
    later = source.load(SUBJECT, NOW + timedelta(minutes=2))
    assert "since 12:00 UTC" in later.stale
    source._queries[next(iter(source._queries))][1].result(5)
    later = source.load(SUBJECT, NOW + timedelta(minutes=2))
    assert "since 12:00 UTC" in later.stale, "it has failed again, and the first time stands"


def test_trouble_is_logged_when_it_begins_and_then_not_again(server, source, caplog):
    server.status = 503
    for minutes in range(3):
        source.load(SUBJECT, NOW + timedelta(minutes=minutes))
        source._queries[next(iter(source._queries))][1].result(5)
        assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_an_answer_stands_for_a_while_and_what_comes_back_is_believed_at_once(server, source):
    assert source.load(SUBJECT, NOW).engines is not None
    server.status = 503
    assert source.load(SUBJECT, NOW + FRESH).engines is not None
    assert source.load(SUBJECT, NOW + FRESH + timedelta(seconds=1)).engines is None
    server.status = 200
    server.values["newest"] += 60
    source.load(SUBJECT, NOW + timedelta(minutes=1))
    source._queries[next(iter(source._queries))][1].result(5)
    assert source.load(SUBJECT, NOW + timedelta(minutes=1)).stale == ""


def test_a_pass_does_not_wait_for_a_server_that_is_silent(server, source, monkeypatch):
    monkeypatch.setattr(prometheus, "PATIENCE", 0.01)
    server.silence.clear()
    load = source.load(SUBJECT, NOW)
    assert load.stale == f"Prometheus at {server.url} has not answered yet"
    assert load.early
    source.load(SUBJECT, NOW + timedelta(minutes=1))
    assert len(server.asked) <= 1, "one question at a time"


def test_a_server_that_is_not_there_is_no_crash():
    source = Prometheus(Settings(prometheus_url="http://me:secret@127.0.0.1:1/p"), EngineHistory())
    load = source.load(SUBJECT, NOW)
    refused = "the connection was refused, or nothing listens there"
    assert load.stale == f"Prometheus at http://127.0.0.1:1/p has not answered since 12:00 UTC: {refused}"
    source.close()


def test_a_fault_of_our_own_ends_no_pass(server, source, monkeypatch):
    monkeypatch.setattr(prometheus.promql, "newest", lambda found: found.nothing)
    assert source.load(SUBJECT, NOW).stale.endswith("has not answered since 12:00 UTC: its answer is not understood")


def test_a_token_is_read_anew_for_each_request(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("one\n")
    source = Prometheus(Settings(prometheus_url=server.url, prometheus_token_file=token), EngineHistory())
    source.load(SUBJECT, NOW)
    token.write_text("two\n")
    source.load(SUBJECT, NOW + timedelta(minutes=1))
    sent = [headers["Authorization"] for headers in server.headers]
    assert sent == ["Bearer one"] * 5 + ["Bearer two"] * 5
    token.unlink()
    source.load(SUBJECT, NOW + timedelta(minutes=2))
    assert (
        "its token or CA file cannot be read (No such file or directory)"
        in source.load(SUBJECT, NOW + timedelta(minutes=3)).stale
    )
    source.close()


def test_an_answer_that_is_too_long_is_none(server, source, monkeypatch):
    monkeypatch.setattr(prometheus_api, "MAX_ANSWER", 100)
    with pytest.raises(PrometheusError):
        source.ask(SUBJECT, NOW)
