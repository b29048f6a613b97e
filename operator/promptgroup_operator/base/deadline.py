"""Limits for a whole HTTP exchange: one deadline over every read of its answer, and a budget of bytes.

A client's own timeout is for one read of a socket, so a server that sends a byte now and then is read for ever; and
what surrounds a body (interim answers, chunk sizes, trailers) has no limit in `http.client`. The sockets made here know
the limits of the thread that reads them.
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

HEAD = 1 << 16
"""Bytes that an answer's head may have beside the body."""
FRAMING = 8
"""Bytes on the wire for each byte of a body: one-byte chunks have six."""


@dataclass(slots=True)
class _Limits:
    until: float
    """Time at which the exchange must have ended, by the monotonic clock."""
    bytes_left: int

    def before_read(self) -> float:
        left = self.until - monotonic()
        if left <= 0:
            raise TimeoutError("the answer did not end in time")
        if self.bytes_left <= 0:
            raise OSError("the answer is too long")
        return left


_of_thread = threading.local()


@contextmanager
def within(seconds: float, size: int) -> Iterator[None]:
    """Bound the exchange that this thread makes inside, over connections of `keep`.

    A read past the deadline fails as a read timeout does; one past the budget as a broken connection does.

    Args:
        seconds: time for the whole exchange.
        size: most bytes of the answer's body; the budget on the wire follows from it.
    """
    _of_thread.limits = _Limits(monotonic() + seconds, HEAD + FRAMING * size)
    try:
        yield
    finally:
        _of_thread.limits = None


def _read(sock: socket.socket, plain: Any, *args: Any) -> int:
    limits: _Limits | None = getattr(_of_thread, "limits", None)
    if limits is None:
        count: int = plain(*args)
        return count
    timeout = sock.gettimeout()
    sock.settimeout(limits.before_read())
    count = plain(*args)
    sock.settimeout(timeout)  # what is read after the exchange, as the events of a watch are, has a limit of its own
    limits.bytes_left -= count
    return count


class _Socket(socket.socket):
    def recv_into(self, *args: Any) -> int:
        return _read(self, super().recv_into, *args)


class _TlsSocket(ssl.SSLSocket):
    def recv_into(self, *args: Any) -> int:
        return _read(self, super().recv_into, *args)


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        plain = super()._new_conn()
        timeout = plain.gettimeout()
        bounded = _Socket(fileno=plain.detach())
        bounded.settimeout(timeout)
        return bounded


class _TlsConnection(HTTPSConnection):
    def connect(self) -> None:
        # A context for each connection: urllib3 loads the certificates into it whenever it connects, and OpenSSL ends
        # the process (SIGSEGV) if a thread loads a certificate into a context while another shakes hands with it.
        # As routers verify: an authority that is given ends the chain, whoever signed it, and need not have all
        # extensions that RFC 5280 asks for, which Python 3.13 would.
        self.ssl_context = create_urllib3_context(
            cert_reqs=resolve_cert_reqs(self.cert_reqs), verify_flags=ssl.VERIFY_X509_PARTIAL_CHAIN
        )
        self.ssl_context.sslsocket_class = _TlsSocket
        super().connect()


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def keep(manager: urllib3.PoolManager) -> urllib3.PoolManager:
    """Make the connections of a pool manager keep the limits of `within`, with TLS and without, and return it."""
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager
