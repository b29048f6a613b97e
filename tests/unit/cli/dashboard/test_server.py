import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from promptgroup_cli.base.errors import InputError, ReachError
from promptgroup_cli.dashboard import server
from promptgroup_cli.dashboard.server import MOST_BODY, MOST_CONNECTIONS, serving


class Seen:
    """What the page is made of, and what was asked of it."""

    def __init__(self):
        self.asked = []
        self.problem = None

    def view(self, chosen):
        self.asked.append(chosen)
        if self.problem is not None:
            raise self.problem
        return b'{"number": 1}'

    def explain(self, body, headers):
        self.asked.append((body, dict(headers)))
        return b'{"by": "router r"}'


@pytest.fixture
def seen():
    return Seen()


@pytest.fixture
def url(seen):
    with serving(seen) as url:
        yield urlsplit(url)


def ask(url, path="", method="GET", body=None, *, whole=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=10)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, whole or url.path + path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def post(url, body, **headers):
    given = {"Origin": f"http://127.0.0.1:{url.port}", "Content_Type": "application/json"} | headers
    return ask(url, "explain", "POST", json.dumps(body) if not isinstance(body, bytes) else body, **given)


QUESTION = {"body": "{}", "headers": {"x-session-id": "7"}}


def test_the_page_and_what_it_shows(url, seen):
    answer, body = ask(url)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]
    assert body.startswith(b"<!doctype html>")
    answer, body = ask(url, "view?group=chat%2Fsupport")
    assert (answer.status, json.loads(body), seen.asked) == (200, {"number": 1}, ["chat/support"])
    assert post(url, QUESTION)[1] == b'{"by": "router r"}'
    assert seen.asked[1:] == [("{}", {"x-session-id": "7"})]


def test_it_listens_on_loopback_alone_and_each_address_is_new(seen):
    with serving(seen) as one, serving(seen) as other:
        assert urlsplit(one).hostname == "127.0.0.1"
        assert len(urlsplit(one).path) > 30
        assert urlsplit(one).path != urlsplit(other).path
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", urlsplit(one).port))


@pytest.mark.parametrize(
    "path", ["/", "/view", "/explain", "/x/view", "//view", "/%2e%2e/view", "/" + "a" * 32 + "/view"]
)
def test_nobody_without_the_token_sees_anything(url, seen, path):
    answer, _ = ask(url, whole=path)
    assert (answer.status, seen.asked) == (404, [])


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "", "127.0.0.1", "127.0.0.1.evil.example:{port}"]
)
def test_a_name_that_somebody_points_here_leads_nowhere(url, seen, host):
    answer, _ = ask(url, "view", Host=host.format(port=url.port))
    assert (answer.status, seen.asked) == (421, [])
    assert ask(url, "view", Host=f"localhost:{url.port}")[0].status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "multipart/form-data"},
    ],
)
def test_another_page_cannot_ask_a_router(url, seen, headers):
    assert (post(url, QUESTION, **headers)[0].status, seen.asked) == (403, [])


def test_what_is_asked_wrongly_is_refused(url, seen):
    assert ask(url, "nothing")[0].status == 404
    assert ask(url, "view", "POST", "{}")[0].status == 404
    assert ask(url, "view", "PUT", "{}")[0].status == 501
    for body in (b"{", b"[]", b"{}", b'{"body": "x"}', b'{"body": "x", "headers": 3}'):
        assert post(url, body)[0].status == 400
    for length in ("-1", "1e3", "9" * 30, str(MOST_BODY + 1), "²"):
        assert post(url, b"{}", Content_Length=length.encode())[0].status == 413
    assert seen.asked == []


def test_a_failure_is_said_in_one_line(url, seen):
    for problem, status in ((ReachError("the API server does not answer"), 502), (InputError("no"), 400)):
        seen.problem = problem
        answer, body = ask(url, "view")
        assert (answer.status, json.loads(body)) == (status, {"error": str(problem)})


def test_every_answer_forbids_to_keep_frame_or_guess(url):
    for answer, _ in (ask(url), ask(url, "view"), ask(url, "nothing"), ask(url, whole="/")):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert "Python" not in (answer.headers["Server"] or "")


@contextmanager
def connected(url):
    with socket.create_connection(("127.0.0.1", url.port), timeout=10) as connection:
        yield connection


def test_a_request_that_does_not_end_is_ended(monkeypatch, seen):
    monkeypatch.setattr(server, "SECONDS", 0.2)
    with serving(seen) as address, connected(urlsplit(address)) as connection:
        began = time.monotonic()
        try:
            while time.monotonic() - began < 10:  # a byte now and then
                connection.sendall(b"G")
                connection.settimeout(0.05)
                try:
                    if not connection.recv(1):
                        break
                except TimeoutError:
                    continue
        except OSError:
            pass
        assert time.monotonic() - began < 10


def test_connections_have_a_limit_and_come_free(url, seen):
    held = [socket.create_connection(("127.0.0.1", url.port), timeout=10) for _ in range(MOST_CONNECTIONS)]
    with connected(url) as extra:
        assert extra.recv(1) == b""
    for each in held:
        each.close()
    freed = threading.Event()
    for _ in range(200):
        try:
            if ask(url, "view")[0].status == 200:
                freed.set()
                break
        except (OSError, http.client.HTTPException):
            continue
    assert freed.is_set()


def test_a_port_that_is_taken_is_one_line(seen):
    with serving(seen) as address:
        port = urlsplit(address).port
        with pytest.raises(InputError, match=f"--port {port}: "), serving(seen, port):
            pass
