"""An answer as far as it is here, from which any number of clients are served at their own pace."""

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
    """Fields for all clients, without those of framing and of connections; of an error, its own."""
    streamed: bool = False
    """True if the pieces go to clients as they come."""
    pieces: list[bytes] = field(default_factory=list)
    """As the engine sent them."""
    shared: list[bytes] = field(default_factory=list)
    """The same for clients for whom nothing was computed."""
    dropped: int = 0
    """Pieces that stood before the first of the lists, and that all clients have."""
    id: bytes = b""
    """The id that the engine gave the answer; empty while none is known."""

    @property
    def ends(self) -> bool:
        """True if nothing will change any more."""
        return self.state not in (SourceState.AWAITED, SourceState.COMING)


def kept_source(kept_answer: KeptAnswer) -> Source:
    """Return a kept answer as a source."""
    pieces = list(kept_answer.pieces)
    return Source(
        state=SourceState.WHOLE,
        headers=[(b"content-type", kept_answer.content_type)],
        streamed=kept_answer.content_type.startswith(b"text/event-stream"),
        pieces=pieces,
        shared=pieces,
        id=kept_answer.id,
    )
