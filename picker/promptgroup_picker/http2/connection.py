"""One connection of a gateway: its streams, windows and frames, without I/O.

`receive` takes bytes, calls the handler of each stream, and leaves what is to be sent in `take`. A stream is open until
both sides have ended it:

| event                             | effect                                                                          |
|-----------------------------------|---------------------------------------------------------------------------------|
| HEADERS                           | `opener` returns the handler of the stream, or the call is refused              |
| DATA                              | `message` for each message; the window is given back as the stream's output goes |
| END_STREAM                        | `half_closed`                                                                   |
| RST_STREAM, end of the connection | `lost`, once, unless the stream has ended                                       |

A connection drains in two steps (RFC 9113 section 6.8): GOAWAY with the highest number there is, and a PING. Calls that
the peer opened before it read them are taken; its answer to the PING arrives after all of those, and none is taken
then.

An error in a call, the handler's own faults included, ends that call alone.

Everything is bounded: frames, fields, streams, resets, messages, what waits to be sent, and what all of it costs
(`budget`). A peer that sends more than the window of a stream is disconnected, since the window limits the buffers.
`held` is the size of the connection's buffers.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Protocol

from promptgroup_picker.http2 import budget, fields, frames
from promptgroup_picker.http2.budget import Budget
from promptgroup_picker.http2.fields import FieldReader
from promptgroup_picker.http2.frames import ErrorCode, Frame, FrameReader, FrameType, Http2Error
from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus, MessageReader, framed

WINDOW = 2**20
"""Bytes that a peer may send on a stream before it must wait."""
CONNECTION_WINDOW = 2**24
"""The same for all streams of a connection together."""
MAX_STREAMS = 4096
"""Most calls at the same time on one connection; a gateway has a few connections."""
MAX_FIELD_BYTES = 16384
"""Most bytes of the fields of one stream, in all their frames: the clients' own fields are in messages."""
UNSENT = 2**18
"""Bytes that may wait to be sent on a stream before its window stays closed."""
MAX_RESETS = 2000
"""Most streams that a peer may open and reset before the connection is closed, less those that ended well."""
QUIET_TICKS = 60
"""Seconds after which a stream is reset that has brought no message, or whose output does not get on."""
DEFAULT_WINDOW = 65535
ANY_STREAM = 2**31 - 1
"""The highest number of a stream."""
FAILED = "the picker failed: its log says why"
"""The message of a call that ended by a fault of the picker's own."""
DRAINING = b"draining"
"""The bytes of the PING that follows the first GOAWAY."""
_NO_METHOD = fields.refusal(GrpcStatus.UNIMPLEMENTED, "there is no such method")


class Call(Protocol):
    """The handler of a stream."""

    def begun(self, size: int) -> None:
        """Handle the length of a message above `LARGE` before the message arrives.

        Raises:
            GrpcError: the call accepts no message of that size.
        """

    def message(self, data: bytes) -> None:
        """Take a message.

        Raises:
            GrpcError: the call cannot go on.
        """

    def half_closed(self) -> None:
        """Handle the end of the peer's messages."""

    def lost(self) -> None:
        """Handle a stream that ended before its answer did."""


Opener = Callable[[str, "Stream"], "Call | None"]
"""Returns the handler for a call of a path (`/package.Service/Method`); None if there is none."""


