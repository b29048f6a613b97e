"""The engines: one process on several ports that answers at once, or streams an event every 20 ms.

    python engine.py PORT...

Streams are spread over the 20 ms, so that their events do not come together.
"""

import asyncio
import json
import sys
from typing import ClassVar

import uvloop

INTERVAL = 0.02
BUCKETS = 20
EVENT = b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [{"delta": {"content": "word "}}]}).encode() + b"\n\n"
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER_BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "a word " * 40}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1300, "completion_tokens": 80, "total_tokens": 1380},
    }
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(ANSWER_BODY),
    ANSWER_BODY,
)


class Engine(asyncio.Protocol):
    """A connection: finds the end of each request by its length, and looks at nothing else but `stream`."""

    streams: ClassVar[list[set["Engine"]]] = [set() for _ in range(BUCKETS)]
    opened = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.left = 0
        self.head = b""
        self.streaming = False

    def data_received(self, data: bytes) -> None:
        while data:
            if self.left:
                taken = min(self.left, len(data))
                self.streaming |= b'"stream":true' in data[:taken]
                self.left -= taken
                data = data[taken:]
                if not self.left:
                    self.answer()
                continue
            self.head += data
            head, blank, data = self.head.partition(b"\r\n\r\n")
            if not blank:
                return
            self.head = b""
            fields = head.lower()
            at = fields.find(b"content-length:")
            self.left = int(fields[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if not self.left:
                self.answer()

    def answer(self) -> None:
        if not self.streaming:
            self.transport.write(ANSWER)
            return
        self.transport.write(STREAM)
        Engine.opened += 1
        Engine.streams[Engine.opened % BUCKETS].add(self)

    def connection_lost(self, _: Exception | None) -> None:
        for bucket in Engine.streams:
            bucket.discard(self)


async def pace() -> None:
    loop = asyncio.get_running_loop()
    at, number = loop.time(), 0
    while True:
        for stream in list(Engine.streams[number % BUCKETS]):
            stream.transport.write(CHUNK)
        number += 1
        at += INTERVAL / BUCKETS
        await asyncio.sleep(max(0.0, at - loop.time()))


async def serve(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(Engine, "127.0.0.1", port, backlog=4096)
    await pace()


if __name__ == "__main__":
    uvloop.run(serve([int(port) for port in sys.argv[1:]]))
