import asyncio
import gc
import os
import signal
import weakref

import orjson
import pytest

from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.base.errors import ApiError
from promptgroup_router.reading import body_reader
from promptgroup_router.reading.body_reader import BodyReader
from promptgroup_router.reading.letters import head
from support.script import FakeTransport
from support.wire import run

CHAT = ENDPOINTS[b"/v1/chat/completions"]
BODY = orjson.dumps({"model": "llama", "messages": [{"role": "user", "content": "Hi"}]})


async def read(reader, body=BODY):
    async with reader.turn():
        return await reader.read(CHAT, body, 0)


def test_bodies_are_read_in_turn_by_one_process():
    async def check():
        reader = BodyReader()
        try:
            found = await asyncio.gather(*(read(reader) for _ in range(5)))
            assert {each.model for each in found} == {"llama"}
            with pytest.raises(ApiError, match="not JSON"):
                await read(reader, b"{")
            assert os.getpriority(os.PRIO_PROCESS, reader.pid) > 0
        finally:
            await reader.stop()
        assert reader.pid is None

    run(check())


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_ends_or_hangs_is_replaced(monkeypatch, number):
    async def check():
        reader = BodyReader()
        try:
            await read(reader)
            first = reader.pid
            monkeypatch.setattr(body_reader, "ANSWER_SECONDS", 0.2)
            os.kill(first, number)
            with pytest.raises(ApiError) as refused:
                await read(reader)
            assert (refused.value.status, refused.value.code) == (503, "overloaded")
            monkeypatch.setattr(body_reader, "ANSWER_SECONDS", 10.0)
            assert (await read(reader)).model == "llama"
            assert reader.pid != first
        finally:
            await reader.stop()

    run(check())


def test_the_end_of_the_process_is_told_at_once():
    async def check():
        channel = body_reader._Channel()
        channel.connection_made(FakeTransport())
        asked = asyncio.ensure_future(channel.ask({}, b""))
        await asyncio.sleep(0)
        channel.connection_lost(None)
        await asyncio.sleep(0)
        assert asked.done()
        for answer in (asked, channel.ask({}, b"")):
            with pytest.raises(ConnectionResetError):
                await answer

    run(check())


def test_where_no_process_can_be_started_the_body_is_refused_and_others_are_served(monkeypatch):
    async def check():
        reader = BodyReader()
        monkeypatch.setattr(body_reader.sys, "executable", "/nowhere/python")
        with pytest.raises(ApiError) as refused:
            await read(reader)
        assert refused.value.status == 503

    run(check())


class Content(bytearray):
    """A body to which weak references are possible."""


def test_a_large_body_goes_to_the_process_in_pieces_as_it_reads_and_is_not_kept():
    async def check():
        channel, transport, sizes = body_reader._Channel(), FakeTransport(), []
        transport.write = lambda data: sizes.append(len(data))
        channel.connection_made(transport)
        content = Content(5 * body_reader.PIECE_BYTES + 1)
        kept = weakref.ref(content)
        asked = asyncio.ensure_future(channel.ask({}, content))
        await asyncio.sleep(0)
        assert sizes[1:] == [body_reader.PIECE_BYTES]
        channel.pause_writing()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(sizes) == 2
        channel.resume_writing()
        for _ in range(10):
            await asyncio.sleep(0)
        assert sizes[1:] == [body_reader.PIECE_BYTES] * 5 + [1]
        channel.data_received(head({"kind": "done"}, 0))
        assert (await asked).document == {"kind": "done"}
        del content, asked
        gc.collect()
        assert kept() is None

    run(check())
