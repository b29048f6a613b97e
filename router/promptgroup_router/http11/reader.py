"""Reads whole requests from a client's bytes, and answers from an engine's, across reads."""

from dataclasses import dataclass

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11 import http1
from promptgroup_router.http11.framing import Chunked, Sized, UntilClose, body_of, too_large
from promptgroup_router.http11.http1 import MAX_HEAD, Framing, HeadBuffer, RequestHead, ResponseHead

MAX_INTERIM = 100
"""Most interim answers (1xx) before a final one."""

COPIED_BYTES = 262_144
"""A longer body that arrived in several reads stays in the buffer that gathered it: a copy takes milliseconds."""

_NO_BODY = Sized(0)


@dataclass(slots=True)
class HttpRequest:
    """A whole request; chunks of its body are decoded."""

    head: RequestHead
    body: bytes | bytearray


class RequestReader:
    """A reader of one client's requests, in order; bytes that follow a request wait for the next call."""

    __slots__ = ("_at", "_body", "_buffer", "_content", "_head", "_head_buffer", "_max_body")

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._buffer = b""
        self._at = 0
        """Position in the buffer of the first byte that was not taken."""
        self._head_buffer = HeadBuffer(skip_blank_lines=True)
        self._head: RequestHead | None = None
        self._body: Sized | Chunked = _NO_BODY
        self._content = bytearray()
        """The body as far as it was received, chunks decoded."""

    @property
    def begun(self) -> bool:
        """True if part of a request has been received."""
        return self._head is not None or len(self._head_buffer) > 0 or self.buffered > 0

    @property
    def buffered(self) -> int:
        """Number of bytes that wait behind the current request."""
        return len(self._buffer) - self._at

    @property
    def waiting(self) -> int:
        """Number of buffered bytes: of a head that is not whole, and behind the current request."""
        return len(self._head_buffer) + self.buffered

    @property
    def body_bytes(self) -> int:
        """Number of bytes of a body that is not whole."""
        return len(self._content)

    @property
    def head(self) -> RequestHead | None:
        """The head of a request whose body is not whole."""
        return self._head

    @property
    def awaits_continue(self) -> bool:
        """True if the client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1)."""
        return self._head is not None and self._head.expects_continue and not self._content

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer = self._buffer[self._at :] + data if self.buffered else data
        self._at = 0

    def next(self) -> HttpRequest | None:
        """Return the next request, None while it is not whole.

        Raises:
            HttpError: carries the status to answer; 413 as soon as the body exceeds the limit.
        """
        if self._head is None:
            if not self.buffered:
                return None
            result = self._head_buffer.take(self._buffer, self._at)
            if result is None:
                self._drop_buffer()
                return None
            text, self._at = result
            head = http1.parse_request(text)
            self._head = head
            if head.length > self._max_body:
                raise too_large(head.length, self._max_body)
            self._body = Chunked(self._max_body) if head.framing is Framing.CHUNKED else Sized(head.length)
        head, body = self._head, self._body
        if isinstance(body, Sized) and not self._content and head.length <= self.buffered:
            # most bodies arrive in one read: these are copied once
            content: bytes | bytearray | None = self._buffer[self._at : self._at + head.length]
            self._at += head.length
        else:
            self._take_body(body)
            content = None
        if self.buffered == 0:
            self._drop_buffer()
        if content is None:
            if not body.done:
                return None
            content = self._content if len(self._content) > COPIED_BYTES else bytes(self._content)
            self._content = bytearray()
        self._head, self._body = None, _NO_BODY
        return HttpRequest(head, content)

    def _take_body(self, body: Sized | Chunked) -> None:
        if isinstance(body, Chunked):
            self._at += body.feed(self._buffer, self._content, self._at)
        elif not body.done:
            begin = self._at
            self._at += body.take(self.buffered)
            self._content += self._buffer[begin : self._at]

    def _drop_buffer(self) -> None:
        self._buffer, self._at = b"", 0


_END = b"\r\n"
"""The line that ends a body in chunks."""


class ResponseReader:
    """A reader of answers: it parses the head, then finds the end of the body. The body is not decoded."""

    __slots__ = ("_body", "_head_buffer", "_interim", "_interims", "_surplus", "begun", "head")

    def __init__(self, *, most_head: int = MAX_HEAD) -> None:
        """Wait for the first byte of an answer, whose head has at most so many bytes."""
        self._head_buffer = HeadBuffer(skip_blank_lines=False, most=most_head)
        self._body: Sized | Chunked | UntilClose | None = None
        self._surplus = False
        self._interim: list[ResponseHead] = []
        self._interims = 0
        self.begun = False
        """True if any byte has been received."""
        self.head: ResponseHead | None = None
        """None until it is whole."""

    def restart(self) -> None:
        """Begin the next answer of a connection that may carry another request."""
        self._body = None
        self._interims = 0
        self.begun = False
        self.head = None

    @property
    def done(self) -> bool:
        """True if the answer is whole."""
        return self._body is not None and self._body.done

    @property
    def between_chunks(self) -> bool:
        """True if what was received does not end within a chunk."""
        body = self._body
        return not isinstance(body, Chunked) or body.between

    @property
    def reusable(self) -> bool:
        """True if the connection may carry another request."""
        return self.done and not self._surplus and self.head is not None and self.head.keep_alive

    @property
    def ends_by_close(self) -> bool:
        """True if the end of the connection is the end of the answer."""
        return self.head is not None and self.head.framing is Framing.UNTIL_CLOSE

    @property
    def has_interim(self) -> bool:
        """True if interim answers (1xx) were received since they were last taken."""
        return len(self._interim) > 0

    def take_interim(self) -> list[ResponseHead]:
        """Return the interim answers (1xx) that were received since the last call."""
        interim, self._interim = self._interim, []
        return interim

    def feed(self, data: bytes) -> bytes:
        """Add received bytes.

        Returns:
            The bytes that belong to the body, as received but for trailers and extensions of chunks: clients get other
            fields of an engine by name only, and in the head.

        Raises:
            HttpError: the engine's answer is not HTTP/1.1.
        """
        self.begun = True
        while self._body is None:
            result = self._head_buffer.take(data)
            if result is None:
                return b""
            head = http1.parse_response(result[0])
            data = data[result[1] :]
            if head.status >= 200:
                self.head = head
                self._body = body_of(head.framing, head.length)
            elif head.status == 101:
                raise HttpError(502, "the engine switched protocols, which nobody asked for")
            else:
                self._interims += 1
                if self._interims > MAX_INTERIM:
                    raise HttpError(502, f"the engine sent more than {MAX_INTERIM} interim answers")
                self._interim.append(head)
        body = self._body
        over, used = body.done, body.feed(data)
        if used < len(data):
            self._surplus = True
            data = data[:used]
        if over or not isinstance(body, Chunked):
            return data
        if body.last >= 0 and not (body.done and used == body.last + len(_END)):
            data = data[: body.last] + (_END if body.done else b"")
        return _without(data, body.extensions) if body.extensions else data


def _without(data: bytes, parts: list[tuple[int, int]]) -> bytes:
    """Return data without the parts from one place to another."""
    ends = [0, *(end for _, end in parts)]
    starts = [*(start for start, _ in parts), len(data)]
    return b"".join(data[end:start] for end, start in zip(ends, starts, strict=True))
