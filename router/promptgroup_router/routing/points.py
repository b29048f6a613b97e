"""The points of a request's life at which a feature may act.

A feature stores its state of one request in a `RequestFeature`. A route has those of its request, in the order in which
they act, and none for a group that uses none. The router's relay and the picker's call both invoke them:

| point           | when                                         | a feature may                                   |
|-----------------|----------------------------------------------|-------------------------------------------------|
| `arrives`       | a replica is about to be chosen              | let requests that wait go first                 |
| `hold`          | no replica can have it, and no engine had it | have it wait for one, or name the error         |
| `let_go`        | it is over while it waits                    | forget it                                       |
| `restricted`    | a gateway allows some replicas alone         | refuse it                                       |
| `engine_fields` | the request goes to a replica                | remove header fields of the client              |
| `engine_body`   | the same                                     | change the body                                 |
| `error_for`     | the engine answers with an error             | have the router answer with an error of its own |
| `tail`          | the head of the answer has arrived           | inspect the parts of the body                   |
| `answering`     | the client gets the head of the answer       | add header fields, rewrite the body             |
| `answered`      | the same, and when the router answers itself | count the status                                |
| `log_fields`    | the request is over                          | add to its line in the access log, and its span |
| `rest`          | the replica is lost, or must leave, while    | request the rest of the answer from another     |
|                 | the client gets the answer                   |                                                 |
| `ended`         | the request is over, however it ended        | finish its own records                          |
| `withdrawn`     | the request is dropped before it is sent     | release resources reserved for it               |

The points of a group and of a process are in `process_points`. The model is the `requestcontrol` interfaces of llm-d's
router.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.http11.http1 import fields_of
from promptgroup_router.placement.pick import Pick
from promptgroup_router.rings.index import Candidates, Member

MOST_HELD = 4 << 20
"""Most bytes of a whole answer that are buffered until its usage has been read; the head of a longer one is sent
without it."""
ERRORS = 400
"""From this status on an answer is not counted as the engine's work, for neither its time nor its cache."""


class BodyRewriter(Protocol):
    """Rewrites the body of an answer on its way."""

    def feed(self, content: bytes, /) -> bytes:
        """Return what of a part of the body can go to the client; raises RewriteError."""

    def finish(self) -> bytes:
        """Return what is left at the end of the body; raises RewriteError."""


class Rest(Protocol):
    """The rest of an answer, which another replica gives after the first was lost."""

    @property
    def asks(self) -> bool:
        """True if the replica must be queried before the rest can be requested."""

    def request(self) -> tuple[bytes, bytes]:
        """Return the path and the body of the request for it; the body is empty for the query by GET before it."""

    def learn(self, body: bytes) -> bool:
        """Process the answer to that query. Return False if the rest cannot be requested with it."""

    def begins(self) -> bytes:
        """Record that the rest begins, behind whole events; return the event that announces it to the client."""


class InTurn:
    """One rewriter after the other."""

    def __init__(self, first: BodyRewriter, second: BodyRewriter) -> None:
        self._first = first
        self._second = second

    def feed(self, content: bytes) -> bytes:
        """Return what of a part of the body can go to the client."""
        return self._second.feed(self._first.feed(content))

    def finish(self) -> bytes:
        """Return what is left at the end of the body."""
        return self._second.feed(self._first.finish()) + self._second.finish()


