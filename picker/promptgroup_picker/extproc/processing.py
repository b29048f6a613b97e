"""One request of a gateway, from its head to the decision of its route.

| message from the gateway             | effect                                                                      |
|--------------------------------------|-----------------------------------------------------------------------------|
| head of the request, which ends it   | decide                                                                      |
| head of the request, a body follows  | wait for the body                                                           |
| body, trailers                       | keep it; once it is whole: decide                                           |
| an answer before the decision        | it is the gateway's own: the request leaves the queue, its charge goes back |
| an answer after it                   | `routed_call` accounts for it                                               |
| end of the stream before its end     | the load is released: the client left                                       |

`request_side` determines the answers to the messages of the request.

A large body is parsed by another process, and the request decided by its digest once that has arrived. A request whose
token is signed with an unknown key waits until its issuer's keys have been read, as in a router.

Decide: refuse (an answer of the picker's own), wait for capacity, or name the replica and return the body. If the
gateway does not show the answer, the end of the stream counts as the end of a whole answer.
"""

from copy import copy

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_picker.extproc import messages
from promptgroup_picker.extproc.gateway_call import OVERLOADED, GatewayCall, PickerState
from promptgroup_picker.extproc.large_bodies import TURN_SECONDS
from promptgroup_picker.extproc.messages import MAX_BESIDE, MODE_FULL_DUPLEX
from promptgroup_picker.extproc.routed_call import RoutedCall
from promptgroup_picker.extproc.shown_answer import path_of
from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus
from promptgroup_picker.http2.open_streams import FAILED
from promptgroup_picker.http2.stream import Stream
from promptgroup_picker.stubs.ext_proc_pb2 import HttpBody, ProcessingRequest
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import NO_REPLICA_SECONDS, ApiError, KeysAwaitedError
from promptgroup_router.decision.arrival import ModelsAnswer, arrive, check_head, large_body
from promptgroup_router.proxy.key_waits import MOST_WAITING, WAIT_SECONDS
from promptgroup_router.routing.points import restricted
from promptgroup_router.routing.route import Route

READ_SECONDS = 60.0
"""Time limit from a request's head to the end of its body: it bounds what a slow client can hold."""

OK = 200


