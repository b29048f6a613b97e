"""The engine of benches that count the CPU of what stands before it: it answers each request at once."""

import asyncio
import json

ANSWER_BODY = json.dumps(
    {"choices": [{"message": {"content": "a word " * 40}}], "usage": {"prompt_tokens": 1300, "completion_tokens": 80}}
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(ANSWER_BODY),
    ANSWER_BODY,
)


class AnsweringEngine(asyncio.Protocol):
    """A connection that carries one request at a time, whose body has a length or comes in chunks."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.received = bytearray()
        self.start = 0
        """Where the body begins; 0 until the head is whole."""
        self.length: int | None = None

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.start:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return
            self.start = end + 4
            _, told, rest = self.received[:end].lower().partition(b"content-length: ")
            self.length = int(rest.split(b"\r\n")[0]) if told else None
        if self.length is None:
            whole = self.received.endswith(b"0\r\n\r\n", self.start)
        else:
            whole = len(self.received) - self.start >= self.length
        if whole:
            body = bytes(self.received[self.start :])
            self.received, self.start = bytearray(), 0
            self.answer(body)

    def answer(self, _: bytes) -> None:
        """Answer a request with this body."""
        self.transport.write(ANSWER)
