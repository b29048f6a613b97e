"""One computation of an answer, shared by all clients that request it meanwhile.

A flight is the client of a relay, or of another router: it reads an answer as any client would, and serves it to each
of its followers at the follower's own pace. No follower leads a flight: it continues as long as one follower is left.
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
"""Least time between two checks of a flight's deadlines, which each follower requests every second."""
CACHE_STATUS = frozenset((b"cache-status", b"age", names.HEADER_CACHE_KEY.encode()))
"""Header fields in which another router reports the result of its cache."""
SHARED_FIELDS = UNSIZED | {names.HEADER_SERVED_BY.encode()}
"""Header fields of an answer that all followers get. Further fields that a group lists concern one client's request."""


class Receiver(Protocol):
    """A follower that waits for the answer of a flight."""

    fields: Headers
    """Header fields that report the result of the cache."""

    @property
    def at(self) -> int:
        """Number of the next piece."""

    @property
    def paused(self) -> bool:
        """True if the follower accepts no data for now."""

    def advance(self) -> bool:
        """Process the pieces that have arrived since. Return True once the answer has ended."""


class Landing(Protocol):
    """The object that is notified of a flight's end."""

    def landed(self) -> None:
        """Process the flight's answer, or record that there is none; no client can join the flight any more."""


class Flight:
    """An answer in progress."""

    def __init__(self, kind: ApiKind | None, landing: Landing) -> None:
        """Begin without an answer.

        Args:
            kind: the API by which tokens that were not computed are marked as cached; None where callers do not get
                exact counts of cached tokens.
            landing: is notified of the end.
        """
        self.source = Source()
        self.complete = True
        """False if the answer is too large for the cache, its end cannot be verified, or it has a content coding."""
        self.followers: list[Receiver] = []
        self._kind = kind
        self._landing = landing
        self._origin: ActiveRequest | None = None
        self._reader = ResponseReader(most_head=2 * http1.MAX_HEAD)  # an engine's longest, and a relay's additions
        self._decoder: Chunked | None = None
        self._splitter = EventSplitter()
        self._body = bytearray()
        self._events = False
        self._size = 0
        self._over = False
        """True if the answer is too large to be held whole: pieces that all followers have received are dropped."""
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
        """Set the origin of the answer, which is notified when no client waits for the answer any more."""
        if not self.source.ends:
            self._origin = origin

    def land(self, source: Source) -> None:
        """End with a complete answer."""
        self._origin = None
        mine = self.source
        mine.headers, mine.streamed, mine.id = source.headers, source.streamed, source.id
        mine.pieces, mine.shared = source.pieces, source.shared
        self._end(SourceState.WHOLE)

    def left(self, follower: Receiver) -> None:
        """Remove a client that has left; the last one ends the flight."""
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
        """Pause or resume reading: an answer too large to be held whole is not read while a client is paused."""
        held_up = self._over and any(follower.paused for follower in self.followers)
        if held_up != self._held_up and self._origin is not None:
            self._held_up = held_up
            if held_up:
                self._origin.pause()
            else:
                self._origin.resume()

    def waits_for(self, follower: Receiver) -> bool:
        """Return True if other clients get no more data because this client does not read."""
        return self._held_up and follower.paused and any(not receiver.paused for receiver in self.followers)

    def tick(self, now: float) -> None:
        """Enforce the deadlines of the answer's origin."""
        if self._origin is not None and now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self._origin.tick(now)

    # --- A relay's client -----------------------------------------------------------------------------------------

    @property
    def keeps_alive(self) -> bool:
        """True: a flight is never the reason for which a connection ends."""
        return True

    def write(self, data: bytes) -> None:
        """Process the bytes that a relay sends its client."""
        reader = self._reader
        started = reader.head is not None
        body = reader.feed(data)
        reader.take_interim()
        if not started and reader.head is not None:
            self.answer_began(reader.head)
        if body:
            self.answer_data(body)

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Process an error of the router."""
        self._origin = None
        source = self.source
        source.status, source.headers, source.pieces = status, headers, [body]
        self._end(SourceState.REFUSED)

    def finish(self, *, keep: bool) -> None:
        """Process the end of a complete answer."""
        self.answer_ended()

    def cut(self, *, visibly: bool) -> None:
        """Process the end of an incomplete answer."""
        self._origin = None
        self._end(SourceState.CUT)

    # --- An answer's events -----------------------------------------------------------------------------------------

    def answer_began(self, head: ResponseHead) -> None:
        """Process the head."""
        source = self.source
        source.state, source.status = SourceState.COMING, head.status
        source.headers = http1.pairs(field for field in head.headers if field.name in SHARED_FIELDS)
        content_type = next((field.value for field in head.headers if field.name == b"content-type"), b"")
        self._events = source.streamed = content_type.lower().startswith(b"text/event-stream")
        if head.framing is Framing.CHUNKED:
            self._decoder = Chunked()
        elif head.framing is Framing.UNTIL_CLOSE:
            self.complete = False  # a complete body and a lost connection look the same
        if any(field.name == b"content-encoding" for field in head.headers):
            self.complete = False  # no coding was requested, and not all clients can decode it
        self._advance()

    def answer_data(self, data: bytes) -> None:
        """Process bytes of the body, in the framing that the head declares."""
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
        """Process the end of a complete answer."""
        self._origin = None
        rest = bytes(self._body) + self._splitter.flush()
        if rest:
            self._add(rest)
        self._end(SourceState.WHOLE)

    def _go_over(self) -> None:
        """Treat the answer as too large to be held whole: it is passed to all followers as it arrives."""
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
