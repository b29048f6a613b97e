"""One computation of an answer that all wait for who ask for it meanwhile.

A flight is the client of a relay, or of another router: it reads an answer as any client would, and each of its
followers gets what is here at the follower's own pace. So nobody is the leader of a flight: whoever leaves, it goes on
as long as one follower is left.
"""

from typing import Protocol

from promptgroup_contract import names
from promptgroup_router.apis.request import ApiKind
from promptgroup_router.decision.engine_headers import UNSIZED
from promptgroup_router.flights.source import Source, SourceState
from promptgroup_router.http11 import http1
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Framing, Headers, ResponseHead
from promptgroup_router.http11.reader import ResponseReader
from promptgroup_router.proxy.downstream import ActiveRequest
from promptgroup_router.response_cache.answer import MOST_BYTES, MOST_PIECES
from promptgroup_router.response_cache.rewriting import EventSplitter, id_of, marked

TICK_SECONDS = 0.5
"""Least time between two looks at the deadlines of a flight, which each follower asks for every second."""
CACHE_STATUS = frozenset((b"cache-status", b"age", names.HEADER_CACHE_KEY.encode()))
"""Fields by which another router tells how it came by the answer."""
SHARED_FIELDS = UNSIZED | {names.HEADER_SERVED_BY.encode()}
"""Fields of an answer that all of its followers get. What a group has named beside them, one client asked for."""


class Receiver(Protocol):
    """Whoever waits for the answer of a flight."""

    fields: Headers
    """Header fields that say what the cache did."""

    @property
    def at(self) -> int:
        """Number of the piece that comes next."""

    @property
    def paused(self) -> bool:
        """True if nothing more is taken for now."""

    def advance(self) -> bool:
        """Take what is here and was not taken. Return True once the answer has ended."""


class Landing(Protocol):
    """The receiver of a flight's end."""

    def landed(self) -> None:
        """Take the flight's answer, or note that there is none; nobody can join it any more."""