class Stream:
    """One call."""

    __slots__ = ("_connection", "_unread", "allowed", "answered", "call", "ended", "half_closed", "heard", "id", "kept",
                 "opening", "output", "pays", "quiet", "reader", "served", "trailers", "waiting", "window")  # fmt: skip

    def __init__(self, connection: "ServerConnection", number: int, window: int, most: int) -> None:
        self._connection = connection
        self.id = number
        self.call: Call | None = None
        self.window = window
        """Bytes that may be sent."""
        self.reader = MessageReader(most, self._begun)
        self.kept = 0
        """Bytes of a message that is not whole."""
        self.heard = False
        """True once a message has arrived."""
        self.opening = 0.0
        """Units that the fields cost which opened it, until its first answer pays for them."""
        self.pays = True
        """False for a call whose answers reduce no debt, since it chooses no endpoint."""
        self.quiet = 0
        """Seconds without a first message, or without progress of its output."""
        self.output: deque[bytes | memoryview] = deque()
        """Data that waits for a window."""
        self.waiting = 0
        """Bytes of it."""
        self.trailers: bytes | None = None
        """Set once the call has ended: fields that follow the data."""
        self.answered = False
        """True once the fields of the answer are sent."""
        self.served = False
        """True once the call has ended well, behind an answer."""
        self.ended = False
        self.half_closed = False
        self._unread = 0
        """Bytes received for which the peer got no window yet."""
        self.allowed = WINDOW
        """Bytes that the peer may send more."""

    @property
    def peer(self) -> str:
        """The address of the connection's peer; empty if it is not available."""
        return self._connection.peer

    def _begun(self, size: int) -> None:
        if self.call is not None:
            self.call.begun(size)

    def send(self, message: bytes) -> None:
        """Send a message."""
        if not self.ended and self.trailers is None:
            if self.pays:
                self._connection.budget.pay(budget.ANSWER + self.opening)
                self.opening = 0.0
            self._connection.send(self, framed(message))
            self._connection.wake()

    def finish(self, status: GrpcStatus = GrpcStatus.OK, message: str = "") -> None:
        """End the call, behind all messages."""
        if not self.ended and self.trailers is None:
            self.trailers = fields.trailers(status, message)
            self.served = self.answered and status is GrpcStatus.OK
            self._connection.flush(self)
            self._connection.wake()

    def received(self, count: int) -> None:
        """Count bytes for which the peer gets a window.

        Raises:
            Http2Error: they are more than it was allowed.
        """
        self._unread += count
        self.allowed -= count
        if self.allowed < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"stream {self.id} has more data than its window")

    def grant(self) -> int:
        """Return how many more bytes the peer may send, and reset the number."""
        if self._unread < WINDOW // 4 or self.waiting > UNSENT:
            return 0
        more, self._unread = self._unread, 0
        self.allowed += more
        return more


