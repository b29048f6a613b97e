"""Serves one client from a shared source. Each client has its own pace, its own ids and its own framing."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from promptgroup_router.apis.errors import ID_FIELDS, with_request_id
from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.flights.source import Source, SourceState
from promptgroup_router.http11 import http1
from promptgroup_router.http11.http1 import Headers
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ClientConnection
from promptgroup_router.proxy.response import REQUEST_ID, STATUS_LINES, connection_lines
from promptgroup_router.response_cache.rewriting import new_id, with_id

STALL_SECONDS = 10.0
"""Time for which a client that reads nothing may hold up others who share its answer."""
PEER_STALL_SECONDS = 3 * STALL_SECONDS
"""The same for another router, which must first determine which of its own clients reads too slowly."""


class Shared(Protocol):
    """The owner of a source that several clients share."""

    def left(self, follower: "Follower") -> None:
        """Remove a client that has left."""

    def regulate(self) -> None:
        """Pause or resume reading: a client has begun to read too slowly, or has caught up."""

    def waits_for(self, follower: "Follower") -> bool:
        """Return True if other clients get no more data because this client does not read."""

    def tick(self, now: float) -> None:
        """Enforce deadlines; called for each client every second."""


class Follower:
    """A request that is served from a source."""

    __slots__ = ("_at", "_began", "_begun", "_chunked", "_client", "_clock", "_ended", "_group", "_keep", "_metrics",
                 "_minor", "_new_id", "_patience", "_paused_at", "_request_id", "_shared", "_source", "_tail",
                 "computed", "counted", "fields", "paused")  # fmt: skip

    def __init__(
        self,
        client: ClientConnection,
        request: HttpRequest,
        source: Source,
        *,
        fields: Headers,
        request_id: bytes,
        answer_id: bytes,
        group: str,
        metrics: Metrics,
        clock: Callable[[], float],
        shared: Shared | None = None,
        patience: float = STALL_SECONDS,
        tail: Tail | None = None,
        ended: Callable[[str, Usage | None], None] | None = None,
    ) -> None:
        """Begin with nothing sent.

        Args:
            client: the connection.
            request: the request that it has sent.
            source: the answer.
            fields: header fields that report the result of the cache.
            request_id: for the client.
            answer_id: part of the answer's new id that no other answer has.
            group: label of metrics.
            metrics: of the router.
            clock: monotonic seconds.
            shared: the owner of the source; None for a cached answer.
            patience: seconds for which the client may hold up others who share its answer.
            tail: reads the usage at the end of the answer, for `ended`; None where the usage is not needed.
            ended: called once the request has ended, unless a relay counts it, with the event for the access log and
                the usage that the answer reports.
        """
        self._client = client
        self._source = source
        self._request_id = request_id
        self._new_id = answer_id
        self._group = group
        self._metrics = metrics
        self._clock = clock
        self._shared = shared
        self._patience = patience
        self._tail = tail
        self._ended = ended
        self._began = clock()
        self._minor = request.head.minor
        self._keep = False
        """True if the head of the answer keeps the connection open."""
        self._at = 0
        """Number of the piece that is sent next."""
        self._begun = False
        self._chunked = False
        self.fields = fields
        """Header fields that report the result of the cache."""
        self.computed = False
        """True if the answer is computed for this client, so that it gets the engine's own id and counts of tokens."""
        self.counted = False
        """True if a relay counts the request, or another router."""
        self.paused = False
        self._paused_at = 0.0
        """Time at which the client last stopped reading, in monotonic seconds."""

    @property
    def at(self) -> int:
        """Number of the piece that the client gets next."""
        return self._at

    # --- Events of the client's connection -----------------------------------------------------------------------

    def client_left(self) -> None:
        """Stop following the source."""
        if not self.counted:
            self._metrics.cut.add(self._group, "client")
        self._settle("client left")
        if self._shared is not None:
            self._shared.left(self)

    def pause(self) -> None:
        """Write nothing until `resume`."""
        self.paused = True
        self._paused_at = self._clock()
        if self._shared is not None:
            self._shared.regulate()

    def resume(self) -> None:
        """Write again."""
        self.paused = False
        self.advance()
        if self._shared is not None:
            self._shared.regulate()

    def tick(self, now: float) -> None:
        """Have the source enforce its deadlines, or disconnect this client if it has blocked others for too long."""
        shared = self._shared
        if shared is None:
            return
        if self.paused and now - self._paused_at >= self._patience and shared.waits_for(self):
            self.client_left()
            self._client.cut(visibly=True)
        else:
            shared.tick(now)

    # --- Events of the source ------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Send the pieces that have arrived and were not sent. Return True once the request has ended."""
        source = self._source
        if source.state is SourceState.REFUSED:
            self._count(source.status)
            self._settle("refused")
            mine, theirs = self._request_id, dict(source.headers).get(REQUEST_ID, b"")
            fields = [(name, mine if name in ID_FIELDS else value) for name, value in source.headers]
            self._client.answer(source.status, fields, with_request_id(source.pieces[0], theirs, mine))
            return True
        if source.state is SourceState.AWAITED or self.paused:
            return False
        if not self._begun and not source.streamed and source.state is SourceState.COMING:
            return False
        if source.state is SourceState.CUT and not self._begun:
            self._cut()
            return True
        if not self._begun:
            self._begin()
        pieces = source.pieces if self.computed else source.shared
        while (index := self._at - source.dropped) < len(pieces):
            if self.paused:
                return False
            self._at += 1
            self._write(pieces[index])
        if source.ends and not self.paused:
            self._finish()
            return True
        return False

    def _begin(self) -> None:
        """Write the head."""
        self._begun = True
        source = self._source
        self._keep = self._client.keeps_alive
        headers = [*source.headers, *self.fields, (REQUEST_ID, self._request_id)]
        if source.streamed:
            self._chunked = self._minor > 0
            self._keep = self._keep and self._chunked
            if self._chunked:
                headers.append((b"transfer-encoding", b"chunked"))
        elif source.status != HTTPStatus.NO_CONTENT:  # which has no length (RFC 9110 section 8.6)
            pieces = source.pieces if self.computed else source.shared
            headers.append((b"content-length", b"%d" % sum(len(self._own(piece)) for piece in pieces)))
        lines = [*http1.lines_of(headers), *connection_lines(self._minor, keep=self._keep)]
        line = STATUS_LINES.get(source.status) or b"HTTP/1.1 %d " % source.status
        self._client.write(http1.encode(line, lines))
        self._count(source.status)

    def _write(self, piece: bytes) -> None:
        piece = self._own(piece)
        if self._tail is not None and not self.counted:
            self._tail.add(piece)
        self._client.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    def _own(self, piece: bytes) -> bytes:
        old = self._source.id
        return piece if self.computed or not old else with_id(piece, old, new_id(old, self._new_id))

    def _finish(self) -> None:
        if self._source.state is SourceState.CUT:
            self._cut()
            return
        if self._chunked:
            self._client.write(b"0\r\n\r\n")
        if not self.counted:
            self._metrics.duration.observe(self._group, value=self._clock() - self._began)
        self._settle("served")
        self._client.finish(keep=self._keep)

    def _cut(self) -> None:
        if not self.counted:
            self._metrics.cut.add(self._group, "engine")
        self._settle("cut")
        self._client.cut(visibly=not self._chunked)

    def _settle(self, event: str) -> None:
        if self._ended is not None and not self.counted:
            self._ended(event, self._tail.usage() if self._tail is not None else None)

    def _count(self, status: int) -> None:
        if not self.counted:
            self._metrics.requests.add(self._group, str(status))
            self._metrics.first_byte.observe(self._group, value=self._clock() - self._began)
