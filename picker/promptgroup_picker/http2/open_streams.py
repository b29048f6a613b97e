"""The streams of one connection that are open, and the calls that handle them.

A stream is open until both sides have ended it. An error in a call, the handler's own faults included, ends that call
alone.
"""

from collections.abc import Callable

from promptgroup_picker.http2 import budget, fields, frames
from promptgroup_picker.http2.budget import Budget
from promptgroup_picker.http2.field_blocks import FieldBlock
from promptgroup_picker.http2.frame_sender import FrameSender
from promptgroup_picker.http2.frames import ErrorCode, Frame, FrameType, Http2Error
from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus
from promptgroup_picker.http2.stream import Opener, Stream

MAX_RESETS = 2000
"""Most streams that a peer may open and reset before the connection is closed, less those that ended well."""
QUIET_TICKS = 60
"""Seconds after which a stream is reset that has brought no message, or whose output does not get on."""
FAILED = "the picker failed: its log says why"
"""The message of a call that ended by a fault of the picker's own."""
_NO_METHOD = fields.refusal(GrpcStatus.UNIMPLEMENTED, "there is no such method")


class OpenStreams:
    """The open streams of one connection."""

    def __init__(
        self, opener: Opener, max_message: int, sender: FrameSender, wake: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:  # fmt: skip
        self._opener = opener
        self._max_message = max_message
        self._sender = sender
        self._wake = wake
        self._failed = failed
        self.open: dict[int, Stream] = {}
        """Number → stream."""
        self.buffered = 0
        """Bytes of messages that are not whole."""
        self.budget = Budget()
        self.peer = ""
        self._resets = 0

    def admit(self, peer: str, account: Budget) -> None:
        """Take the peer's address and the account of the connection's costs, once they are available."""
        self.peer, self.budget = peer, account

    # --- What is sent ----------------------------------------------------------------------------------------------

    def send(self, stream: Stream, data: bytes) -> None:
        """Send data on a stream, as far as the windows allow; the rest waits."""
        self._sender.queue(stream, data)
        self.flush(stream)

    def flush(self, stream: Stream) -> None:
        """Send what waits on a stream, as far as the windows allow."""
        if self._sender.write(stream):
            if stream.served:
                self._pay_back()
            self._close(stream)

    def wake(self) -> None:
        """Have the output taken that a call has left."""
        self._wake()

    def flush_blocked(self) -> None:
        """Send what has waited for the window of the connection."""
        while (stream := self._sender.next_blocked()) is not None:
            self.flush(stream)

    def widen(self, more: int) -> None:
        """Widen the windows of all streams, and send what has waited for them."""
        for stream in list(self.open.values()) if more else ():
            self.budget.charge(budget.LOOK)
            stream.window += more
            self.flush(stream)

    # --- What is received ------------------------------------------------------------------------------------------

    def begin(self, block: FieldBlock) -> None:
        """Open a stream, and call the handler of its path."""
        stream = Stream(self, block.stream, self._sender.new_window, self._max_message)
        stream.opening = min(block.cost, budget.MOST_FIELDS_PAID)
        stream.call = self._opener(block.path, stream)
        if stream.call is None:
            flags = frames.END_HEADERS | frames.END_STREAM
            self._sender.add(frames.frame(FrameType.HEADERS, flags, stream.id, _NO_METHOD))
            if not block.ends_stream:
                self._sender.add(frames.reset(stream.id, ErrorCode.NO_ERROR))
            return
        self.open[stream.id] = stream
        if block.ends_stream:
            self.half_close(stream)

    def receive(self, stream: Stream, frame: Frame) -> None:
        """Take a frame of data.

        Raises:
            Http2Error: the peer may not send it.
        """
        if stream.half_closed:
            raise Http2Error(ErrorCode.STREAM_CLOSED, f"data behind the end of stream {frame.stream}")
        stream.received(len(frame.payload))
        data = frames.content(frame)
        if stream.trailers is None:  # else the call has ended, and later data is dropped
            self._guard(stream, lambda: self._messages(stream, data))
        if stream.ended:
            return
        waiting = stream.reader.waiting
        self.buffered += waiting - stream.buffered
        stream.buffered = waiting
        if frame.flags & frames.END_STREAM:
            self.half_close(stream)
        else:
            self._sender.grant(stream)

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

    def half_close(self, stream: Stream) -> None:
        """Take the end of the peer's messages.

        Raises:
            Http2Error: they have ended before.
        """
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

    # --- The end of a stream -----------------------------------------------------------------------------------------

    def reset(self, stream: Stream) -> None:
        """End a stream that the peer resets.

        Raises:
            Http2Error: the peer opens and resets too many.
        """
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

    def drop_all(self) -> None:
        """End all streams: the connection is closed, or cannot be used."""
        for stream in list(self.open.values()):
            self._drop(stream)

    def tick(self) -> None:
        """Reset streams that are quiet for too long; called every second."""
        for stream in list(self.open.values()):
            if stream.heard and not stream.waiting:
                stream.quiet = 0
                continue
            stream.quiet += 1
            if stream.quiet > QUIET_TICKS:
                self._sender.add(frames.reset(stream.id, ErrorCode.CANCEL))
                self._drop(stream)

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
        self.buffered -= stream.buffered
        stream.buffered = 0
        self._sender.forget(stream)
        self.open.pop(stream.id, None)