class Processing:
    """A request as a gateway shows it, until it is decided; then its answer."""

    __slots__ = ("_call", "_came", "_picker", "_reading", "_routed", "_since")

    def __init__(self, picker: PickerState, stream: Stream) -> None:
        self._picker = picker
        self._since = self._came = picker.clock()
        """The times at which the request arrived, and at which all of it had arrived."""
        self._call = GatewayCall(picker, stream)
        self._reading = False
        """True while another process reads the body."""
        self._routed: RoutedCall | None = None
        """None until the request has a route."""
        picker.open[self._call] = self

    # --- Events of the stream --------------------------------------------------------------------------------------

    def begun(self, size: int) -> None:
        """Reserve the memory of a large message before it arrives: a body that a gateway buffers is one message.

        Raises:
            GrpcError: the head has not arrived, which is never as large, or there is no memory for a message other than
                a body of a request.
        """
        if not self._call.head.arrived and not self._call.decided:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"the first message has {size} bytes, at most {MAX_BESIDE}")
        if not self._takes_body:
            if not self._call.body.expect_other(size):
                raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "the picker has no memory for a message: retry")
        elif (problem := self._call.body.expect(size, MAX_BESIDE)) is not None:
            self._call.refuse(problem)
            self._call.finish()  # the rest is not needed

    def message(self, data: bytes) -> None:
        """Take a message of the gateway.

        Raises:
            GrpcError: it does not follow those before it.
        """
        self._call.body.came()
        message = messages.read(data)
        kind = message.WhichOneof("request") or ""
        if kind.startswith("response"):
            self._take_answer(kind, message)
        elif kind == "request_headers":
            self._request_head(message)
        elif not kind:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "a message has none of the parts of a request or an answer")
        elif not self._call.head.arrived:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"{kind} comes before request_headers")
        elif kind == "request_body":
            self._request_body(message.request_body)
        else:
            self._request_trailers(message)

    def half_closed(self) -> None:
        """End the call: the gateway shows nothing more."""
        self._leave()
        self._call.finish()

    def lost(self) -> None:
        """Release the resources: the gateway has finished the request, or disconnected."""
        self._leave()

    def _take_answer(self, kind: str, message: ProcessingRequest) -> None:
        """Account for an answer, or leave it as it is where no replica has the request."""
        call = self._call
        if not call.decided:
            # one of the gateway's filters has refused a request that the picker was not shown, or it gives up one that
            # waits: nothing is decided any more
            if not call.head.arrived:
                call.agree(message)
            self._leave()
            call.decide()
        if self._routed is not None:
            self._routed.answered(kind, message)
        else:
            call.pass_on(kind, message)

    # --- The request -------------------------------------------------------------------------------------------------

    def _request_head(self, message: ProcessingRequest) -> None:
        call, head = self._call, self._call.head
        if head.arrived or call.decided:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "request_headers comes twice, or behind the answer")
        try:
            needs = head.arrive(message)
        except ApiError as error:
            call.refuse(error)
            return
        if not call.body.take_head(needs):
            call.refuse(ApiError(503, "the picker has no memory for another request: retry", code="body_memory"))
            return
        head.read(message, self._picker.state.pass_paths)
        call.agree(message)
        if message.request_headers.end_of_stream:
            self._decide()
        elif not call.side.shows_bodies:
            text = "the gateway does not show the body of requests: set its request_body_mode to FULL_DUPLEX_STREAMED"
            call.refuse(ApiError(500, text, code="not_shown"))
        else:
            for item in call.side.headed():
                call.send(item)

    def _request_body(self, part: HttpBody) -> None:
        if not self._takes_body:
            return  # the last part can arrive twice, and parts of a refused body may still arrive
        if (problem := self._call.body.add(part.body)) is not None:
            self._call.refuse(problem)
        elif self._call.side.is_whole(part):
            self._decide()

    def _request_trailers(self, message: ProcessingRequest) -> None:
        answer = messages.without_trailers(message)
        if self._call.decided:
            self._call.send(answer)
            return
        self._call.side.trailers = answer
        if self._call.side.is_late:
            text = "a request that has trailers and no body cannot be routed by this gateway, which holds bodies"
            self._call.refuse(ApiError(400, f"{text}: send it without trailers", code="trailers_alone"))
        elif not self._waits and self._routed is None:
            self._decide()

    @property
    def _takes_body(self) -> bool:
        """True until the request is whole, or its body is not needed any more."""
        return not (self._call.decided or self._waits or self._routed is not None)

    @property
    def _waits(self) -> bool:
        """True if the request is whole and cannot be decided yet."""
        return self._reading or self._call in self._picker.awaiting

    def _decide(self) -> None:
        self._call.body.join()
        self._came = self._picker.clock()
        self.look()

    def look(self) -> None:
        """Decide the request, have its body parsed first, or wait until an issuer's keys have been read."""
        awaiting = self._picker.awaiting
        try:
            self._judge()
        except KeysAwaitedError as error:
            if self._call in awaiting or len(awaiting) < MOST_WAITING:
                awaiting[self._call] = error
            else:
                self._call.refuse(error)
        else:
            awaiting.pop(self._call, None)

    def _judge(self) -> None:
        head, large_bodies = self._call.head, self._picker.large_bodies
        large = None
        if large_bodies is not None:
            large = large_body(self._picker.state, head.method, path_of(head.fields), self._call.body.whole)
        if large is None or large_bodies is None:
            route = self.arrive()
            if route is not None:
                self.begin(route)
            return
        now = self._picker.clock()
        try:
            check_head(self._picker.state, head.fields, head, self._came)
        except KeysAwaitedError:
            raise
        except ApiError as error:
            self._call.refuse(error)
            return
        self._reading, self._since = True, now
        large_bodies.read(self, large, self._call.body.whole)

    # --- A body that another process reads ----------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Return True once the gateway does not wait for the decision any more."""
        return self._call.over

    def declared_messages(self) -> int:
        """Return the most messages that a group of the table declares."""
        return self._picker.state.index.most_messages

    def asks_by_header(self) -> bool:
        """Return True if the client requests a cache diagnosis by a header."""
        return self._call.head.asks_diagnosis

    def refuse_read(self, error: ApiError, route: Route | None) -> None:
        """Refuse a request whose body could not be read or written."""
        if route is not None:
            _give_back(route, self._picker.clock())
        if not self._call.over:
            self._call.refuse(error)

    def fail(self) -> None:
        """End the call: the picker has a fault."""
        self._leave()
        self._call.finish(GrpcStatus.INTERNAL, FAILED)

    # --- The decision ------------------------------------------------------------------------------------------------

    def arrive(self, ask: ParsedRequest | None = None) -> Route | None:
        """Decide where the request may go, by the digest of its body where it was parsed; None if it was answered.

        Raises:
            KeysAwaitedError: the sender cannot be identified yet, and the request may wait.
        """
        picker, call, head = self._picker, self._call, self._call.head
        now = picker.clock()
        try:
            route = arrive(
                picker.state,
                method=head.method,
                path=path_of(head.fields),
                headers=head.fields,
                body=call.body.whole,
                now=now,
                sender=head,
                request=ask,
                came=self._came,
                rewrites=call.answer_mode == MODE_FULL_DUPLEX,
                relays=False,
            )
            if isinstance(route, ModelsAnswer):
                call.answer(OK, route.fields, route.body)
                return None
        except ApiError as error:
            if ask is None and isinstance(error, KeysAwaitedError):
                raise
            call.refuse(error)
            return None
        try:
            return route if head.subset is None else _within(route, head.subset, now)
        except ApiError as error:
            _give_back(route, now)
            call.refuse(error)
            return None

    def begin(self, route: Route) -> None:
        """Choose a replica, or wait for capacity."""
        call, now = self._call, self._picker.clock()
        self._reading = False
        if call.over:
            _give_back(route, now)
            return
        if route.candidates.rules.cached_tokens is not CachedTokens.EXACT and call.answer_mode != MODE_FULL_DUPLEX:
            _give_back(route, now)
            text = "the group hides what was cached, and the gateway does not let the picker rewrite answers"
            call.refuse(ApiError(500, f"{text}: set its response_body_mode to FULL_DUPLEX_STREAMED", code="not_shown"))
            return
        self._routed = RoutedCall(self._picker, call, route)
        self._routed.begin()

    # --- The end -----------------------------------------------------------------------------------------------------

    def is_late(self, now: float) -> bool:
        """Return True if the request takes too long to arrive, or to be parsed."""
        if self._call in self._picker.awaiting:
            return now - self._came >= WAIT_SECONDS
        limit = TURN_SECONDS if self._reading else READ_SECONDS
        return not self._call.decided and self._routed is None and now - self._since > limit

    def time_out_reading(self) -> None:
        """Refuse a request that has not arrived whole, or was not parsed in time."""
        if not self._call.head.arrived:
            self._call.close()
            self._call.finish(GrpcStatus.INVALID_ARGUMENT, f"no request_headers came within {READ_SECONDS:g} s")
            return
        if (awaited := self._picker.awaiting.pop(self._call, None)) is not None:
            self._call.refuse(awaited)
            return
        if self._reading:
            text = f"large bodies are read one after the other, and {TURN_SECONDS:g} s have passed: retry later"
            self._call.refuse(ApiError(503, text, code=OVERLOADED))
            return
        self._call.refuse(ApiError(408, f"the request was not whole within {READ_SECONDS:g} s: send it again"))

    def _leave(self) -> None:
        """Close the books of a request whose answer has not ended."""
        self._call.body.came()
        if self._call.over:
            return
        self._call.close()
        if self._routed is not None:
            self._routed.leave()


def _give_back(route: Route, now: float) -> None:
    """Take back the charge of a request that is refused before it is begun."""
    for feature in route.features:
        feature.withdrawn(now)


def _within(route: Route, subset: frozenset[str], now: float) -> Route:
    """Return a route to the endpoints alone that the gateway allows.

    Raises:
        ApiError: 503, none of them can take the request.
    """
    if (error := restricted(route.features, now)) is not None:
        raise error
    candidates = route.candidates
    within = candidates.within(subset)
    if within is candidates:
        return route
    if not within.members and within.last_resort is None:
        text = f"none of the {len(subset)} endpoints that the gateway allows is a replica that is ready for the request"
        raise ApiError(503, f"{text}: retry", code="no_replica", retry_after=NO_REPLICA_SECONDS)
    led = copy(route)
    led.candidates = within
    return led