class Answering:
    """The head of an engine's answer on its way to the client, and what features add to the answer."""

    __slots__ = (
        "closing",
        "compressed",
        "fields",
        "limits",
        "marks",
        "now",
        "pick",
        "rewriter",
        "status",
        "streamed",
        "usage",
    )

    def __init__(
        self,
        pick: Pick | None,
        status: int,
        *,
        streamed: bool,
        compressed: bool,
        now: float,
        usage: Usage | None = None,
    ) -> None:
        """Begin with nothing added.

        Args:
            pick: the replica that answers.
            status: of the answer.
            streamed: whether its body is a stream of events.
            compressed: whether its body is compressed, so that it can be neither inspected nor rewritten.
            now: monotonic seconds.
            usage: the tokens that the engine reports; None where they are not available before the head is sent.
        """
        self.pick = pick
        self.usage = usage
        self.status = status
        self.streamed = streamed
        self.compressed = compressed
        self.now = now
        self.limits = b""
        """Lines of header fields: limits of the caller and their remainders."""
        self.fields: list[tuple[bytes, bytes]] = []
        """Header fields that the answer gets."""
        self.closing: Callable[[Usage | None], bytes] | None = None
        """Returns what is added to the end of a stream, by the usage of the request; None to add nothing."""
        self.rewriter: BodyRewriter | None = None
        """Rewrites the body; None to pass it on unchanged."""
        self.marks: tuple[bytes, ...] = ()
        """Byte strings of which every event that the rewriter changes contains at least one; empty if it may change
        any."""

    def limit_fields(self) -> list[tuple[bytes, bytes]]:
        """Return the header fields of `limits`."""
        return fields_of(self.limits)

    def rewrite(self, rewriter: BodyRewriter, marks: tuple[bytes, ...] = ()) -> None:
        """Have the body rewritten, after the rewriters that were added before.

        Args:
            rewriter: rewrites it.
            marks: byte strings of which every event that the rewriter changes contains at least one, so that whole
                events without them skip the rewriter; empty if it may change any event.
        """
        if self.rewriter is None:
            self.rewriter, self.marks = rewriter, marks
        else:
            self.rewriter, self.marks = InTurn(self.rewriter, rewriter), ()


NOTHING_ADDED: Final = Answering(None, 0, streamed=False, compressed=False, now=0.0)
"""The answer of a request without features; nothing is added to it."""


class RequestEnd:
    """The end of a request."""

    __slots__ = ("metered", "now", "shown", "usage", "worked")

    def __init__(self, usage: Usage | None, now: float, *, worked: bool, metered: bool, shown: bool = True) -> None:
        """Record the end.

        Args:
            usage: the tokens that the engine reports; None if it reports none, or the answer is not whole.
            now: monotonic seconds.
            worked: whether an engine has computed something for it.
            metered: whether its tokens are to be counted, by an estimate where the engine does not report them.
            shown: whether this process has read the answer.
        """
        self.usage = usage
        self.now = now
        self.worked = worked
        self.metered = metered
        self.shown = shown


class HeldLife(Protocol):
    """The life of a request that a feature has wait for a replica."""

    def go_on(self, candidates: Candidates | None, now: float, *, wait: float) -> None:
        """Choose a replica, or wait in the admission queue.

        Args:
            candidates: the replicas to choose from; None for those that the request began with.
            now: monotonic seconds.
            wait: seconds for which it may wait in the queue at least.
        """

    def give_up(self, error: ApiError | None, now: float) -> None:
        """Refuse the request; None for the error of one that has waited for capacity for too long."""


class BodyChange:
    """A change of a feature to the body that an engine gets, beside those of the group's prompt."""

    def prepare(self, request: ParsedRequest) -> ParsedRequest:
        """Return the request before the group's prompt is put in front of it."""
        return request

    def finish(self, body: bytes | bytearray, request: ParsedRequest) -> bytes:
        """Return the body, to which the group's prompt has been added; the request is the one from `prepare`."""
        del request
        return bytes(body)

    def splices(self, request: ParsedRequest) -> bool:
        """Return True if only `finish` changes the body of a request, and without parsing it."""
        del request
        return False

    def document(self) -> dict[str, Any]:
        """Return the change as a value of JSON, for the process that reads large bodies."""
        raise NotImplementedError


NO_CHANGES: tuple[BodyChange, ...] = ()

RandomBytes = Callable[[int], bytes]


