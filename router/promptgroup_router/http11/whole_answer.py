"""Collects a server's whole answer, with a limit on its bytes."""

from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Framing
from promptgroup_router.http11.reader import ResponseReader


class AnswerError(Exception):
    """There is no usable answer. The message continues after the server's name, and contains no bytes of the answer."""


class NothingSentError(AnswerError):
    """The server closed the connection before the first byte."""


class WholeAnswer:
    """A reader of one answer to its end, chunks decoded."""

    __slots__ = ("_any_status", "_chunks", "_content", "_limit", "_reader")

    def __init__(self, limit: int, *, any_status: bool = False) -> None:
        """Begin with nothing received.

        Args:
            limit: most bytes of the content.
            any_status: whether answers with another status than 200 are taken.
        """
        self._reader = ResponseReader()
        self._chunks = Chunked()
        self._content = bytearray()
        self._limit = limit
        self._any_status = any_status

    @property
    def reusable(self) -> bool:
        """True if the connection may carry another request."""
        return self._reader.reusable

    @property
    def status(self) -> int:
        """The status; 0 until the head is whole."""
        return 0 if self._reader.head is None else self._reader.head.status

    @property
    def content(self) -> bytes:
        """The content as far as it was received."""
        return bytes(self._content)

    def feed(self, data: bytes) -> bool:
        """Add received bytes; an empty part means that the server closed the connection.

        Returns:
            True once the answer is whole.

        Raises:
            AnswerError: the answer was cut, is too long, or has a status that is not accepted.
            HttpError: what was sent is not HTTP/1.1.
        """
        reader = self._reader
        if not data:
            if reader.ends_by_close:
                return True
            if not reader.begun:
                raise NothingSentError("closed the connection without an answer")
            raise AnswerError("closed the connection within its answer")
        part = reader.feed(data)
        head = reader.head
        if head is None:
            return False
        if head.status != 200 and not self._any_status:
            raise AnswerError(f"answered with status {head.status}")
        if head.framing is Framing.CHUNKED:
            self._chunks.feed(part, self._content)
        else:
            self._content += part
        if max(len(self._content), head.length) > self._limit:
            raise AnswerError(f"answered with more than {self._limit} bytes")
        return reader.done
