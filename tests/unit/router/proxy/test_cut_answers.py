"""Engines that end an answer early, wherever in it: another engine answers, or the client's answer shows the cut.

h11 says if the client's answer is whole, so that the router's own parser does not judge itself.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field

import h11
import orjson
import pytest

from support.fakeengine import Call, engines
from support.wire import chat, connected, post, routing, run, table_of

OPENING = b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
TOKENS = [b'data: {"choices":[{"delta":{"content":"%b"},"finish_reason":null}]}\n\n' % word for word in (b"Hi", b"ho")]
DONE = b"data: [DONE]\n\n"
WHOLE = orjson.dumps({"choices": [{"message": {"content": "Hi"}}], "usage": {"prompt_tokens": 3}})


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in parts) + b"0\r\n\r\n"


def sized(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)), body


def in_chunks(kind: bytes, *parts: bytes) -> tuple[bytes, bytes]:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind, chunked(*parts)


EVENTS, JSON = b"text/event-stream", b"application/json"
ANSWERS = {
    "whole, with its length": (sized(JSON, WHOLE), b""),
    "whole, in chunks": (in_chunks(JSON, WHOLE[:20], WHOLE[20:]), b""),
    "streamed, in chunks": (in_chunks(EVENTS, OPENING, *TOKENS, DONE), chunked(OPENING)[: -len(b"0\r\n\r\n")]),
    "streamed, chunks that end within events": (in_chunks(EVENTS, OPENING + TOKENS[0][:9], TOKENS[0][9:] + DONE), b""),
    "streamed, with its length": (sized(EVENTS, OPENING + TOKENS[0] + DONE), OPENING),
}
"""Head and body of an engine's answer, and the part of the body that shows a client nothing."""


@dataclass
class Cutting:
    """The first engine that is asked ends its answer after so many bytes; any other engine answers."""

    answer: bytes
    at: int
    reset: bool
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the client has bytes of an answer."""
    calls: int = 0

    async def __call__(self, call: Call) -> None:
        self.calls += 1
        if self.calls > 1:
            call.send(self.answer)
            await call.writer.drain()
            call.writer.close()
            return
        call.send(self.answer[: self.at])
        await call.writer.drain()
        if not self.reset:
            call.writer.close()
            return
        with contextlib.suppress(TimeoutError):  # where nothing is shown
            async with asyncio.timeout(0.05):
                await self.seen.wait()
        call.lose()


async def received(port: int, cutting: Cutting, *, streamed: bool, version: str) -> tuple[bytes, bool]:
    """Return all that a client gets until its connection ends, and whether a reset ended it."""
    got = bytearray()
    async with connected(port) as client:
        client.send(post(chat(stream=streamed), "Connection: close", version=version))
        try:
            while data := await client.reader.read(65536):
                got += data
                cutting.seen.set()
        except ConnectionResetError:
            return bytes(got), True
    return bytes(got), False


def body_if_whole(raw: bytes) -> bytes | None:
    """Return the body of an answer as h11 reads it to the end of its connection; None if it is not whole."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="POST", target="/", headers=[("Host", "a"), ("Content-Length", "0")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(raw)
    reader.receive_data(b"")
    body = b""
    try:
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            body += bytes(event.data) if isinstance(event, h11.Data) else b""
    except h11.RemoteProtocolError:
        return None
    return body


def check_cuts(tmp_path, answer, hidden, cuts, *, reset, version="1.1"):
    """Cut an answer at each of these bytes, and look at what a client gets."""
    head, body = answer
    silent = len(head) + len(hidden)
    content = body_if_whole(head + body)

    async def check():
        async with engines(2) as both, routing(tmp_path, table_of(*(each.address for each in both))) as router:
            for at in cuts:
                cutting = Cutting(head + body, at, reset)
                for each in both:
                    each.behave = cutting
                raw, broken = await received(router.port, cutting, streamed=EVENTS in head, version=version)
                got = None if broken else body_if_whole(raw)
                assert got in (content, None), f"cut at {at}, looks whole: {raw!r}"
                if at <= silent or at == len(head + body):
                    assert got == content, f"cut at {at} before anything was shown: {raw!r}"
                elif cutting.calls == 1:
                    assert got is None, f"cut at {at}, looks whole: {raw!r}"
            assert router.state.balancer.placed.loads == {}
            assert router.state.retry_budget.trying == 0

    run(check())


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_that_ends_early_is_answered_by_another_engine_or_shows_the_cut(tmp_path, kind):
    (head, body), hidden = ANSWERS[kind]
    shown, end = len(head + hidden), len(head + body)
    cuts = {*range(0, end, 7), *range(len(head) - 5, len(head) + 2), shown, shown + 1, *range(end - 6, end + 1)}
    check_cuts(tmp_path, (head, body), hidden, sorted(cuts), reset=False)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_same_of_an_answer_that_ends_with_a_reset(tmp_path, kind, version):
    (head, body), hidden = ANSWERS[kind]
    cuts = [0, len(head), len(head + hidden), len(head) + 1, len(head + hidden) + len(body) // 2, len(head + body) - 1]
    check_cuts(
        tmp_path, (head, body), hidden, [at for at in cuts if at < len(head + body)], reset=True, version=version
    )


@pytest.mark.parametrize("kind", ["streamed, in chunks", "whole, in chunks"])
def test_a_client_of_http_1_0_never_takes_a_cut_answer_for_a_whole_one(tmp_path, kind):
    (head, body), hidden = ANSWERS[kind]
    check_cuts(tmp_path, (head, body), hidden, range(0, len(head + body), 5), reset=False, version="1.0")


def test_a_reset_of_an_answer_that_ends_with_its_connection_is_a_reset(tmp_path):
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", WHOLE
    head = len(answer[0])
    check_cuts(tmp_path, answer, b"", [head, head + 1, head + 9], reset=True)
