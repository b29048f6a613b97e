"""A Kubernetes API server over HTTPS that gives the answers that a test wrote down, and fails as told."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.fakekube import certificate


@dataclass
class Answer:
    """What one request gets."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """The connection is closed without an answer."""
    hang: bool = False
    """Nothing is answered until the test is over."""
    watch: bool = False
    """The body is the beginning of a watch, which stays open until the test is over, or `watches_end` is set."""


class ScriptedKube:
    """Answers in order, the last one for ever; or what `serve` answers to a method and a path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers = [Answer()]
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.serve: Callable[[str, str], Answer] = lambda method, path: self.next()
        self.asking = threading.local()
        """Headers and body of the request that this thread answers."""
        self.over = threading.Event()
        self.watches_end = False
        self.port = 0

    def token(self, text: str) -> None:
        (self.folder / "token").write_text(text)

    def tokens(self) -> list[str]:
        return [headers["authorization"] for _, _, headers, _ in self.requests]

    def next(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def refusal(status: int, message: str = "refused", **headers: str) -> Answer:
    body = {"kind": "Status", "code": status, "message": message}
    return Answer(status, json.dumps(body).encode(), {key.replace("_", "-"): value for key, value in headers.items()})


@contextlib.contextmanager
def scripted_kube(folder: Path) -> Iterator[ScriptedKube]:
    kube = ScriptedKube(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {key.lower(): value for key, value in self.headers.items()}
            kube.requests.append((self.command, self.path, headers, body))
            kube.asking.headers, kube.asking.body = headers, body
            answer = kube.serve(self.command, self.path)
            if answer.hang:
                kube.over.wait(30)
            if answer.hang or answer.cut:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            if answer.watch:
                self.send_response(answer.status)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                if answer.body:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(answer.body), answer.body))
                if not kube.watches_end:
                    kube.over.wait(60)
                with contextlib.suppress(OSError):
                    self.wfile.write(b"0\r\n\r\n")
                return
            self.send_response(answer.status)
            for key, value in answer.headers.items():
                self.send_header(key, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - http.server's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    signed, key = certificate()
    (folder / "ca.crt").write_bytes(signed)
    (folder / "tls.pem").write_bytes(key + signed)
    kube.token("token-1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    kube.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield kube
    finally:
        kube.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
