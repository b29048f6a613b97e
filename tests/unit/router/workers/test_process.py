import asyncio
import contextlib

import pytest

from promptgroup_router.workers import process
from promptgroup_router.workers.process import NoAnswerError, WorkerProcess, get, post
from support.wire import run


class FakeChild:
    """A child process that says what a test wants."""

    pid = 7

    def __init__(self, page: bytes = b"", status: int = 0) -> None:
        self.stdin = None
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(page)
        self.stdout.feed_eof()
        self._status = status

    async def wait(self) -> int:
        return self._status


@contextlib.asynccontextmanager
async def answering(answer: bytes, *, close: bool = True):
    """An admin port that gives the same answer to everything, and keeps what it was asked."""
    asked: list[bytes] = []

    async def serve(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if not close:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


def test_a_worker_is_asked_and_its_page_is_kept():
    async def check():
        async with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage") as (port, asked):
            worker = WorkerProcess(0, FakeChild(), port, 0.0)
            assert await worker.ask(get("/readyz")) == (200, b"page")
            await worker.read_page()
            assert worker.page == "page"
            await worker.look_whether_ready()
            assert worker.ready
            assert asked[1].startswith(b"GET /metrics HTTP/1.1\r\n")

    run(check())


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\npage", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n"]
)
def test_what_is_no_answer_is_said_to_be_none(answer):
    async def check():
        async with answering(answer) as (port, _):
            worker = WorkerProcess(3, FakeChild(), port, 0.0)
            with pytest.raises(NoAnswerError, match="worker 3"):
                await worker.ask(get("/readyz"))
            await worker.look_whether_ready()
            assert not worker.ready

    run(check())


def test_an_answer_has_a_time_and_a_size(monkeypatch):
    async def check():
        monkeypatch.setattr(process, "ANSWER_SECONDS", 0.05)
        async with answering(b"HTTP/1.1 200 OK\r\n", close=False) as (port, _):
            with pytest.raises(NoAnswerError):
                await WorkerProcess(0, FakeChild(), port, 0.0).ask(get("/metrics"))
        monkeypatch.setattr(process, "ANSWER_SECONDS", 10.0)
        monkeypatch.setattr(process, "ANSWER_BYTES", 3)
        async with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage") as (port, _):
            with pytest.raises(NoAnswerError, match="more than 3 bytes"):
                await WorkerProcess(0, FakeChild(), port, 0.0).ask(get("/metrics"))

    run(check())


def test_the_last_page_counts_only_from_a_worker_that_ended_by_itself():
    async def check():
        ended = WorkerProcess(0, FakeChild(b"last"), 1, 0.0)
        assert await ended.ended() == 0
        assert ended.page == "last"
        killed = WorkerProcess(0, FakeChild(b"half of a pa", -9), 1, 0.0)
        killed.page = "read before"
        assert await killed.ended() == -9
        assert killed.page == "read before"

    run(check())


def test_requests_ask_for_the_end_of_the_connection():
    assert b"connection: close" in get("/metrics")
    assert post("/explain", b"{}").endswith(b"content-length: 2\r\n\r\n{}")
