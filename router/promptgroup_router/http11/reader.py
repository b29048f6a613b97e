"""Reads whole requests from a client's bytes, and answers from an engine's, across reads. Does no I/O."""

from dataclasses import dataclass

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11 import http1
from promptgroup_router.http11.framing import Body, Chunked, Sized, body_of, too_large
from promptgroup_router.http11.http1 import Framing, HeadBuffer, RequestHead, ResponseHead

_NO_BODY = Sized(0)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A whole request; chunks of its body are decoded."""

    head: RequestHead
    body: bytes


class RequestReader:
    """A reader of one client's requests, in order; bytes that follow a request wait for the next call."""

    __slots__ = ("_body", "_buffer", "_head", "_head_buffer", "_max_body", "_parts", "_size")

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._buffer = b""
        self._head_buffer = HeadBuffer(skip_blank_lines=True)
        self._head: RequestHead | None = None
        self._body: Sized | Chunked = _NO_BODY
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def begun(self) -> bool:
        """Whether part of a request has been received."""
        return self._head is not None or len(self._head_buffer) > 0 or len(self._buffer) > 0

    @property
    def buffered(self) -> int:
        """Number of bytes that wait behind the current request."""
        return len(self._buffer)

    @property
    def head(self) -> RequestHead | None:
        """The head of a request whose body is not whole."""
        return self._head

    @property
    def awaits_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1)."""
        return self._head is not None and self._head.expects_continue and self._size == 0

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer = self._buffer + data if self._buffer else data

    def next(self) -> HttpRequest | None:
        """Return the next request, None while it is not whole.

        Raises:
            HttpError: carries the status to answer; 413 as soon as the body is known to be too large.
        """
        if self._head is None:
            if not self._buffer:
                return None
            data, self._buffer = self._buffer, b""
            split = self._head_buffer.take(data)
            if split is None:
                return None
            head = http1.parse_request(split[0])
            self._buffer = split[1]
            if head.length > self._max_body:
                raise too_large(head.length, self._max_body)
            self._head = head
            self._body = Chunked(self._max_body) if head.framing is Framing.CHUNKED else Sized(head.length)
        self._take_body(self._body)
        if not self._body.done:
            return None
        request = HttpRequest(self._head, self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
        self._head, self._body, self._parts, self._size = None, _NO_BODY, [], 0
        return request

    def _take_body(self, body: Sized | Chunked) -> None:
        data = self._buffer
        if isinstance(body, Chunked):
            known = len(self._parts)
            used = body.feed(data, self._parts)
            self._size += sum(map(len, self._parts[known:]))
        else:
            used = body.feed(data)
            if used:
                self._parts.append(data[:used])
                self._size += used
        self._buffer = data[used:]


class ResponseReader:
    """A reader of one answer: it parses the head, then finds the end of the body. The body is not decoded."""

    __slots__ = ("_body", "_head_buffer", "_surplus", "begun", "head")

    def __init__(self) -> None:
        self._head_buffer = HeadBuffer(skip_blank_lines=False)
        self._body: Body | None = None
        self._surplus = False
        self.begun = False
        """Whether any byte has been received."""
        self.head: ResponseHead | None = None
        """None until it is whole."""

    @property
    def done(self) -> bool:
        """Whether the answer is whole."""
        return self._body is not None and self._body.done

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request."""
        return self.done and not self._surplus and self.head is not None and self.head.keep_alive

    @property
    def ends_by_close(self) -> bool:
        """Whether the end of the connection is the end of the answer."""
        return self.head is not None and self.head.framing is Framing.UNTIL_CLOSE

    def feed(self, data: bytes) -> bytes:
        """Add received bytes.

        Returns:
            The bytes that belong to the body, as received.

        Raises:
            HttpError: the engine's answer is not HTTP/1.1.
        """
        self.begun = True
        while self._body is None:
            split = self._head_buffer.take(data)
            if split is None:
                return b""
            head = http1.parse_response(split[0])
            data = split[1]
            if head.status >= 200:
                self.head = head
                self._body = body_of(head.framing, head.length)
            elif head.status == 101:
                raise HttpError(502, "the engine switched protocols, which nobody asked for")
            # any other 1xx is an interim answer: the final one follows
        used = self._body.feed(data)
        if used == len(data):
            return data
        self._surplus = True
        return data[:used]
