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
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, body = self.received.partition(b"\r\n\r\n")
        if not blank:
            return
        lower = head.lower()
        if b"content-length: " in lower:
            whole = len(body) >= int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
        else:
            whole = body.endswith(b"0\r\n\r\n")
        if whole:
            self.received = b""
            self.answer(body)

    def answer(self, _: bytes) -> None:
        """Answer a request with this body."""
        self.transport.write(ANSWER)