class RequestFeature:
    """The part of one feature in one request: by default it does nothing at any point."""

    reads_usage = False
    """True if a whole answer is buffered until its usage has been read, so that its head can report it."""
    binds = False
    """True if the request may be served by the chosen replica alone, since its body names it."""

    def arrives(self, now: float) -> None:
        """Let requests go first that have waited for longer."""

    def hold(self, life: HeldLife, candidates: Candidates, now: float) -> ApiError | bool:
        """Return True if the request waits from now on, and False if not; an error takes the place of the refusal."""
        del life, candidates, now
        return False

    def let_go(self) -> None:
        """Forget a request that this feature holds: its client has left, or its time is over."""

    def restricted(self, now: float) -> ApiError | None:
        """Return the error for a request that only some of the replicas may serve; None to have it go on."""
        del now
        return None

    def engine_fields(self, allowed: frozenset[bytes]) -> frozenset[bytes]:
        """Return those of the client's header fields, by name in lower case, that an engine may get."""
        return allowed

    def engine_body(self, body: bytes | bytearray, member: Member, random: RandomBytes) -> bytes | bytearray:
        """Return the body for a replica; `random` returns the given number of unpredictable bytes."""
        del member, random
        return body

    def error_for(self, status: int) -> ApiError | None:
        """Return the error that takes the place of an engine's with this status; None to pass on the engine's."""
        del status
        return None

    def tail(self, tail: Tail, *, streamed: bool) -> Tail:
        """Return the reader of the body, in place of `tail` or around it."""
        del streamed
        return tail

    def answering(self, answer: Answering) -> None:
        """Add to an answer that the client gets."""

    def log_fields(self, usage: Usage | None) -> dict[str, str]:
        """Return the feature's fields of the request for the access log and the span."""
        del usage
        return {}

    def answered(self, status: int) -> None:
        """Count the status that the client gets."""

    def rest(self, failure: Failure) -> Rest | None:
        """Return the rest of an answer whose replica fails, or must leave; None if no other replica can give it."""
        del failure
        return None

    def ended(self, end: RequestEnd) -> None:
        """Close the books of the request."""

    def withdrawn(self, now: float) -> None:
        """Release the resources of a request that no engine will get; `now` is in monotonic seconds."""


_Feature = TypeVar("_Feature", bound=RequestFeature)

NO_FEATURES: tuple[RequestFeature, ...] = ()


def feature_of(features: Iterable[RequestFeature], kind: type[_Feature]) -> _Feature | None:
    """Return the feature of a kind; None if the request has none."""
    for feature in features:
        if isinstance(feature, kind):
            return feature
    return None


def hold(
    features: Sequence[RequestFeature], life: HeldLife, candidates: Candidates, now: float
) -> RequestFeature | ApiError | None:
    """Return the feature that has a request wait from now on; an error in place of its refusal; None for neither."""
    for feature in features:
        held = feature.hold(life, candidates, now)
        if held is True:
            return feature
        if isinstance(held, ApiError):
            return held
    return None


def restricted(features: Sequence[RequestFeature], now: float) -> ApiError | None:
    """Return the error for a request that only some of the replicas may serve; None to have it go on."""
    for feature in features:
        if (error := feature.restricted(now)) is not None:
            return error
    return None


def tail_of(features: Sequence[RequestFeature], tail: Tail, *, streamed: bool) -> Tail:
    """Return what reads the body of an answer: `tail`, and what features watch."""
    for feature in features:
        tail = feature.tail(tail, streamed=streamed)
    return tail


def rest_of(features: Sequence[RequestFeature], failure: Failure) -> Rest | None:
    """Return the rest of an answer whose replica fails, or must leave; None if no other replica can give it."""
    for feature in features:
        if (rest := feature.rest(failure)) is not None:
            return rest
    return None


def error_for(features: Sequence[RequestFeature], status: int) -> ApiError | None:
    """Return the error that takes the place of an engine's answer with this status; None to pass on the engine's."""
    if status < ERRORS:
        return None
    for feature in features:
        if (error := feature.error_for(status)) is not None:
            return error
    return None
