"""Frames without end: each kind by which a peer makes a picker work for few bytes, and a gateway's honest calls."""

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import count

from hpack import Encoder

from promptgroup_picker.http2 import frames
from promptgroup_picker.http2.frames import ErrorCode, FrameType
from promptgroup_picker.http2.grpc_messages import framed
from promptgroup_picker.http2.listener import GrpcConnection, GrpcListener
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from support.grpcclient import PROCESS, header_map

Frames = Iterator[bytes]
BEGINNING = frames.PREFACE + frames.settings({})
CHECK = "/grpc.health.v1.Health/Check"
READ_BYTES = 2**16


def head(number: int, path: str = PROCESS, *, encoder: Encoder | None = None, **further: str) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), ("te", "trailers"), *further.items()]
    return frames.frame(FrameType.HEADERS, frames.END_HEADERS, number, (encoder or Encoder()).encode(fields))


def _block(number: int, block: bytes) -> bytes:
    return frames.frame(FrameType.HEADERS, frames.END_HEADERS, number, block)


def references() -> Frames:
    """480 references into the dynamic table in each block, which is never the one before."""
    encoder = Encoder()
    yield head(1, encoder=encoder, x="y")
    reference = encoder.encode([("x", "y")])
    assert len(reference) == 1
    for number in count(3, 2):
        yield _block(number, reference * 480 + (b"\x82" if number % 4 == 1 else b"\x83"))


def static_references() -> Frames:
    return (_block(number, b"\x82" * (200 + number % 4)) for number in count(1, 2))


def literals() -> Frames:
    """The shortest fields that are in no table."""
    return (_block(number, b"\0\1a\0" * (200 + number % 4)) for number in count(1, 2))


def indexed_literals() -> Frames:
    """Fields that push each other out of the table."""
    return (_block(number, b"\x40\1a\0" * (200 + number % 4)) for number in count(1, 2))


def compressed() -> Frames:
    """Long values in Huffman's code."""
    return (_block(number, Encoder().encode([("x", f"{number:09}" * 900)], huffman=True)) for number in count(1, 2))


def table_sizes() -> Frames:
    return (_block(number, b"\x20\x3f\xe1\x1f" + b"\x82" * (1 + number % 4)) for number in count(1, 2))


def many_table_sizes() -> Frames:
    return (_block(number, b"\x20" * (8000 + number % 4) + b"\x82") for number in count(1, 2))


def continuations() -> Frames:
    for number in count(1, 2):
        yield frames.frame(FrameType.HEADERS, 0, number, b"\x82")
        yield from [frames.frame(FrameType.CONTINUATION, 0, number, b"\x82")] * (250 + number % 4)
        yield frames.frame(FrameType.CONTINUATION, frames.END_HEADERS, number)


def no_methods() -> Frames:
    encoder = Encoder()
    return (head(number, "/a" if number % 4 == 1 else "/b", encoder=encoder) for number in count(1, 2))


def new_paths() -> Frames:
    encoder = Encoder()
    return (head(number, f"/{number}", encoder=encoder) for number in count(1, 2))


def trailers() -> Frames:
    """Fields for a stream that has ended."""
    encoder = Encoder()
    yield head(3, encoder=encoder)
    for number in count():
        yield head(1, "/a" if number % 2 else "/b", encoder=encoder)


def resets() -> Frames:
    encoder = Encoder()
    return (head(number, encoder=encoder) + frames.reset(number, ErrorCode.CANCEL) for number in count(1, 2))


def windows_of_calls() -> Frames:
    """Changes of the initial window beside many calls."""
    encoder = Encoder()
    yield b"".join(head(number, encoder=encoder) for number in range(1, 2001, 2))
    for number in count():
        yield frames.settings({frames.SETTINGS_INITIAL_WINDOW_SIZE: 10 + number % 2})


def checks() -> Frames:
    """Health checks, which are answered."""
    encoder = Encoder()
    for number in count(1, 2):
        end = frames.frame(FrameType.DATA, frames.END_STREAM, number, framed(b""))
        yield head(number, CHECK, encoder=encoder) + end


def _begun(number: int) -> ProcessingRequest:
    fields = {":method": "POST", ":path": "/v1/chat/completions", "x-request-id": f"{number:032}"}
    begun = header_map(ProcessingRequest(), "request_headers", fields, end=False)
    begun.protocol_config.request_body_mode = begun.protocol_config.response_body_mode = 4
    return begun


def honest(body: bytes, *, leave: int = 0, events: int = 5) -> Frames:
    """Requests as Envoy shows them in full duplex, each with a streamed answer; one in `leave` ends before its body."""
    encoder, asked = Encoder(), ProcessingRequest()
    asked.request_body.body, asked.request_body.end_of_stream = body, True
    event = ProcessingRequest()
    event.response_body.body = b'data: {"choices":[{"delta":{"content":"word"}}]}\n\n'
    last = ProcessingRequest()
    last.response_body.body, last.response_body.end_of_stream = b"data: [DONE]\n\n", True
    answered = header_map(
        ProcessingRequest(), "response_headers", {":status": "200", "content-type": "text/event-stream"}, end=False
    )
    for number in count(1, 2):
        messages = [_begun(number), asked, answered, *[event] * events, last]
        if leave and number // 2 % leave == 0:
            messages = messages[:1]
        trace = {"traceparent": f"00-{number:032x}-{number:016x}-01"}
        yield b"".join(
            [
                head(number, encoder=encoder, **trace),
                *(frames.frame(FrameType.DATA, 0, number, framed(each.SerializeToString())) for each in messages),
                frames.reset(number, ErrorCode.CANCEL),
                frames.window_update(0, 2000),
            ]
        )


