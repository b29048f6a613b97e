"""Reads from a Kubernetes API server over HTTPS with a service account: GET, and watch as a stream of events."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from urllib.parse import quote

import orjson

from promptgroup_contract import names
from promptgroup_router.base.core_settings import ApiServerAddress
from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Framing, encode, lines_of
from promptgroup_router.http11.reader import ResponseReader

CONNECT_SECONDS = 10.0
"""Time limit to connect to the API server, TLS included."""
ANSWER_SECONDS = 30.0
"""Time limit for a whole GET, and for the head of a watch."""
SILENCE_SECONDS = 90.0
"""Time limit between bytes of a watch: bookmarks arrive about once a minute."""
MAX_ANSWER = 16 * 2**20
"""Most bytes of one answer: ten times the limit of etcd for one object."""
MAX_EVENT = 4 * 2**20
"""Most bytes of one event of a watch, which has one object."""
MAX_LIST = 64 * 2**20
"""Most bytes of all pages of a list: PromptRoutes have some 5 KiB."""
MAX_PAGES = 4096
"""Most pages of a list, however short they are."""
PAGE = 500
"""Most objects in one page of a list, as in kubectl. Fewer are requested where they are large."""
MAX_PAGE = 2 * 2**20
"""Most bytes of a page of several objects: to parse one holds the event loop for 7 ms."""

_READ_BYTES = 65536


class KubeError(Exception):
    """A request to the API server that failed or was refused."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the answer, None if there was none."""


class _TooLongError(KubeError):
    """The answer is longer than any that is read."""


def object_path(group: str, namespace: str, plural: str, name: str) -> str:
    """Return the path of an object, such as a Secret that a PromptRoute names. Every such path is made here.

    Args:
        group: path of the API group and version.
        namespace: of the object.
        plural: kind of the object, as paths have it.
        name: of the object.

    Raises:
        KubeError: no object or namespace can have such a name, so that none is there (404).
    """
    for item in (namespace, name):
        if not names.is_object_name(item):
            raise KubeError(f"no object or namespace can be named {item[:80]!r}", 404)
    return f"{group}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(name, safe='')}"


class KubeApi:
    """A client of one API server. Requests are few, so that each has a connection of its own."""

    def __init__(self, server: ApiServerAddress) -> None:
        self._server = server

    async def get(self, path: str) -> object:
        """Return the JSON at a path.

        Raises:
            KubeError: the answer was late, too long, an error, or not JSON.
        """
        return _parse(await self._get(path))

    async def list(self, path: str) -> dict[str, object]:
        """Return a list of all objects at a path, which is read in pages so that no answer grows with their number.

        Raises:
            KubeError: as for `get`, or the answer is no list. A list that changed too much meanwhile has status 410.
        """
        limit, rest, size, items = PAGE, "", 0, list[object]()
        while True:
            try:
                query = f"?limit={limit}" + (f"&continue={quote(rest, safe='')}" if rest else "")
                text = await self._get(path + query, MAX_PAGE if limit > 1 else MAX_ANSWER)
            except _TooLongError:
                if limit == 1:
                    raise
                limit //= 2
                continue
            size += max(len(text), MAX_LIST // MAX_PAGES)
            if size > MAX_LIST:
                raise KubeError(f"the list is larger than {MAX_LIST} bytes, or than {MAX_PAGES} pages")
            page = _parse(text)
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise KubeError("the answer is not a list")
            items += page["items"]
            metadata = page.get("metadata")
            rest = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
            if not rest:
                return {**page, "items": items}

    async def _get(self, path: str, most: int = 0) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._ask(path) as answer:
                return await answer.whole(most)
        except TimeoutError:
            raise KubeError(f"no whole answer within {ANSWER_SECONDS:.0f} s") from None

    async def watch(self, path: str) -> AsyncGenerator[object, None]:
        """Yield the events of a watch until the API server ends it.

        Raises:
            KubeError: the watch was refused, broken or silent for too long.
        """
        async with self._ask(path) as answer:
            rest = b""
            parts = answer.parts()
            while True:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        part = await anext(parts, None)
                except TimeoutError:
                    raise KubeError(f"the watch was silent for {SILENCE_SECONDS:.0f} s") from None
                if part is None:
                    return
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > MAX_EVENT:
                    raise KubeError(f"an event is larger than {MAX_EVENT} bytes")
                for line in lines:
                    yield _parse(line)

    @contextlib.asynccontextmanager
    async def _ask(self, path: str) -> AsyncIterator["_Answer"]:
        """Send a GET and wait for the head of an answer with status 200."""
        server = self._server
        try:
            # both files are replaced while the process runs
            token = (server.service_account_dir / "token").read_bytes().strip()
            context = _context(server.service_account_dir / "ca.crt")
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
        except TimeoutError:
            raise KubeError(f"no connection to {server.host}:{server.port} within {CONNECT_SECONDS:.0f} s") from None
        except OSError as error:
            raise KubeError(f"no connection to {server.host}:{server.port}: {error}") from error
        try:
            host = f"[{server.host}]" if ":" in server.host else server.host
            headers = [
                (b"host", f"{host}:{server.port}".encode()),
                (b"authorization", b"Bearer " + token),
                (b"accept", b"application/json"),
                (b"user-agent", b"promptgroup-router"),
                (b"connection", b"close"),
            ]
            writer.write(encode(f"GET {path} HTTP/1.1".encode(), lines_of(headers)))
            answer = _Answer(reader)
            async with asyncio.timeout(ANSWER_SECONDS):
                await answer.check()
            yield answer
        except TimeoutError:
            raise KubeError(f"no answer within {ANSWER_SECONDS:.0f} s") from None
        except (OSError, HttpError, asyncio.IncompleteReadError) as error:
            raise KubeError(f"the answer broke: {error}") from error
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await writer.wait_closed()


class _Answer:
    """An answer that is being received."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._reader = ResponseReader()
        self._chunks = Chunked()
        self._first = b""

    async def check(self) -> None:
        """Read the head; raise KubeError for a status that is not 200."""
        while self._reader.head is None:
            self._first = await self._read()
        if self._reader.head.status == 200:
            return
        text = await self.whole()
        raise KubeError(_reason(text) or f"status {self._reader.head.status}", self._reader.head.status)

    async def whole(self, most: int = 0) -> bytes:
        """Return all of the content, which has so many bytes at most; 0 for as many as any answer."""
        most = most or MAX_ANSWER
        content = bytearray()
        async for part in self.parts():
            content += part
            if len(content) > most:
                raise _TooLongError(f"the answer is larger than {most} bytes")
        return bytes(content)

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the content as it is received, chunks decoded."""
        data, self._first = self._first, b""
        while True:
            if data:
                yield self._decoded(data)
            if self._reader.done:
                return
            data = await self._read()

    async def _read(self) -> bytes:
        data = await self._stream.read(_READ_BYTES)
        if not data:
            raise asyncio.IncompleteReadError(b"", None)
        return self._reader.feed(data)

    def _decoded(self, data: bytes) -> bytes:
        if self._reader.head is None or self._reader.head.framing is not Framing.CHUNKED:
            return data
        content = bytearray()
        self._chunks.feed(data, content)
        return bytes(content)


def _context(authorities: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authorities))
    # cluster authorities of older tools lack key identifiers, which Python 3.13 began to require
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _parse(data: bytes) -> object:
    try:
        parsed: object = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise KubeError(f"the answer is not JSON: {error}") from None
    return parsed


def _reason(text: bytes) -> str:
    """Return the message of a Status object, empty if there is none."""
    try:
        status = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    return str(status.get("message", "")) if isinstance(status, dict) else ""
