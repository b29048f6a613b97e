"""An answer as a gateway shows it: watched for its first token and its end, and rewritten where the gateway lets it."""

from promptgroup_picker.extproc.messages import MODE_FULL_DUPLEX, MODE_NONE, PATH
from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus
from promptgroup_router.apis.endpoints import Endpoint, form_of
from promptgroup_router.apis.opening import Opening
from promptgroup_router.apis.usage import Tail
from promptgroup_router.base.errors import Failure, RewriteError, cut_short
from promptgroup_router.decision.event_guard import EventGuard, broken_body
from promptgroup_router.decision.life import RequestLife
from promptgroup_router.proxy.response import REQUEST_ID
from promptgroup_router.routing.points import Answering, BodyRewriter, tail_of
from promptgroup_router.routing.route import Route

MOST_ANSWERED = 1 << 20
"""Most bytes of a whole answer that are buffered to detect whether the engine aborted it; a longer one is not
checked."""
OK = 200
_TARGET = PATH.encode()


def path_of(fields: dict[bytes, bytes]) -> bytes:
    """Return the path of a request without its query."""
    return fields.get(_TARGET, b"").partition(b"?")[0]


class ShownAnswer:
    """The answer to one request."""

    __slots__ = (
        "_endpoint",
        "_fields",
        "_guard",
        "_life",
        "_mode",
        "_opening",
        "_rewriter",
        "_route",
        "_status",
        "_tail",
        "_whole",
        "relays",
    )

    def __init__(
        self, life: RequestLife, route: Route, endpoint: Endpoint, fields: dict[bytes, bytes], mode: int
    ) -> None:
        """Expect an answer.

        Args:
            life: of the request.
            route: where it goes.
            endpoint: the path that it was sent to.
            fields: header fields of the request, names in lower case.
            mode: how the gateway shows the body of the answer.
        """
        self._life = life
        self._route = route
        self._endpoint = endpoint
        self._fields = fields
        self._mode = mode
        self._tail = self._new_tail(streamed=route.demand.streamed)
        """Keeps the end of the body."""
        self._opening: Opening | None = None
        """The beginning of a streamed answer, until it has a visible token."""
        self._guard: EventGuard | None = None
        """Watches over the events of a stream."""
        self._rewriter: BodyRewriter | None = None
        """Rewrites the body on its way."""
        self._whole = bytearray()
        """The body of a whole answer, which may show that the engine aborted it."""
        self._status = 0
        self.relays = False
        """True once the client gets the answer."""

    def begin(self, status: int, *, streamed: bool, compressed: bool, now: float) -> Answering:
        """Take the head of the answer, and return it with what features add."""
        requested = self._route.demand.streamed
        if streamed is not requested:
            self._tail = self._new_tail(streamed=streamed)
        added = self._life.head(status, streamed=streamed, compressed=compressed, now=now)
        if self._mode == MODE_FULL_DUPLEX:
            self._rewriter = added.rewriter
        self._status = status
        if status == OK and streamed:
            self._opening = Opening(chunked=False) if requested else None
            self._guard = None if compressed else EventGuard(chunked=False)
        return added

    def passed(self, data: bytes, *, end: bool) -> bytes:
        """Return what the client gets of a part of the body: of a stream that is broken off, an error at its end.

        Args:
            data: the part.
            end: whether it is the last part.

        Raises:
            GrpcError: it cannot be rewritten.
        """
        self._tail.add(data)
        guarded = self._guarded(data, end=end)
        if self._rewriter is None:
            return guarded
        try:
            ready = self._rewriter.feed(guarded)
            return ready + self._rewriter.finish() if end else ready
        except RewriteError:
            text = "the answer cannot be rewritten: it is too long, or cannot be read"
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, text) from None

    def came(self, data: bytes, now: float) -> None:
        """Take a part of the body that has passed for the books: the first token corrects them."""
        if not self.relays and (self._opening is None or self._opening.take(data)):
            self._relay(now)

    @property
    def broken(self) -> bool:
        """True if the engine has broken off the stream."""
        return self._guard is not None and self._guard.broken

    def break_off(self, now: float) -> None:
        """Record that the engine has aborted the answer: its slot is ejected unless it reported an error."""
        failure = self._guard.failure if self._guard is not None else Failure.ABORTED
        if not self.relays:
            self._relay(now)
        self._life.failed(failure, now)
        self._life.cut(now)

    def end(self, now: float) -> None:
        """Close the books of an answer that has ended."""
        if broken_body(self._whole):
            self.break_off(now)
            return
        if not self.relays:
            self._relay(now)
        self._life.ended(self._tail.usage(), now)

    def leave(self, now: float, *, sent: bool) -> None:
        """Close the books before the answer has ended; `sent` is whether the request was given to the gateway.

        A gateway that shows no answers leaves as soon as it has the request.
        """
        if sent and self._mode == MODE_NONE and not self.relays:
            self._life.unseen(now)
        else:
            self._life.client_left(now)

    def _relay(self, now: float) -> None:
        self.relays, self._opening = True, None
        self._life.relaying(self._status, now)

    def _guarded(self, data: bytes, *, end: bool) -> bytes:
        guard = self._guard
        if guard is None:
            if self._status == OK and self._endpoint.cached and len(self._whole) < MOST_ANSWERED:
                self._whole += data
            return data
        broken, passed = guard.broken, guard.feed(data)
        if not guard.broken:
            return passed + guard.finish() if end else passed
        if broken or guard.reported:
            return b"" if broken else passed
        form, request_id = form_of(path_of(self._fields), self._fields), self._fields.get(REQUEST_ID, b"")
        return passed + form.event(cut_short(Failure.ABORTED), request_id, guard.next_number())

    def _new_tail(self, *, streamed: bool) -> Tail:
        # of an answer that is not shown no events are counted, and what was reserved for it stays charged
        tail = self._endpoint.tail()
        return tail if self._mode == MODE_NONE else tail_of(self._route.features, tail, streamed=streamed)
