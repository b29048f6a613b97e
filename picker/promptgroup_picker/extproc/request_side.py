"""Determines the messages that answer a gateway's request, by the mode in which it sends the body. Does no I/O.

| the gateway shows               | a body in full duplex                | a body that it holds (buffered)          |
|---------------------------------|--------------------------------------|------------------------------------------|
| head, and nothing follows       | the choice                           | the choice                               |
| head, a body or trailers follow | nothing yet                          | at once: go on                           |
| part of the body                | nothing yet; the last makes it whole | it is whole: the choice with it          |
| trailers                        | choice, body if any, the trailers    | go on; without a body there is no choice |

A gateway waits for each of them, and accepts no others: the answers depend on whether a part of a body arrived, and not
on whether the part had bytes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from promptgroup_picker.extproc import messages
from promptgroup_picker.extproc.messages import MODE_BUFFERED, MODE_FULL_DUPLEX
from promptgroup_picker.stubs.ext_proc_pb2 import HttpBody


class EndpointChoice(NamedTuple):
    """The endpoints for a request, and the fields that it has there."""

    endpoints: str
    """`host:port`, or several with commas, in the order in which they are to be tried."""
    removed: tuple[str, ...]
    """Names of fields that engines do not get."""
    more: tuple[tuple[str, bytes], ...]
    """Fields that they get as well."""
    once: bool = False
    """True if no other request has the same fields."""


class RequestSide:
    """The messages that a gateway has shown of a request."""

    __slots__ = ("mode", "parts", "trailers")

    def __init__(self) -> None:
        self.mode = MODE_FULL_DUPLEX
        """The way in which it shows the body."""
        self.parts = False
        """True once a part of the body has arrived, with or without bytes."""
        self.trailers = b""
        """The answer to trailers once they have arrived; empty without any."""

    @property
    def shows_bodies(self) -> bool:
        """True if the gateway shows the body in a way that a choice can follow."""
        return self.mode in (MODE_BUFFERED, MODE_FULL_DUPLEX)

    @property
    def is_late(self) -> bool:
        """True if no message is left that could carry a choice: the head was passed on, and no body followed."""
        return self.mode == MODE_BUFFERED and self.trailers != b"" and not self.parts

    def headed(self) -> Iterator[bytes]:
        """Yield what is owed at once for a head that does not end the request."""
        if self.mode == MODE_BUFFERED:
            yield messages.UNCHANGED["request_headers"]

    def is_whole(self, part: HttpBody) -> bool:
        """Take a part of the body. Return True if the body is whole with it."""
        self.parts = True
        return self.mode == MODE_BUFFERED or part.end_of_stream

    def chosen(self, choice: EndpointChoice, body: bytes, *, changed: bool) -> Iterator[bytes]:
        """Yield the outstanding messages once the choice is made.

        Args:
            choice: the endpoints of the request.
            body: the body that the engine gets.
            changed: whether it is another one than the gateway has shown.
        """
        endpoints, removed, more, once = choice
        if self.mode == MODE_BUFFERED and self.parts:
            yield messages.picked_with_body(endpoints, body if changed else None, removed, more)
        else:
            yield messages.picked(endpoints, removed, more, once=once)
            if self.parts:
                yield from messages.request_body(body, end=not self.trailers)
        if self.trailers:
            yield self.trailers
            self.trailers = b""
