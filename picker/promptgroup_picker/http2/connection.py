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

from collections.abc import Callable
from math import inf

from promptgroup_picker.http2 import budget, frames
from promptgroup_picker.http2.budget import Budget
from promptgroup_picker.http2.field_blocks import FieldBlock, FieldBlocks
from promptgroup_picker.http2.frame_sender import MAX_STREAMS, FrameSender
from promptgroup_picker.http2.frames import ErrorCode, Frame, FrameReader, FrameType, Http2Error
from promptgroup_picker.http2.open_streams import OpenStreams
from promptgroup_picker.http2.stream import Opener

ANY_STREAM = 2**31 - 1
"""The highest number of a stream."""
DRAINING = b"draining"
"""The bytes of the PING that follows the first GOAWAY."""


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
        self._reader = FrameReader()
        self._fields = FieldBlocks()
        self._sender = FrameSender()
        self.streams = OpenStreams(opener, max_message, self._sender, wake, failed)
        self.budget = self.streams.budget
        self.more = False
        """True if bytes are here that no turn has read."""
        self._last = 0
        """The highest stream that was opened."""
        self._leaving = False
        """True once GOAWAY was sent, so that the peer opens no more streams."""
        self._refuses = False
        """True once it has learned that, so that streams which it opens are refused."""
        self.full = False
        """True while streams are refused since there are too many on all connections."""
        self.closed = False

    def admit(self, peer: str, account: Budget) -> None:
        """Take the peer's address and the account of the connection's costs, once they are available."""
        self.budget = account
        self.streams.admit(peer, account)

    def take(self) -> list[bytes]:
        """Remove and return the output, in order."""
        return self._sender.take()

    @property
    def begun(self) -> bool:
        """True once the peer has begun to speak HTTP/2."""
        return self._reader.begun

    @property
    def held(self) -> int:
        """Number of buffered bytes: of frames, fields and messages that are not whole, and output that waits."""
        return self.streams.buffered + self._sender.waiting + self._reader.waiting + self._fields.waiting

    @property
    def has_output(self) -> bool:
        """True if there is something to send."""
        return self._sender.has_frames

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
        self._sender.add(frames.goaway(self._last, code))
        self.lost()

    @property
    def drained(self) -> bool:
        """True once no stream is open and none is taken."""
        return self._refuses and not self.streams.open

    def drain(self) -> None:
        """Ask the peer to open no more streams. Those that it opens before it has learned that are taken."""
        if not self._leaving:
            self._leaving = True
            self._sender.add(frames.goaway(ANY_STREAM, ErrorCode.NO_ERROR))
            self._sender.add(frames.frame(FrameType.PING, 0, 0, DRAINING))

    def refuse(self) -> None:
        """Take no more streams, whether or not the peer has learned that; those that are open go on."""
        if not self._refuses:
            self._leaving = self._refuses = True
            self._sender.add(frames.goaway(self._last, ErrorCode.NO_ERROR))

    def lost(self) -> None:
        """End all streams: the connection is closed, or cannot be used."""
        self.closed, self.more = True, False
        self._reader.drop()
        self._fields.drop()
        self.streams.drop_all()

    def tick(self) -> bool:
        """Reset streams that are quiet for too long; called every second.

        Returns:
            True if the connection ends since its frames cost too much.
        """
        if self.budget.tick() and not self.closed:
            self._fail(ErrorCode.ENHANCE_YOUR_CALM)
            return True
        self.streams.tick()
        return False

    # --- What is received ------------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        self._fields.check(frame)
        match frame.type:
            case FrameType.DATA:
                self._data(frame)
            case FrameType.HEADERS:
                self._take_fields(self._fields.begin(frame))
            case FrameType.CONTINUATION:
                self._take_fields(self._fields.go_on(frame))
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

    def _take_fields(self, block: FieldBlock | None) -> None:
        if block is None:
            return
        self.budget.charge(block.cost)
        number = block.stream
        stream = self.streams.open.get(number)
        if stream is not None:
            self.streams.half_close(stream)  # trailers
            return
        if number % 2 == 0:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a client opens stream {number}")
        if number <= self._last:
            return  # trailers of a stream that was ended
        self._last = number
        self.budget.charge(budget.STREAM)
        if self._refuses or self.full or len(self.streams.open) >= MAX_STREAMS:
            self._sender.add(frames.reset(number, ErrorCode.REFUSED_STREAM))
        else:
            self.streams.begin(block)

    def _data(self, frame: Frame) -> None:
        self._sender.received(len(frame.payload))
        stream = self.streams.open.get(frame.stream)
        if stream is not None:
            self.streams.receive(stream, frame)
        elif frame.stream == 0 or frame.stream > self._last:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"data of stream {frame.stream}, which was not opened")
        # else it was on its way when the stream was ended

    def _reset(self, frame: Frame) -> None:
        stream = self.streams.open.get(frame.stream)
        if stream is not None:
            self.streams.reset(stream)

    def _ping(self, frame: Frame) -> None:
        if len(frame.payload) != 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "PING has not 8 bytes")
        if not frame.flags & frames.ACK:
            self._sender.add(frames.frame(FrameType.PING, frames.ACK, 0, frame.payload))
        elif self._leaving and frame.payload == DRAINING:
            self.refuse()

    def _settings(self, frame: Frame) -> None:
        if frame.flags & frames.ACK:
            return
        self.budget.charge(len(frame.payload) / budget.SETTINGS_BYTES_A_UNIT)
        values = frames.read_settings(frame.payload)
        self._sender.set_initial_window(values.get(frames.SETTINGS_INITIAL_WINDOW_SIZE))

    def _agree(self) -> None:
        """Let a change of the initial window reach the open streams: once a turn, however often it was changed."""
        self.streams.widen(self._sender.agree())
        self._sender.acknowledge()

    def _window_update(self, frame: Frame) -> None:
        if len(frame.payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE has not 4 bytes")
        more = int.from_bytes(frame.payload, "big") & 0x7FFFFFFF
        if not frame.stream:
            self._sender.widen(more)
            self.streams.flush_blocked()
            return
        stream = self.streams.open.get(frame.stream)
        if stream is not None:
            stream.window += more
            if not more or stream.window >= 2**31:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window grows by nothing, or above 2^31 - 1")
            self.streams.flush(stream)
