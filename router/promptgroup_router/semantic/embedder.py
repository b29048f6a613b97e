"""Requests embeddings from endpoints: each request has a deadline, and its answer a limit in bytes."""

import asyncio
import contextlib
import enum
import ssl
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from promptgroup_router.base.errors import HttpError
from promptgroup_router.feed.outside_server import connect
from promptgroup_router.feed.slot_address import Network
from promptgroup_router.http11.http1 import encode, lines_of
from promptgroup_router.http11.whole_answer import AnswerError, NothingSentError, WholeAnswer
from promptgroup_router.semantic.embedding import MOST_ANSWER_BYTES, EmbeddingError, read_embedding, request_body

EMBEDDING_SECONDS = 5.0
"""Time limit for an embedding, DNS lookup and connection included. A client's request waits for less, by its group's
budget; an embedding that arrives later still serves to index the question."""
AT_ONCE = 32
"""Most concurrent requests to an endpoint; further questions get no embedding."""
FAILURES = 5
"""Consecutive failed requests after which an endpoint is not used for a while."""
REST_SECONDS = 5.0
"""Time for which it is not used."""
FORGET_SECONDS = 60.0
"""Time after the last request after which a server's state is dropped: tables may name ever new servers."""
IDLE_SECONDS = 4.0
"""Time limit for a pooled connection, below the keep-alive of 5 s that many servers have."""

_READ_BYTES = 65536


class NoEmbedding(enum.StrEnum):
    """The reason for which there is no embedding."""

    FAILED = "failed"
    """The endpoint cannot be reached, or answered with an error, or without a valid embedding."""
    BUSY = "busy"
    """Too many requests wait for the endpoint, or it has failed and is not used for a while."""


class EmbeddingSource(NamedTuple):
    """Endpoint, model and credential of embeddings."""

    url: str
    model: str
    credential: bytes


Receive = Callable[["array[float] | NoEmbedding"], None]


class _Origin(NamedTuple):
    """A server, by the parts of a URL."""

    scheme: str
    host: str
    port: int


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float
    """Time since which it is idle, in monotonic seconds."""


class _Server:
    """State of one server."""

    def __init__(self) -> None:
        self.idle: list[_Connection] = []
        self.pending = 0
        """Requests that it has not answered."""
        self.failures = 0
        """Consecutive failed requests."""
        self.rests_until = 0.0
        self.last_request_at = 0.0
        """Time of the last request, in monotonic seconds."""


class Embedder:
    """The endpoints, and connections to them."""

    def __init__(
        self, clock: Callable[[], float], context: Callable[[], ssl.SSLContext], networks: Sequence[Network] | None
    ) -> None:
        """Begin without a connection.

        Args:
            clock: monotonic seconds.
            context: returns the TLS context by which servers are verified.
            networks: networks whose addresses are accepted even if they are loopback, link-local or refused otherwise;
                None where the author of the table may name any address.
        """
        self._clock = clock
        self._make_context = context
        self._context: ssl.SSLContext | None = None
        self._networks = networks
        self._servers: dict[_Origin, _Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, endpoint: EmbeddingSource, text: str, result: Receive) -> Callable[[], None]:
        """Request the embedding of a text.

        Args:
            endpoint: the endpoint.
            text: the text.
            result: called once, unless the request is cancelled before.

        Returns:
            A function that cancels the request.
        """
        task = asyncio.get_running_loop().create_task(self._ask(endpoint, text, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return lambda: None if task.done() else _cancel(task)

    async def stop(self) -> None:
        """Cancel all requests, and close all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers.values():
            for connection in server.idle:
                connection.writer.transport.abort()
        self._servers.clear()

    def tick(self, now: float) -> None:
        """Close connections that have been idle for too long."""
        for server in self._servers.values():
            for connection in [item for item in server.idle if now - item.since >= IDLE_SECONDS]:
                server.idle.remove(connection)
                connection.writer.transport.abort()
        self._servers = {
            origin: server
            for origin, server in self._servers.items()
            if server.pending or now - server.last_request_at < FORGET_SECONDS
        }

    async def _ask(self, endpoint: EmbeddingSource, text: str, value: Receive) -> None:
        try:
            origin, request = _request(endpoint, text)
        except ValueError:  # the URL is none
            value(NoEmbedding.FAILED)
            return
        server = self._servers.setdefault(origin, _Server())
        if server.pending >= AT_ONCE or server.rests_until > self._clock():
            value(NoEmbedding.BUSY)
            return
        server.pending += 1
        server.last_request_at = self._clock()
        result: array[float] | NoEmbedding
        try:
            async with asyncio.timeout(EMBEDDING_SECONDS):
                result = read_embedding(await self._post(origin, server, request))
        except (TimeoutError, OSError, ValueError, HttpError, EmbeddingError, AnswerError):
            result = NoEmbedding.FAILED
        finally:
            server.pending -= 1
        self._account(server, failed=isinstance(result, NoEmbedding))
        value(result)

    def _account(self, server: _Server, *, failed: bool) -> None:
        server.failures = server.failures + 1 if failed else 0
        if server.failures >= FAILURES:
            server.failures = 0
            server.rests_until = self._clock() + REST_SECONDS

    async def _post(self, origin: _Origin, server: _Server, request: bytes) -> bytes:
        while server.idle:
            connection = server.idle.pop()
            with contextlib.suppress(NothingSentError, ConnectionError):  # it was closed meanwhile
                return await self._exchange(server, connection.reader, connection.writer, request)
        return await self._exchange(server, *await self._connect(origin), request)

    async def _exchange(
        self, server: _Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> bytes:
        answer = WholeAnswer(MOST_ANSWER_BYTES)
        reusable = False
        try:
            writer.write(request)
            while not answer.feed(await reader.read(_READ_BYTES)):
                pass
            reusable = answer.reusable
        finally:
            if reusable:
                server.idle.append(_Connection(reader, writer, self._clock()))
            else:
                writer.transport.abort()
        return answer.content

    async def _connect(self, origin: _Origin) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = None
        if origin.scheme == "https":
            context = self._context = self._context or self._make_context()
        return await connect(origin.host, origin.port, context, self._networks)


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()


def _request(endpoint: EmbeddingSource, text: str) -> tuple[_Origin, bytes]:
    """Return the server of a request for an embedding, and the bytes of the request.

    Raises:
        ValueError: the endpoint's URL is invalid.
    """
    parts = urlsplit(endpoint.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    body = request_body(text, endpoint.model)
    fields = [
        (b"host", parts.netloc.encode("ascii")),
        (b"accept", b"application/json"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"user-agent", b"promptgroup-router"),
    ]
    if endpoint.credential:
        fields.append((b"authorization", b"Bearer " + endpoint.credential))
    line = b"POST %b HTTP/1.1" % (parts.path or "/").encode("ascii")
    return _Origin(parts.scheme, parts.hostname or "", port), encode(line, lines_of(fields)) + body
