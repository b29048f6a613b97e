"""A server that answers HTTP as no honest one does: slowly, without end, or with more than was asked for."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket, threading.Event], None]
"""Writes an answer to a connection until the test is over, or the client is gone."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@contextlib.contextmanager
def hostile_server(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve one kind of answer to every connection; yields the address."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection if tls is None else tls.wrap_socket(connection, True) as wrapped:
            wrapped.recv(1 << 20)
            answer(wrapped, over)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        listener.close()


def drips_head(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD)
    while not over.wait(0.01):
        connection.sendall(b"a: b\r\n")


def drips_body(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
    while not over.wait(0.01):
        connection.sendall(b"\n")


def silent(connection: socket.socket, over: threading.Event) -> None:
    over.wait()


def endless_body(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"\r\n")
    while not over.is_set():
        connection.sendall(b"a" * 65_536)


def endless_chunks(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while not over.is_set():
        connection.sendall(b"1\r\na\r\n" * 1000)


def endless_trailers(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
    while not over.is_set():
        connection.sendall(b"a: b\r\n" * 1000)


def endless_interim_answers(connection: socket.socket, over: threading.Event) -> None:
    while not over.is_set():
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


HOSTILE: dict[str, Answer] = {
    "a head that drips": drips_head,
    "a body that drips": drips_body,
    "nothing": silent,
    "a body without end": endless_body,
    "chunks without end": endless_chunks,
    "trailers without end": endless_trailers,
    "interim answers without end": endless_interim_answers,
}
