"""Heads of engines' answers."""

from collections.abc import Iterable

from promptgroup_router.http11.http1 import Framing, ResponseHead
from promptgroup_router.http11.lines import HeaderField


def answer_head(
    headers: Iterable[tuple[bytes, bytes]], status: int = 200, framing: Framing = Framing.CHUNKED, length: int = 0
) -> ResponseHead:
    """Return the head of an answer that has these fields, after which the connection is kept."""
    fields = [HeaderField(name, value, b"%b: %b" % (name, value)) for name, value in headers]
    return ResponseHead(status, fields, frozenset(), framing, length, keep_alive=True)
