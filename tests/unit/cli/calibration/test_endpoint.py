"""Embeddings by an endpoint."""

import http.server
import json
import threading

import pytest

from promptgroup_cli.base.errors import InputError, ReachError
from promptgroup_cli.calibration.endpoint import AT_ONCE, from_endpoint


@pytest.fixture
def endpoint():
    """An endpoint; `answer` makes its answer of a request's body."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append((self.headers, body))
            status, content = server.answer(body)
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen = seen
    server.url = f"http://127.0.0.1:{server.server_address[1]}/v1/embeddings"
    server.answer = lambda body: (200, vectors(body["input"]))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def vectors(texts):
    data = [{"index": n, "embedding": [float(text), 1.0]} for n, text in enumerate(texts)]
    return json.dumps({"data": data[::-1]}).encode()


def test_each_text_gets_its_own_embedding_whatever_their_order(endpoint, monkeypatch):
    monkeypatch.setenv("EMBEDDER_KEY", "secret")
    found = from_endpoint(endpoint.url, "m", "EMBEDDER_KEY")([str(n) for n in range(AT_ONCE + 3)])
    assert [round(each[0] / each[1]) for each in found] == list(range(AT_ONCE + 3))
    headers, body = endpoint.seen[0]
    assert headers["Authorization"] == "Bearer secret"
    assert (body["model"], len(body["input"]), len(endpoint.seen)) == ("m", AT_ONCE, 2)


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"{}"),
        (302, b""),
        (200, b"{"),
        (200, b"[]"),
        (200, b'{"data":[]}'),
        (200, b'{"data":7}'),
        (200, b'{"data":[{"index":0,"embedding":[0]}]}'),
        (200, b'{"data":[{"index":[],"embedding":[1]}]}'),
        (200, b'{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}'),
        (200, b" " * ((16 << 20) + 1)),
    ],
)
def test_whatever_else_an_endpoint_answers_is_an_error_that_names_it(endpoint, answer):
    endpoint.answer = lambda _body: answer
    with pytest.raises(ReachError, match=endpoint.url):
        from_endpoint(endpoint.url, "m", None)(["1", "2"])


def test_an_endpoint_that_is_not_there_is_named():
    with pytest.raises(ReachError, match="does not answer"):
        from_endpoint("http://127.0.0.1:1/v1/embeddings", "m", None)(["1"])
    with pytest.raises(InputError, match="--key-env"):
        from_endpoint("http://127.0.0.1:1/", "m", "NOT_SET_ANYWHERE")
