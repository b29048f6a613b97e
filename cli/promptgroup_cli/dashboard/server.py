"""Serves the page to local browsers: on loopback alone, and only to clients that have the printed address.

Every path begins with a random token, which other users of the machine and other pages of the browser do not have. The
header Host must name this server, so that another name that resolves to 127.0.0.1 is refused (DNS rebinding). Requests
that are passed on to a router must come from the page itself. Responses are never cached (`no-store`).
"""

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import orjson

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import CommandError, InputError, ReachError
from promptgroup_cli.dashboard import page

HOST = "127.0.0.1"
SECONDS = 30.0
"""Longest time for a whole request and its answer: a router is given 15 s to explain."""
MOST_BODY = 4 << 20
"""Most bytes of a request that is pasted, as JSON."""
MOST_CONNECTIONS = 32
MOST_HEADERS = 50
JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
ALWAYS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of each answer."""


class Observed(Protocol):
    """The source of the page's content."""

    def view(self, chosen: str) -> bytes:
        """Return the page's content."""

    def explain(self, body: str, headers: Mapping[str, str]) -> bytes:
        """Return where a request would be routed."""


@contextmanager
def serving(observed: Observed, port: int = 0) -> Iterator[str]:
    """Serve the page for the duration of a `with`, which gets its address.

    Raises:
        InputError: the port is taken.
    """
    token = secrets.token_urlsafe(24)
    try:
        server = _Server(port, observed, token)
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror or error}; choose another one, or none") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/{token}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a browser's open connection delays no shutdown
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, port: int, observed: Observed, token: str) -> None:
        self.observed = observed
        self.token = token
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((HOST, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, unless there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and end it when its time is over."""
        ending = threading.Timer(SECONDS, _end, (request,))
        ending.daemon = True
        ending.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            ending.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about a broken connection: browsers close connections at any time."""


def _end(connection: socket) -> None:
    with suppress(OSError):  # it may have ended
        connection.shutdown(SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One request a connection."""

    server: _Server
    server_version, sys_version = "promptgroup", ""
    timeout = SECONDS

    def do_GET(self) -> None:
        """Answer with the page, or with its content as JSON."""
        path = self._allowed()
        if path == "":
            loaded = page.load()
            self._answer(200, HTML, loaded.body, {"Content-Security-Policy": loaded.policy})
        elif path == "view":
            chosen = parse_qs(urlsplit(self.path).query, max_num_fields=4).get("group", [""])[0]
            self._tell(lambda: self.server.observed.view(chosen))
        elif path is not None:
            self._answer(404, TEXT, b"there is nothing at this path\n")

    def do_POST(self) -> None:
        """Answer where a request would be routed."""
        path = self._allowed()
        if path is None:
            return
        if path != "explain":
            self._answer(404, TEXT, b"there is nothing at this path\n")
            return
        if self.headers.get("Origin") != self._origin() or self.headers.get_content_type() != JSON:
            self._answer(403, TEXT, b"only the page itself may ask this\n")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 9 and int(length) <= MOST_BODY):
            self._answer(413, TEXT, f"expected at most {MOST_BODY >> 20} MiB of known length\n".encode())
            return
        try:
            requested = bounded_json.parse(self.rfile.read(int(length)))
            body, headers = (
                str(requested["body"]),
                {str(name): str(value) for name, value in requested["headers"].items()},
            )
        except (JsonError, KeyError, TypeError, AttributeError):
            self._answer(400, TEXT, b"expected body (a text) and headers (an object)\n")
            return
        self._tell(lambda: self.server.observed.explain(body, headers))

    def _allowed(self) -> str | None:
        """Return the path behind the token; None if the request was refused."""
        own = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        if self.headers.get("Host", "").lower() not in own or len(self.headers) > MOST_HEADERS:
            self._answer(421, TEXT, b"this server has another name\n")
            return None
        _, token, *rest = [*urlsplit(self.path).path.split("/"), ""]
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(404, TEXT, b"there is nothing at this path: open the address that the command printed\n")
            return None
        return "/".join(rest).rstrip("/")

    def _origin(self) -> str:
        return f"http://{self.headers['Host'].lower()}"

    def _tell(self, answer: Any) -> None:
        try:
            self._answer(200, JSON, answer())
        except ReachError as error:
            self._answer(502, JSON, orjson.dumps({"error": str(error)}))
        except CommandError as error:
            self._answer(400, JSON, orjson.dumps({"error": str(error)}))

    def _answer(self, status: int, kind: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**ALWAYS, **(headers or {}), "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Log nothing: paths have the token."""
