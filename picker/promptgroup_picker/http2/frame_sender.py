"""The frames that a connection is to send, and the windows that say how much of its streams' data may be sent."""

from promptgroup_picker.http2 import fields, frames
from promptgroup_picker.http2.frames import ErrorCode, FrameType, Http2Error
from promptgroup_picker.http2.stream import WINDOW, Stream

MAX_STREAMS = 4096
"""Most calls at the same time on one connection; a gateway has a few connections."""
CONNECTION_WINDOW = 2**24
"""Bytes that a peer may send on all streams of a connection together before it must wait."""
DEFAULT_WINDOW = 65535


class FrameSender:
    """The output of one connection: control frames at once, data as far as the windows allow."""

    def __init__(self) -> None:
        self.waiting = 0
        """Bytes of the streams' data that wait for windows."""
        self.new_window = DEFAULT_WINDOW
        """Bytes that may be sent on a new stream."""
        self._window = DEFAULT_WINDOW
        """Bytes that may be sent on all streams together."""
        self._initial_window = DEFAULT_WINDOW
        """The same with all SETTINGS of this turn, which reach the streams at its end."""
        self._unacknowledged = 0
        """SETTINGS of this turn: data that is sent before their ACK counts by what was agreed before them."""
        self._unread = 0
        """Bytes received for which the peer got no window yet."""
        self._blocked: dict[int, Stream] = {}
        """Streams with data that waits for the window of the connection, in order."""
        self._frames: list[bytes] = [
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

    def add(self, frame: bytes) -> None:
        """Add a frame that needs no window."""
        self._frames.append(frame)

    def take(self) -> list[bytes]:
        """Remove and return the frames, in order."""
        taken, self._frames = self._frames, []
        return taken

    @property
    def has_frames(self) -> bool:
        """True if there is something to send."""
        return bool(self._frames)

    # --- Data of a stream ------------------------------------------------------------------------------------------

    def queue(self, stream: Stream, data: bytes) -> None:
        """Queue data of a stream."""
        stream.output.append(data)
        stream.waiting += len(data)
        self.waiting += len(data)

    def write(self, stream: Stream) -> bool:
        """Send what waits on a stream, as far as the windows allow.

        Returns:
            True once its last frame is sent.
        """
        if not stream.answered and (stream.output or stream.trailers is not None):
            stream.answered = True
            self.add(frames.frame(FrameType.HEADERS, frames.END_HEADERS, stream.id, fields.OK_FIELDS))
        output = stream.output
        while output:
            room = min(stream.window, self._window, frames.SENT_FRAME)
            if room <= 0:
                if stream.window > 0:
                    self._blocked[stream.id] = stream
                return False
            piece = output[0]
            if len(piece) > room:
                view = memoryview(piece)  # a long message is sent in many frames, and is not copied for each
                output[0], piece = view[room:], view[:room]
            else:
                output.popleft()
            stream.window -= len(piece)
            self._window -= len(piece)
            stream.waiting -= len(piece)
            self.waiting -= len(piece)
            stream.quiet = 0
            self.add(frames.frame(FrameType.DATA, 0, stream.id, piece))
        if stream.trailers is not None and not stream.ended:
            flags = frames.END_HEADERS | frames.END_STREAM
            self.add(frames.frame(FrameType.HEADERS, flags, stream.id, stream.trailers))
            if not stream.half_closed:
                # the peer need not send the rest of a call that is answered (RFC 9113 section 8.1)
                self.add(frames.reset(stream.id, ErrorCode.NO_ERROR))
            return True
        self.grant(stream)
        return False

    def grant(self, stream: Stream) -> None:
        """Let the peer send more on a stream, where it may."""
        if not stream.half_closed and (more := stream.grant()):
            self.add(frames.window_update(stream.id, more))

    def forget(self, stream: Stream) -> None:
        """Drop the data of a stream that has ended."""
        self.waiting -= stream.waiting
        stream.output.clear()
        stream.waiting = 0
        self._blocked.pop(stream.id, None)

    # --- Windows ---------------------------------------------------------------------------------------------------

    def received(self, size: int) -> None:
        """Let the peer send more on the connection, once it has sent a part of its window."""
        self._unread += size
        if self._unread > CONNECTION_WINDOW // 4:
            self.add(frames.window_update(0, self._unread))
            self._unread = 0

    def widen(self, more: int) -> None:
        """Widen the window of the connection.

        Raises:
            Http2Error: it grows by nothing, or too much.
        """
        self._window += more
        if not more or self._window >= 2**31:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window grows by nothing, or above 2^31 - 1")

    def next_blocked(self) -> Stream | None:
        """Remove and return the next stream that waits, if the window is open; the others stay, and cost nothing."""
        return self._blocked.pop(next(iter(self._blocked))) if self._blocked and self._window > 0 else None

    def set_initial_window(self, window: int | None) -> None:
        """Take SETTINGS of the peer, which name the window of streams or do not."""
        self._unacknowledged += 1
        if window is not None:
            self._initial_window = window

    def agree(self) -> int:
        """Make the SETTINGS of this turn those of new streams. Return the growth of the open streams' windows."""
        more, self.new_window = self._initial_window - self.new_window, self._initial_window
        return more

    def acknowledge(self) -> None:
        """Acknowledge the SETTINGS of this turn."""
        self._frames += [frames.frame(FrameType.SETTINGS, frames.ACK, 0)] * self._unacknowledged
        self._unacknowledged = 0
