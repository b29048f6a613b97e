"""The streams that every command prints to: text from others reaches no terminal as control sequences."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from promptgroup_operator.base.printable import printable


class PlainStream:
    """A text stream whose control characters are escapes, but for tabs and line feeds; all else is the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text. Return the number of its characters."""
        self._stream.write(printable(text))
        return len(text)

    def control(self, sequence: str) -> None:
        """Write a control sequence of the program's own."""
        self._stream.write(sequence)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextmanager
def plain_streams() -> Iterator[None]:
    """Print to plain streams for the time of a `with`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PlainStream(sys.stdout), PlainStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def send_control(sequence: str) -> None:
    """Write a control sequence of the program's own, if standard output is one of `plain_streams`."""
    if isinstance(sys.stdout, PlainStream):
        sys.stdout.control(sequence)