class Flight:
    """An answer on its way."""

    def __init__(self, kind: ApiKind | None, landing: Landing) -> None:
        """Begin without an answer.

        Args:
            kind: the API by which tokens that were not computed are marked as cached; None where callers are not told.
            landing: what becomes of the answer.
        """
        self.source = Source()
        self.complete = True
        """True unless the answer is too large to be kept, or its end cannot be seen."""
        self.followers: list[Receiver] = []
        self._kind = kind
        self._landing = landing
        self._origin: ActiveRequest | None = None
        self._reader = ResponseReader(most_head=2 * http1.MAX_HEAD)  # an engine's longest, and what a relay adds to it
        self._decoder: Chunked | None = None
        self._splitter = EventSplitter()
        self._body = bytearray()
        self._events = False
        self._size = 0
        self._over = False
        """True if the answer is too large to be kept whole: what all followers have is dropped."""
        self._held_up = False
        self._ticked = 0.0

    # --- Followers ------------------------------------------------------------------------------------------------

    @property
    def joinable(self) -> bool:
        """True if another client can get the whole answer."""
        return not self.source.ends and not self._over

    def follow(self, follower: Receiver) -> None:
        """Serve a client, too."""
        self.followers.append(follower)
        if follower.advance():
            self.followers.remove(follower)

    def depart(self, origin: ActiveRequest) -> None:
        """Name what brings the answer, which learns when nobody waits for it any more."""
        if not self.source.ends:
            self._origin = origin

    def land(self, source: Source) -> None:
        """End with an answer that is whole."""
        self._origin = None
        mine = self.source
        mine.headers, mine.streamed, mine.id = source.headers, source.streamed, source.id
        mine.pieces, mine.shared = source.pieces, source.shared
        self._end(SourceState.WHOLE)

    def left(self, follower: Receiver) -> None:
        """Forget a client that is gone; the last one ends the flight."""
        if follower in self.followers:
            self.followers.remove(follower)
        if self.followers or self.source.ends:
            self.regulate()
            return
        origin, self._origin = self._origin, None
        self._end(SourceState.CUT)
        if origin is not None:
            origin.client_left()

    def regulate(self) -> None:
        """Read on, or no more: an answer that is kept whole is read as fast as it comes, a larger one is not."""
        held_up = self._over and any(follower.paused for follower in self.followers)
        if held_up != self._held_up and self._origin is not None:
            self._held_up = held_up
            if held_up:
                self._origin.pause()
            else:
                self._origin.resume()

    def waits_for(self, follower: Receiver) -> bool:
        """Return True if others get nothing more because this client does not read."""
        return self._held_up and follower.paused and any(not receiver.paused for receiver in self.followers)

    def tick(self, now: float) -> None:
        """Enforce the deadlines of what brings the answer."""
        if self._origin is not None and now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self._origin.tick(now)

    # --- A relay's client -----------------------------------------------------------------------------------------

    @property
    def keeps_alive(self) -> bool:
        """True: a flight is never the reason for which a connection ends."""
        return True

    def write(self, data: bytes) -> None:
        """Read what a relay sends its client."""
        reader = self._reader
        started = reader.head is not None
        body = reader.feed(data)
        reader.take_interim()
        if not started and reader.head is not None:
            self.answer_began(reader.head)
        if body:
            self.answer_data(body)

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Read an error of the router."""
        self._origin = None
        source = self.source
        source.status, source.headers, source.pieces = status, headers, [body]
        self._end(SourceState.REFUSED)

    def finish(self, *, keep: bool) -> None:
        """Read the end of an answer that is whole."""
        self.answer_ended()

    def cut(self, *, visibly: bool) -> None:
        """Read the end of an answer that is not whole."""
        self._origin = None
        self._end(SourceState.CUT)

    # --- An answer's events -----------------------------------------------------------------------------------------

    def answer_began(self, head: ResponseHead) -> None:
        """Take the head."""
        source = self.source
        source.state, source.status = SourceState.COMING, head.status
        source.headers = http1.pairs(field for field in head.headers if field.name in SHARED_FIELDS)
        content_type = next((field.value for field in head.headers if field.name == b"content-type"), b"")
        self._events = source.streamed = content_type.lower().startswith(b"text/event-stream")
        if head.framing is Framing.CHUNKED:
            self._decoder = Chunked()
        elif head.framing is Framing.UNTIL_CLOSE:
            self.complete = False  # who can say that it was not cut
        if any(field.name == b"content-encoding" for field in head.headers):
            self.complete = False  # nobody asked for it, and not everybody can read it
        self._advance()

    def answer_data(self, data: bytes) -> None:
        """Take bytes of the body, in the framing that the head says."""
        if self._decoder is not None:
            content = bytearray()
            self._decoder.feed(data, content)
            data = bytes(content)
        self._size += len(data)
        if not self._over and (self._size > MOST_BYTES or len(self.source.pieces) > MOST_PIECES):
            self._go_over()
        if self._over:
            self._add(self._splitter.flush() + data)
        elif self._events:
            for event in self._splitter.take(data):
                self._add(event)
        else:
            self._body += data
            return
        self._advance()

    def answer_ended(self) -> None:
        """Take the end of a whole answer."""
        self._origin = None
        rest = bytes(self._body) + self._splitter.flush()
        if rest:
            self._add(rest)
        self._end(SourceState.WHOLE)

    def _go_over(self) -> None:
        """Treat the answer as one that is too large to keep: it goes to all followers as it comes."""
        self._over, self.complete = True, False
        self.source.streamed = True
        body, self._body = bytes(self._body), bytearray()
        if body:
            self._add(body)

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        source = self.source
        source.pieces.append(piece)
        source.shared.append(piece if self._over or self._kind is None else marked(self._kind, piece))
        if not source.id and not self._over:
            source.id = id_of(piece)

    def _advance(self) -> None:
        self.followers = [follower for follower in self.followers if not follower.advance()]
        if self._over:
            self._drop_sent()
            self.regulate()

    def _drop_sent(self) -> None:
        source = self.source
        sent = min((follower.at for follower in self.followers), default=source.dropped) - source.dropped
        if sent > 0:
            del source.pieces[:sent], source.shared[:sent]
            source.dropped += sent

    def _end(self, state: SourceState) -> None:
        self.source.state = state
        self._landing.landed()
        self._advance()
