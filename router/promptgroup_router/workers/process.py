"""One worker as the supervisor sees it: a process that is started, asked, told and ended."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

from promptgroup_router.base.errors import HttpError
from promptgroup_router.base.exposition import OPENMETRICS
from promptgroup_router.base.logs import fields
from promptgroup_router.contract import names
from promptgroup_router.http11.whole_answer import AnswerError, WholeAnswer
from promptgroup_router.workers import pages
from promptgroup_router.workers.worker import VARIABLE, Inheritance

log = logging.getLogger("promptgroup.workers")

ANSWER_SECONDS = 10.0
"""Time for a worker to answer. One that takes longer hangs."""
ANSWER_BYTES = 64 * 2**20
"""Most bytes of an answer or a last page: several times the page of 1,000 groups."""
LOOPBACK = "127.0.0.1"


class NoAnswerError(Exception):
    """A worker did not answer."""


class WorkerProcess:
    """A worker that runs, or has ended."""

    def __init__(self, place: int, process: asyncio.subprocess.Process, admin_port: int, began: float) -> None:
        self.place = place
        self.began = began
        self.table = asyncio.Event()
        """Set once it has a table."""
        self.end = asyncio.Event()
        """Set once it has ended, and what it counted is kept."""
        self.retiring = False
        """True once it was told to leave."""
        self.page = ""
        """Its page of metrics, as it was read last."""
        self._process = process
        self._admin_port = admin_port
        self._told: Sequence[int] = ()

    @property
    def ready(self) -> bool:
        """True once it has a table."""
        return self.table.is_set()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Ask its admin port. Return status and body.

        Args:
            request: a whole request that asks for the connection to be closed.

        Raises:
            NoAnswerError: it did not answer in time, or not as it should.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await _answer(self._admin_port, request)
        except (OSError, HttpError, AnswerError) as error:  # a TimeoutError is an OSError
            raise NoAnswerError(f"worker {self.place} does not answer: {str(error) or type(error).__name__}") from None

    async def read_page(self) -> None:
        """Read its page of metrics.

        Raises:
            NoAnswerError: it did not answer in time, or not as it should.
        """
        _, body = await self.ask(get("/metrics", accept=OPENMETRICS.content_type))
        self.page = body.decode()

    async def look_whether_ready(self) -> None:
        """Look whether it has a table."""
        with contextlib.suppress(NoAnswerError):
            status, _ = await self.ask(get("/readyz"))
            if status == 200:
                self.table.set()

    def accept_on(self, sockets: Sequence[int]) -> None:
        """Tell it on which sockets to accept."""
        writer = self._process.stdin
        if writer is not None and sockets != self._told and not writer.is_closing():
            self._told = sockets
            writer.write(" ".join(map(str, sockets)).encode() + b"\n")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end, and keep the page that it leaves. Return its exit status, negative for a signal."""
        last = b""
        reader = self._process.stdout
        while reader is not None and (data := await reader.read(65536)):
            if len(last) + len(data) <= ANSWER_BYTES:
                last += data
        status = await self._process.wait()
        if status >= 0 and last:
            self.page = last.decode()
        return status

    def counted(self) -> pages.Page:
        """Return what it has counted, by the page that was read last."""
        return pages.parse(self.page)


async def start(
    place: int,
    workers: int,
    *,
    requests: Sequence[socket.socket],
    exchange: socket.socket | None,
    key: int | None,
    peers: Sequence[int],
) -> WorkerProcess:
    """Start a worker: this program, with the same flags.

    Args:
        place: its place.
        workers: how many share the router's limits.
        requests: sockets of the port for requests.
        exchange: socket of its exchange with peers, if it is given one.
        key: descriptor of the exchange's key.
        peers: ports of the others' exchange.

    Raises:
        OSError: no process can be started, or there is no port left.
    """
    began = asyncio.get_running_loop().time()
    with socket.create_server((LOOPBACK, 0)) as admin:
        given = Inheritance(
            place=place,
            workers=workers,
            requests=tuple(each.fileno() for each in requests),
            admin=admin.fileno(),
            exchange=exchange.fileno() if exchange is not None else None,
            key=key,
            peers=tuple(peers),
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "promptgroup_router", *sys.argv[1:]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {VARIABLE: given.encode()},
            start_new_session=True,  # a terminal's signals are the supervisor's to pass on
            pass_fds=given.descriptors(),
        )
        port: int = admin.getsockname()[1]
    log.info("worker started", extra=fields(place=place, pid=process.pid))
    return WorkerProcess(place, process, port, began)


def get(path: str, accept: bytes = b"*/*") -> bytes:
    """Return a request."""
    return b"GET %b HTTP/1.1\r\nhost: worker\r\naccept: %b\r\nconnection: close\r\n\r\n" % (path.encode(), accept)


def post(path: str, body: bytes, token: bytes = b"") -> bytes:
    """Return a request with a body, and with the admin token of whoever asks for it."""
    head = f"POST {path} HTTP/1.1\r\nhost: worker\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
    field = b"%b: %b\r\n" % (names.HEADER_ADMIN_TOKEN.encode(), token) if token else b""
    return b"%b%b\r\n%b" % (head.encode(), field, body)


async def _answer(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(request)
        answer = WholeAnswer(ANSWER_BYTES, any_status=True)
        while not answer.feed(await reader.read(65536)):
            pass
        return answer.status, answer.content
    finally:
        writer.transport.abort()
