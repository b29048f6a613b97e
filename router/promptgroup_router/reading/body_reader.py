"""Delegates the parsing of large bodies to another process, one body after the other.

The process is started for the first large body. A process that hangs or ends is replaced for the next body.
"""

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

from promptgroup_router.apis.endpoints import Endpoint
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.logs import fields
from promptgroup_router.features.cache_diagnosis import without_question
from promptgroup_router.reading import digest
from promptgroup_router.reading.letters import Letter, LetterReader, head
from promptgroup_router.routing.engine_fields import without_engine_fields
from promptgroup_router.routing.route import Rewrite

log = logging.getLogger("promptgroup.router")

PIECE_BYTES = 65_536
"""Bytes that are handed to the kernel at a time."""

_NOTHING = memoryview(b"")

ANSWER_SECONDS = 10.0
"""Time for the process to start and to read a body; the largest take a second on a slow core."""


class BodyReader:
    """The process that parses bodies, and the lock for which its callers wait."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._channel: _Channel | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        return self._process.pid if self._process is not None else None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until earlier bodies have been read. Within its turn, a caller is never cancelled."""
        async with self._turn:
            yield

    async def read(
        self, endpoint: Endpoint, body: bytes | bytearray, declared: int, *, asks_by_header: bool = False
    ) -> ParsedRequest:
        """Return the data that routing needs from a body, as `LargeBodyReader.read` does; see `digest`."""
        about = {"path": endpoint.path.decode(), "declared": declared, "asks_by_header": asks_by_header}
        letter = await self._ask(about, body)
        return digest.from_digest(letter.document)

    async def decode(
        self, endpoint: Endpoint, coded: tuple[str, bytes | bytearray, int], declared: int, *, asks_by_header: bool
    ) -> tuple[ParsedRequest, int]:
        """Return the data of a compressed body, as `LargeBodyReader.decode` does."""
        coding, body, most = coded
        about = {"path": endpoint.path.decode(), "declared": declared, "asks_by_header": asks_by_header}
        letter = await self._ask(about | {"coding": coding, "most": most}, body)
        size = int(letter.document.pop("size"))
        return digest.from_digest(letter.document), size

    async def written(
        self, rewrite: Rewrite, request: ParsedRequest, body: bytes | bytearray | None
    ) -> bytes | bytearray:
        """Return the body for the engine, as `LargeBodyReader.written` does: the one received if nothing changes."""
        preamble, order = rewrite.preamble, rewrite.ordered and not request.tools_in_order
        unasked = without_question(request) is not request
        spliced = all(change.splices(request) for change in rewrite.changes)
        changed = preamble is not None or order or not spliced or unasked or bool(rewrite.model)
        if (
            body is not None
            and not changed
            and without_engine_fields(request, rewrite.allowed, rewrite.stripped) is request
        ):
            for change in rewrite.changes:
                body = change.finish(body, request)
            return body
        prompt = None
        if preamble is not None:
            value = preamble.prompt
            texts = [value.system, value.tools, value.messages]
            prompt = {"texts": texts, "model": preamble.model, "appends": preamble.appends}
        result = {
            "prompt": prompt,
            "allowed": sorted(rewrite.allowed),
            "stripped": sorted(rewrite.stripped),
            "changes": [change.document() for change in rewrite.changes],
            "ordered": rewrite.ordered,
            "model": rewrite.model,
            "unasked": unasked,
        }
        return (await self._ask(result)).content

    async def _ask(self, document: dict[str, Any], content: bytes | bytearray = b"") -> Letter:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                channel = self._channel or await self._start()
                letter = await channel.ask(document, content)
        except OSError as error:  # a TimeoutError is one, and so is the end of the process
            await self.stop()
            log.warning("a large body could not be read", extra=fields(problem=str(error) or type(error).__name__))
            raise ApiError(503, "the body could not be read in time: retry, or send less", code="overloaded") from None
        if "refused" in letter.document:
            about = letter.document["refused"]
            raise ApiError(about["status"], about["message"], param=about["param"], code=about["code"])
        return letter

    async def _start(self) -> "_Channel":
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "promptgroup_router.reading.program", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                )
            except OSError:
                ours.close()
                raise
        _, self._channel = await asyncio.get_running_loop().create_connection(_Channel, sock=ours)
        log.info("process for large bodies started", extra=fields(pid=self._process.pid))
        return self._channel

    async def stop(self) -> None:
        """End the process."""
        channel, self._channel = self._channel, None
        process, self._process = self._process, None
        if channel is not None:
            channel.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class _Channel(asyncio.Protocol):
    """The router's end of the socket."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._letters = LetterReader()
        self._answer: asyncio.Future[Letter] | None = None
        self._lost = False
        self._unwritten = _NOTHING
        """The rest of the content of the letter that is being sent."""
        self._full = False
        """True while the transport accepts no more data."""
        self._deferred = False

    async def ask(self, document: dict[str, Any], content: bytes | bytearray) -> Letter:
        """Send a letter and return the one that answers it.

        Raises:
            OSError: the process has ended.
        """
        if self._lost:
            raise ConnectionResetError("the process has ended")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(head(document, len(content)))
        self._unwritten = memoryview(content)
        self._write_piece()
        return await self._answer

    def close(self) -> None:
        self._lost = True
        self._unwritten = _NOTHING
        self._transport.abort()

    def _write_piece(self) -> None:
        """Write a piece, and the next one after other events of the loop have been handled.

        The process reads meanwhile, on another core: data that is handed to the kernel at once is copied at once, by a
        system call that continues as long as the process frees buffer space.
        """
        if self._full or self._deferred or not self._unwritten or self._lost:
            return
        self._transport.write(self._unwritten[:PIECE_BYTES])
        self._unwritten = self._unwritten[PIECE_BYTES:] or _NOTHING  # an empty view would hold a reference to the body
        if self._unwritten:
            self._deferred = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._deferred = False
        self._write_piece()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._write_piece()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream has no other
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        letter = self._letters.feed(data)
        if letter is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(letter)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the process has ended"))
