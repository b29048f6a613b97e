"""An answer that no buffers of this machine hold, and a client that does not read it until its engine is held back."""

import asyncio

from support.fakeengine import Call
from support.wire import Client, chat, post

_PART = b"x" * 65536
_PARTS = 500
_SETTLED = 0.3
"""Seconds in which nothing moves."""


class LongAnswer:
    """What the engine sends, as far as it could."""

    def __init__(self) -> None:
        self.sent = 0

    async def behave(self, call: Call) -> None:
        """Answer as an engine."""
        call.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (_PARTS * len(_PART)))
        for _ in range(_PARTS):
            call.send(_PART)
            await call.writer.drain()
            self.sent += 1
        call.writer.close()

    async def read_slowly(self, client: Client) -> None:
        """Ask for it; see that it is held back, not buffered, while the client does not read, and whole afterwards."""
        client.writer.transport.pause_reading()
        client.send(post(chat(), "Connection: close"))
        before = -1
        while self.sent > before or not self.sent:
            before = self.sent
            await asyncio.sleep(_SETTLED)
        assert before < _PARTS / 2
        client.writer.transport.resume_reading()
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert len(await client.reader.read()) == _PARTS * len(_PART)
