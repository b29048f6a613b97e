"""One answer as the client gets it: an engine's body, inspected, rewritten and framed, or an error of the router."""

from collections.abc import Callable
from typing import Protocol

from promptgroup_contract.caller_rules import CallerRules
from promptgroup_router.apis.errors import OPENAI, AnswerForm
from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.base.errors import ApiError, Failure, RewriteError
from promptgroup_router.decision.event_guard import EventGuard
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Headers, ResponseHead
from promptgroup_router.http11.reader import MAX_INTERIM
from promptgroup_router.proxy.response import RelayedHead, early_head, id_fields, interim_head
from promptgroup_router.routing.points import BodyRewriter

NO_NOTES: Headers = []
CONTINUE = 100


class AnswerTaker(Protocol):
    """The receiver of a request's answer: a client's connection, or what stands for several clients."""

    @property
    def keeps_alive(self) -> bool:
        """True if the connection may carry another request after this one."""

    def write(self, data: bytes) -> None:
        """Take bytes of the answer, head and framing included."""

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Take a whole answer of the router itself."""

    def finish(self, *, keep: bool) -> None:
        """Take the end of an answer that is whole."""

    def cut(self, *, visibly: bool) -> None:
        """Take the end of an answer that is not whole; `visibly` where its framing would not show it."""


class ClientAnswer:
    """The answer to a request, as the client gets it.

    Where nothing has to be changed, a part of a body costs one call to store its end and one to the client's transport:
    such a body is relayed as `plain`, in the chunks of the engine.
    """

    __slots__ = (
        "_closing",
        "_decoder",
        "_form",
        "_guard",
        "_in_place",
        "_interims",
        "_minor",
        "_pending",
        "_plain",
        "_rewriter",
        "committed",
        "connection",
        "keep",
        "moved",
        "notes",
        "request_id",
        "tail",
    )

    def __init__(
        self,
        connection: AnswerTaker,
        minor: int,
        tail: Tail,
        *,
        form: AnswerForm = OPENAI,
        request_id: bytes = b"",
        notes: Headers = NO_NOTES,
    ) -> None:
        """Expect an answer.

        Args:
            connection: gets it.
            minor: the client's version is HTTP/1.minor.
            tail: stores the end of the body.
            form: of errors and events of the API.
            request_id: the client's id of the request.
            notes: fields that the router adds to the head.
        """
        self.connection = connection
        self.request_id = request_id
        self.notes = notes if form is OPENAI else [*notes, *id_fields(form, request_id)[1:]]
        """Fields that the router adds to the head of the answer, beside that with the request's id."""
        self._form = form
        self._minor = minor
        self._interims = 0
        """Interim answers that the client got, from all engines: no more than one may send."""
        self.tail = tail
        """Keeps the end of the body; another one until the body has begun."""
        self._decoder: Chunked | None = None
        self._rewriter: BodyRewriter | None = None
        self._in_place = False
        """True if events that need no rewriting go to the client in the engine's chunks."""
        self._guard: EventGuard | None = None
        """Watches over the events of a stream that the client gets; None for any other answer."""
        self._closing: Callable[[Usage | None], bytes] | None = None
        """Returns what is added to the end of the stream, by the usage of the request; None to add nothing."""
        self._pending = b""
        """The client's head, until it is sent together with the first byte of the body."""
        self._plain = False
        """True if parts of the body go to the client as received."""
        self.keep = False
        """True if the client's connection stays open behind the answer."""
        self.moved = False
        """True if bytes of the answer have arrived since this was last set to False."""
        self.committed = False
        """True once the answer has begun before the engine's, as a stream with status 200."""

    @property
    def streams(self) -> bool:
        """True if the client gets a stream whose events are watched."""
        return self._guard is not None

    def interim(self, head: ResponseHead, rules: CallerRules) -> None:
        """Pass on an interim answer, which changes nothing of the request's state (RFC 9110 section 15.2)."""
        # the router does not wait for 100 before it sends a body, and no interim answer exists in HTTP/1.0
        if head.status != CONTINUE and not self.committed and self._minor == 1 and self._interims < MAX_INTERIM:
            self._interims += 1
            self.connection.write(interim_head(head, rules))

    def keep_alive(self) -> bool:
        """Send an event without content, and begin the answer with it if necessary. Return False if none can be."""
        if not self.streams and not self.committed:
            self.committed, self.keep = True, self.connection.keeps_alive
            self.connection.write(early_head(self.notes, self.request_id, keep=self.keep))
        elif self.streams and not self.takes_events:
            return False
        self.add_event(self._form.keep_alive)
        return True

    def refuse(self, error: ApiError, status: int, body: bytes) -> None:
        """Answer with an error of the router, which its form has as `status` and `body`."""
        if self.committed:
            self.add_event(self._form.event(error, self.request_id, 0))
            self.connection.cut(visibly=False)
            return
        ids = id_fields(self._form, self.request_id)
        self.connection.answer(status, [*error.headers(), *ids], body)

    def cut(self, error: ApiError) -> None:
        """End an answer that is not whole, with an error in an event where the stream can have one."""
        reported = self.error_reported
        if not reported and self.takes_events:
            reported = True
            self.add_event(self._form.event(error, self.request_id, self.next_number()))
        # where the end of the connection ends the answer, only a reset shows that it is not whole, or an event
        self.connection.cut(visibly=not reported and not self.cut_shows)

    def begin(
        self,
        head: RelayedHead,
        *,
        chunked: bool,
        rewriter: BodyRewriter | None,
        guard: EventGuard | None,
        closing: Callable[[Usage | None], bytes] | None = None,
        in_place: bool = False,
    ) -> None:
        """Begin the body.

        Args:
            head: the client's, which is not sent if the answer has begun before.
            chunked: whether the engine sends the body in chunks.
            rewriter: rewrites it; None to pass it on unchanged.
            guard: filters its events; None if it has none.
            closing: returns what is added to its end, by the usage of the request; None to add nothing.
            in_place: whether the rewriter only gets the events that the guard does not pass, and buffers none.
        """
        self._rewriter, self._closing = rewriter, closing
        self._in_place = in_place
        if not self.committed:
            self._pending, self.keep = head.head, head.keep
        self._plain = not (head.decode or self._frames)
        if head.decode or (self.committed and chunked):
            self._decoder = Chunked()
        elif chunked:
            self.tail.in_chunks()
        self._guard = guard

    def go_on(self, guard: EventGuard) -> None:
        """Expect the rest of a stream, which is rewritten, from another engine; the guard watches over it."""
        self._decoder = Chunked() if guard.chunked else None
        self._guard = guard

    def pass_on(self, data: bytes, *, between_chunks: bool) -> Failure | None:
        """Pass on bytes of the body; return the failure of the engine that they show.

        Args:
            data: the bytes, as received.
            between_chunks: whether the engine's connection is at the end of a chunk behind them.
        """
        guard, received = self._guard, data
        if guard is None:
            self.moved = True
        else:
            if self._plain and self._decoder is None:
                if guard.passes(data) and between_chunks:
                    self.moved = True
                    self.tail.add(data)
                    self._write(data)
                    return None
                if guard.chunked:
                    self._decoder = Chunked()
            self.moved = guard.moves(data) or self.moved
        if self._decoder is not None:
            content = bytearray()
            self._decoder.feed(data, content)
            data = bytes(content)
        self.tail.add(received if self._plain else data)
        if guard is not None:
            data = guard.feed(data)
        if self._rewriter is not None:
            try:
                data = self._rewriter.feed(data)
            except RewriteError:
                return Failure.MALFORMED
        self._write(self._framed(data) if self._frames else data)
        if guard is None:
            return None
        if guard.broken:
            return guard.failure
        if self._plain and self._decoder is not None and self._decoder.between and guard.idle:
            self._decoder = self._decoder if self._decoder.done else None
        return None

    def finish(self) -> Failure | None:
        """Pass on what is left at the end of the body; return the failure that this shows."""
        left = self._guard.finish() if self._guard is not None else b""
        if self._rewriter is not None:
            try:
                left = self._rewriter.feed(left) + self._rewriter.finish()
            except RewriteError:
                return Failure.MALFORMED
        if self._closing is not None:
            left += self._closing(self.tail.usage())
        if self._frames:
            left = self._framed(left)
            if self._minor == 1:
                left += b"0\r\n\r\n"
        self._write(left)
        return None

    def usage(self) -> Usage | None:
        """Return the usage that the engine has reported, as far as the body is here."""
        return self.tail.usage()

    def add_event(self, event: bytes) -> None:
        """Add an event to a stream of the router's own making, or between two of the engine's."""
        self._write(self._framed(event))

    @property
    def error_reported(self) -> bool:
        """True if the engine has reported its error in an event of the stream."""
        return self._guard is not None and self._guard.reported

    @property
    def takes_events(self) -> bool:
        """True if an event of the router's can stand at this place of a stream that the engine has begun."""
        guard = self._guard
        if guard is None or not guard.at_boundary:
            return False
        return self._minor == 1 and (guard.chunked or not self._plain)

    def next_number(self) -> int:
        """Return the number of the next event, for APIs that number them."""
        return self._guard.next_number() if self._guard is not None else 0

    @property
    def cut_shows(self) -> bool:
        """True if the client sees by the framing that an answer which ends here is not whole."""
        return self._plain and self.keep

    @property
    def _frames(self) -> bool:
        """True if the body gets chunks of the router's own."""
        rewritten = self._rewriter is not None and not self._in_place
        anew = rewritten or self._closing is not None or self.committed
        return anew or (self._plain and self._decoder is not None)

    def _write(self, data: bytes) -> None:
        if self._pending:
            data, self._pending = self._pending + data, b""
        if data:
            self.connection.write(data)

    def _framed(self, content: bytes) -> bytes:
        """Return a part of a rewritten body as the client gets it."""
        return content if self._minor == 0 or not content else b"%x\r\n%b\r\n" % (len(content), content)