def bodies() -> Frames:
    """A request whose body comes byte by byte, each in a message."""
    part = ProcessingRequest()
    part.request_body.body = b"x"
    part = framed(part.SerializeToString())
    yield head(1) + frames.frame(FrameType.DATA, 0, 1, framed(_begun(1).SerializeToString()))
    while True:
        yield frames.frame(FrameType.DATA, 0, 1, part * 100)


def again(frame: bytes, *first: bytes) -> Callable[[], Frames]:
    def repeated() -> Frames:
        yield from first
        while True:
            yield frame

    return repeated


FLOODS: dict[str, Callable[[], Frames]] = {
    "references into the table": references,
    "references into the static table": static_references,
    "literal fields": literals,
    "literal fields for the table": indexed_literals,
    "fields in Huffman's code": compressed,
    "sizes of the table": table_sizes,
    "many sizes of the table": many_table_sizes,
    "CONTINUATION": continuations,
    "no method": no_methods,
    "a new path each": new_paths,
    "trailers": trailers,
    "streams that are reset": resets,
    "health checks": checks,
    "empty DATA": again(frames.frame(FrameType.DATA, 0, 1), head(1)),
    "empty DATA of a stream that ended": again(
        frames.frame(FrameType.DATA, 0, 1), head(1), frames.reset(1, ErrorCode.CANCEL)
    ),
    "DATA byte by byte": again(frames.frame(FrameType.DATA, 0, 1, b"\0"), head(1)),
    "DATA of padding": again(frames.frame(FrameType.DATA, frames.PADDED, 1, b"\0"), head(1)),
    "bodies byte by byte": bodies,
    "SETTINGS": again(frames.settings({})),
    "SETTINGS of many": again(frames.settings(dict.fromkeys(range(1000, 3000), 1))),
    "SETTINGS of windows": windows_of_calls,
    "PING": again(frames.frame(FrameType.PING, 0, 0, bytes(8))),
    "answers to no PING": again(frames.frame(FrameType.PING, frames.ACK, 0, bytes(8))),
    "PRIORITY": again(frames.frame(FrameType.PRIORITY, 0, 1, bytes(5))),
    "WINDOW_UPDATE": again(frames.window_update(0, 1)),
    "WINDOW_UPDATE of a stream": again(frames.window_update(1, 1), head(1)),
    "WINDOW_UPDATE of no stream": again(frames.window_update(7, 1)),
    "RST_STREAM of no stream": again(frames.reset(7, ErrorCode.CANCEL)),
    "GOAWAY": again(frames.goaway(0, ErrorCode.NO_ERROR)),
    "a type that nobody knows": again(frames.frame(99, 0, 0)),  # type: ignore[arg-type]
}


class Pipe:
    """A transport in memory, which counts what the picker reads."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.reading, self.closed = True, False
        self.sent: list[bytes] = []
        self._address = address

    def pause_reading(self) -> None:
        assert self.reading, "it is paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "it is resumed twice"
        self.reading = True

    def abort(self) -> None:
        self.closed = True

    close = abort

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return self._address, 1

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, data: list[bytes]) -> None:
        self.sent += data


class Peer:
    """One connection to a listener, and what it has still to send."""

    def __init__(self, listener: GrpcListener, data: Frames | None = None, address: str = "127.0.0.1") -> None:
        self.pipe = Pipe(address)
        self.connection: GrpcConnection = listener.accept()
        self.connection.connection_made(self.pipe)  # type: ignore[arg-type]
        self.read = 0
        """Bytes that the picker has read."""
        self._data = data if data is not None else iter(())
        self.send(BEGINNING)

    def send(self, data: bytes) -> None:
        if not self.pipe.closed:
            self.read += len(data)
            self.connection.data_received(data)

    def leave(self) -> None:
        self.pipe.closed = True
        self.connection.connection_lost(None)

    def next_read(self) -> bytes:
        """Return what it sends next, about as much as one read takes."""
        part = bytearray()
        for each in self._data:
            part += each
            if len(part) >= READ_BYTES:
                break
        return bytes(part)


async def flood(listener: GrpcListener, data: Frames, most: int) -> tuple[Peer, float]:
    """Have a listener read frames until it reads no more, or as many bytes; return the CPU seconds that it took."""
    peer, took = Peer(listener, data), 0.0
    while peer.read < most and not peer.pipe.closed and (peer.pipe.reading or peer.connection.ready):
        part = b""
        if peer.pipe.reading:
            part = peer.next_read()  # what the frames cost to make is not the picker's
            if not part:
                break
        began = time.thread_time()
        if part:
            peer.send(part)
        await asyncio.sleep(0)
        took += time.thread_time() - began
    return peer, took