class ServerConnection:
    """The server's side of one connection."""

    def __init__(
        self,
        opener: Opener,
        max_message: int,
        wake: Callable[[], None],
        failed: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        """Make a connection.

        Args:
            opener: finds what handles a call.
            max_message: the most bytes of a message.
            wake: called when a call has left output to be taken.
            failed: called with the error of a call that ended by a fault of the picker's own.
        """
        self._failed = failed
        self._opener = opener
        self.wake = wake
        self._max_message = max_message
        self._reader = FrameReader()
        self._fields = FieldReader()
        self.budget = Budget()
        self.more = False
        """True if bytes are here that no turn has read."""
        self.streams: dict[int, Stream] = {}
        self._last = 0
        """The highest stream that was opened."""
        self._window = DEFAULT_WINDOW
        """Bytes that may be sent on all streams together."""
        self._initial_window = DEFAULT_WINDOW
        """Bytes that may be sent on a new stream; a change of it reaches the open ones at the end of a turn."""
        self._widened = 0
        """Bytes by which the windows of the open streams are still to grow."""
        self._unacknowledged = 0
        """SETTINGS of this turn: data that is sent before their ACK counts by what was agreed before them."""
        self._unread = 0
        self._held = 0
        """Bytes of messages that are not whole, and of output that waits for windows."""
        self._resets = 0
        self._block: tuple[int, int, bytearray] | None = None
        """Stream, flags and first bytes of fields that go on in the next frame."""
        self._blocked: dict[int, Stream] = {}
        """Streams with data that waits for the window of the connection, in order."""
        self._leaving = False
        """True once GOAWAY was sent, so that the peer opens no more streams."""
        self._refuses = False
        """True once it has learned that, so that streams which it opens are refused."""
        self.full = False
        """True while streams are refused since there are too many on all connections."""
        self.closed = False
        self.peer = ""
        """Address of the peer; empty if it is not available."""
        self._out: list[bytes] = [
            frames.settings(
                {
                    frames.SETTINGS_MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                    frames.SETTINGS_INITIAL_WINDOW_SIZE: WINDOW,
                    frames.SETTINGS_MAX_FRAME_SIZE: frames.MAX_FRAME,
                    frames.SETTINGS_MAX_HEADER_LIST_SIZE: fields.MAX_LIST_BYTES,
                }
            ),
            frames.window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW),
        ]

    def take(self) -> list[bytes]:
        """Remove and return the output, in order."""
        out, self._out = self._out, []
        return out

    @property
    def begun(self) -> bool:
        """True once the peer has begun to speak HTTP/2."""
        return self._reader.begun

    @property
    def held(self) -> int:
        """Number of buffered bytes: of frames, fields and messages that are not whole, and output that waits."""
        return self._held + self._reader.waiting + (len(self._block[2]) if self._block is not None else 0)

    @property
    def has_output(self) -> bool:
        """True if there is something to send."""
        return bool(self._out)

    def receive(self, data: bytes) -> None:
        """Take bytes, and read all of their frames."""
        self.keep(data)
        self.read()

    def keep(self, data: bytes) -> None:
        """Take bytes, whose frames `read` reads."""
        if not self.closed:
            self.budget.charge(budget.READ)
            self._reader.keep(data)
            self.more = True

    def read(self, turn: float = inf) -> float:
        """Read frames until they have cost a turn.

        After a violation the connection is `closed` once its output is sent.

        Returns:
            The units that they have cost.
        """
        if self.closed:
            return 0.0
        spending, self.more = self.budget, False
        spending.spent = 0.0
        try:
            for frame in self._reader.frames():
                spending.charge(budget.FRAME + len(frame.payload) // budget.BYTES_A_UNIT)
                self._take(frame)
                if spending.spent >= turn:
                    self.more = True
                    break
            self._agree()
        except Http2Error as error:
            self._fail(error.code)
        return spending.spent

    def _fail(self, code: ErrorCode) -> None:
        self._out.append(frames.goaway(self._last, code))
        self.lost()

    @property
    def drained(self) -> bool:
        """True once no stream is open and none is taken."""
        return self._refuses and not self.streams

    def drain(self) -> None:
        """Ask the peer to open no more streams. Those that it opens before it has learned that are taken."""
        if not self._leaving:
            self._leaving = True
            self._out.append(frames.goaway(ANY_STREAM, ErrorCode.NO_ERROR))
            self._out.append(frames.frame(FrameType.PING, 0, 0, DRAINING))

    def refuse(self) -> None:
        """Take no more streams, whether or not the peer has learned that; those that are open go on."""
        if not self._refuses:
            self._leaving = self._refuses = True
            self._out.append(frames.goaway(self._last, ErrorCode.NO_ERROR))

    def lost(self) -> None:
        """End all streams: the connection is closed, or cannot be used."""
        self.closed, self.more = True, False
        for stream in list(self.streams.values()):
            self._drop(stream)

    def tick(self) -> bool:
        """Reset streams that are quiet for too long; called every second.

        Returns:
            True if the connection ends since its frames cost too much.
        """
        if self.budget.tick() and not self.closed:
            self._fail(ErrorCode.ENHANCE_YOUR_CALM)
            return True
        for stream in list(self.streams.values()):
            if stream.heard and not stream.waiting:
                stream.quiet = 0
                continue
            stream.quiet += 1
            if stream.quiet > QUIET_TICKS:
                self._out.append(frames.reset(stream.id, ErrorCode.CANCEL))
                self._drop(stream)
        return False

    # --- What is sent ----------------------------------------------------------------------------------------------

    def send(self, stream: Stream, data: bytes) -> None:
        """Send data on a stream, as far as the windows allow; the rest waits."""
        stream.output.append(data)
        stream.waiting += len(data)
        self._held += len(data)
        self.flush(stream)

    def flush(self, stream: Stream) -> None:
        """Send what waits on a stream, as far as the windows allow."""
        if not stream.answered and (stream.output or stream.trailers is not None):
            stream.answered = True
            self._out.append(frames.frame(FrameType.HEADERS, frames.END_HEADERS, stream.id, fields.OK_FIELDS))
        output = stream.output
        while output:
            room = min(stream.window, self._window, frames.SENT_FRAME)
            if room <= 0:
                if stream.window > 0:
                    self._blocked[stream.id] = stream
                return
            piece = output[0]
            if len(piece) > room:
                view = memoryview(piece)  # a long message is sent in many frames, and is not copied for each
                output[0], piece = view[room:], view[:room]
            else:
                output.popleft()
            stream.window -= len(piece)
            self._window -= len(piece)
            stream.waiting -= len(piece)
            self._held -= len(piece)
            stream.quiet = 0
            self._out.append(frames.frame(FrameType.DATA, 0, stream.id, piece))
        if stream.trailers is not None and not stream.ended:
            flags = frames.END_HEADERS | frames.END_STREAM
            self._out.append(frames.frame(FrameType.HEADERS, flags, stream.id, stream.trailers))
            if not stream.half_closed:
                # the peer need not send the rest of a call that is answered (RFC 9113 section 8.1)
                self._out.append(frames.reset(stream.id, ErrorCode.NO_ERROR))
            if stream.served:
                self._pay_back()
            self._close(stream)
        else:
            self._grant(stream)

    def _grant(self, stream: Stream) -> None:
        if not stream.half_closed and (more := stream.grant()):
            self._out.append(frames.window_update(stream.id, more))

    # --- What is received ------------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        if self._block is not None and frame.type != FrameType.CONTINUATION:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "fields of a stream are interrupted by another frame")
        match frame.type:
            case FrameType.DATA:
                self._data(frame)
            case FrameType.HEADERS:
                self._take_fields(frame.stream, frame.flags, frames.content(frame))
            case FrameType.CONTINUATION:
                self._continue_fields(frame)
            case FrameType.RST_STREAM:
                self._reset(frame)
            case FrameType.SETTINGS:
                self._settings(frame)
            case FrameType.PING:
                self._ping(frame)
            case FrameType.WINDOW_UPDATE:
                self._window_update(frame)
            case FrameType.PUSH_PROMISE:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a client does not push")
            case _:
                pass  # PRIORITY is deprecated, GOAWAY changes nothing, others are to be ignored (section 5.5)

    def _continue_fields(self, frame: Frame) -> None:
        if self._block is None or self._block[0] != frame.stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame continues fields that did not begin")
        if not frame.payload and not frame.flags & frames.END_HEADERS:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "a frame continues fields with nothing")
        _, flags, started = self._block
        started += frame.payload
        self._take_fields(frame.stream, flags | frame.flags & frames.END_HEADERS, started)

    def _take_fields(self, number: int, flags: int, block: bytes | bytearray) -> None:
        if len(block) > MAX_FIELD_BYTES:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"fields of a stream have more than {MAX_FIELD_BYTES} bytes")
        if not flags & frames.END_HEADERS:
            self._block = number, flags, block if isinstance(block, bytearray) else bytearray(block)
            return
        self._block = None
        path = self._fields.path(bytes(block))  # also where it is not wanted: each list may change the table
        self.budget.charge(self._fields.cost)
        stream = self.streams.get(number)
        if stream is not None:
            self._half_close(stream)  # trailers
            return
        if number % 2 == 0:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a client opens stream {number}")
        if number <= self._last:
            return  # trailers of a stream that was ended
        self._last = number
        self.budget.charge(budget.STREAM)
        if self._refuses or self.full or len(self.streams) >= MAX_STREAMS:
            self._out.append(frames.reset(number, ErrorCode.REFUSED_STREAM))
            return
        stream = Stream(self, number, self._initial_window - self._widened, self._max_message)
        stream.opening = min(self._fields.cost, budget.MOST_FIELDS_PAID)
        self._open(stream, path, ended=bool(flags & frames.END_STREAM))

    def _open(self, stream: Stream, path: str, *, ended: bool) -> None:
        number = stream.id
        call = self._opener(path, stream)
        if call is None:
            flags = frames.END_HEADERS | frames.END_STREAM
            self._out.append(frames.frame(FrameType.HEADERS, flags, number, _NO_METHOD))
            if not ended:
                self._out.append(frames.reset(number, ErrorCode.NO_ERROR))
            return
        stream.call = call
        self.streams[number] = stream
        if ended:
            self._half_close(stream)

    def _data(self, frame: Frame) -> None:
        self._unread += len(frame.payload)
        if self._unread > CONNECTION_WINDOW // 4:
            self._out.append(frames.window_update(0, self._unread))
            self._unread = 0
        stream = self.streams.get(frame.stream)
        if stream is None:
            if frame.stream == 0 or frame.stream > self._last:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"data of stream {frame.stream}, which was not opened")
            return  # on its way when the stream was ended
        if stream.half_closed:
            raise Http2Error(ErrorCode.STREAM_CLOSED, f"data behind the end of stream {frame.stream}")
        stream.received(len(frame.payload))
        data = frames.content(frame)
        if stream.trailers is None:  # else the call has ended, and later data is dropped
            self._guard(stream, lambda: self._messages(stream, data))
        if stream.ended:
            return
        waiting = stream.reader.waiting
        self._held += waiting - stream.kept
        stream.kept = waiting
        if frame.flags & frames.END_STREAM:
            self._half_close(stream)
        else:
            self._grant(stream)

    def _messages(self, stream: Stream, data: bytes) -> None:
        """Pass the messages that the received bytes complete to a call.

        Raises:
            GrpcError: the call cannot go on.
        """
        for message in stream.reader.feed(data):
            stream.heard = True
            self.budget.charge(budget.MESSAGE)
            self.budget.spent += budget.DECISION
            if stream.call is not None and stream.trailers is None:
                stream.call.message(message)

    def _half_close(self, stream: Stream) -> None:
        if stream.half_closed:
            raise Http2Error(ErrorCode.STREAM_CLOSED, f"stream {stream.id} ends twice")
        stream.half_closed = True
        if stream.call is not None:
            self._guard(stream, stream.call.half_closed)

    def _guard(self, stream: Stream, tell: Callable[[], None]) -> None:
        """Invoke a handler of a call. Its error ends this call alone: the others of the connection go on."""
        try:
            tell()
        except GrpcError as error:
            stream.finish(error.status, str(error))
        except Exception as error:  # noqa: BLE001 # a fault of the picker, which no other call must feel
            self._failed(error)
            stream.finish(GrpcStatus.INTERNAL, FAILED)
        else:
            return
        self._abandon(stream)

    def _reset(self, frame: Frame) -> None:
        stream = self.streams.get(frame.stream)
        if stream is None:
            return
        if not stream.answered:  # a gateway resets each stream once it is served; others cost us the most
            self._resets += 1
            if self._resets > MAX_RESETS:
                raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many streams are opened and reset")
        else:
            self._pay_back()
        self._drop(stream)

    def _pay_back(self) -> None:
        """Forgive the peer an early reset for a call that was served."""
        self._resets = max(0, self._resets - 1)

    def _ping(self, frame: Frame) -> None:
        if len(frame.payload) != 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "PING has not 8 bytes")
        if not frame.flags & frames.ACK:
            self._out.append(frames.frame(FrameType.PING, frames.ACK, 0, frame.payload))
        elif self._leaving and frame.payload == DRAINING:
            self.refuse()

    def _settings(self, frame: Frame) -> None:
        if frame.flags & frames.ACK:
            return
        self.budget.charge(len(frame.payload) / budget.SETTINGS_BYTES_A_UNIT)
        values = frames.read_settings(frame.payload)
        window = values.get(frames.SETTINGS_INITIAL_WINDOW_SIZE)
        self._unacknowledged += 1
        if window is not None:
            self._widened += window - self._initial_window
            self._initial_window = window

    def _agree(self) -> None:
        """Let a change of the initial window reach the open streams: once a turn, however often it was changed."""
        more, self._widened = self._widened, 0
        for stream in list(self.streams.values()) if more else ():
            self.budget.charge(budget.LOOK)
            stream.window += more
            self.flush(stream)
        self._out += [frames.frame(FrameType.SETTINGS, frames.ACK, 0)] * self._unacknowledged
        self._unacknowledged = 0

    def _window_update(self, frame: Frame) -> None:
        if len(frame.payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE has not 4 bytes")
        more = int.from_bytes(frame.payload, "big") & 0x7FFFFFFF
        if frame.stream:
            stream = self.streams.get(frame.stream)
            if stream is not None:
                stream.window += more
                if not more or stream.window >= 2**31:
                    raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window grows by nothing, or above 2^31 - 1")
                self.flush(stream)
            return
        self._window += more
        if not more or self._window >= 2**31:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window grows by nothing, or above 2^31 - 1")
        while self._blocked and self._window > 0:  # those that are left stay blocked, and cost nothing
            self.flush(self._blocked.pop(next(iter(self._blocked))))

    # --- The end of a stream -----------------------------------------------------------------------------------------

    def _abandon(self, stream: Stream) -> None:
        """Notify the call that its stream ended before its answer did."""
        call, stream.call = stream.call, None
        if call is not None:
            self._guard(stream, call.lost)

    def _drop(self, stream: Stream) -> None:
        self._close(stream)
        self._abandon(stream)

    def _close(self, stream: Stream) -> None:
        stream.ended = True
        self._held -= stream.waiting + stream.kept
        stream.output.clear()
        stream.waiting = stream.kept = 0
        self.streams.pop(stream.id, None)
        self._blocked.pop(stream.id, None)
