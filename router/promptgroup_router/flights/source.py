"""The part of an answer that has arrived, from which any number of clients are served, each at its own pace."""

import enum
from dataclasses import dataclass, field

from promptgroup_router.http11.http1 import Headers
from promptgroup_router.response_cache.answer import KeptAnswer


class SourceState(enum.Enum):
    """The states of an answer."""

    AWAITED = "nothing of it is here"
    COMING = "its head and a part of it are here"
    WHOLE = "all of it is here"
    CUT = "no more of it will come"
    REFUSED = "there is an error of the router instead"


@dataclass(slots=True)
class Source:
    """An answer, in pieces: events of a stream, or parts of a body."""

    state: SourceState = SourceState.AWAITED
    status: int = 200
    headers: Headers = field(default_factory=list)
    """Header fields for all clients, without framing and connection fields; for an error, the error's own."""
    streamed: bool = False
    """True if the pieces are sent to clients as they arrive."""
    pieces: list[bytes] = field(default_factory=list)
    """As the engine sent them."""
    shared: list[bytes] = field(default_factory=list)
    """The same pieces for clients for which the answer was not computed: tokens may be marked as cached in them."""
    dropped: int = 0
    """Number of pieces that were removed from the front of the lists, since all clients have received them."""
    id: bytes = b""
    """The id that the engine gave the answer; empty until one has arrived."""

    @property
    def ends(self) -> bool:
        """True if the state is final."""
        return self.state not in (SourceState.AWAITED, SourceState.COMING)


def source_of(cached_answer: KeptAnswer) -> Source:
    """Return a cached answer as a source."""
    pieces = list(cached_answer.pieces)
    return Source(
        state=SourceState.WHOLE,
        headers=[(b"content-type", cached_answer.content_type)],
        streamed=cached_answer.content_type.startswith(b"text/event-stream"),
        pieces=pieces,
        shared=pieces,
        id=cached_answer.id,
    )
