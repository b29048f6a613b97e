"""One request of a gateway, from its head to the end of its answer.

| message from the gateway             | effect                                                                      |
|--------------------------------------|-----------------------------------------------------------------------------|
| head of the request, which ends it   | decide                                                                      |
| head of the request, a body follows  | wait for the body                                                           |
| body, trailers                       | keep it; once it is whole: decide                                           |
| an answer before the decision        | it is the gateway's own: the request leaves the queue, its charge goes back |
| head of the answer                   | learn who served it; an error of the gateway's own ejects the slot          |
| body of the answer                   | give it back; the first token corrects the books                            |
| end of the answer                    | the books are closed with the engine's token counts                         |
| end of the stream before that        | the load is released: the client left                                       |

`request_side` determines the answers to the messages of the request.

A large body is parsed by another process, and the request decided by its digest once that has arrived. A request whose
token is signed with an unknown key waits until its issuer's keys have been read, as in a router.

Decide: refuse (an answer of the picker's own), wait for capacity, or name the replica and return the body. If the
gateway does not show the answer, the end of the stream counts as the end of a whole answer.
"""

import os
from collections.abc import Callable
from copy import copy

from promptgroup_contract import names
from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_contract.names import UNMATCHED
from promptgroup_picker.extproc import messages
from promptgroup_picker.extproc.call_body import CallBody
from promptgroup_picker.extproc.gateway_fields import to_remove
from promptgroup_picker.extproc.large_bodies import TURN_SECONDS, LargeBodies
from promptgroup_picker.extproc.messages import MAX_BESIDE, MODE_BUFFERED, MODE_FULL_DUPLEX, MODE_NONE, MODE_STREAMED
from promptgroup_picker.extproc.request_side import EndpointChoice, RequestSide
from promptgroup_picker.extproc.shown_answer import ShownAnswer, path_of
from promptgroup_picker.http2.connection import FAILED, Stream
from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus
from promptgroup_picker.stubs.ext_proc_pb2 import HttpBody, ProcessingRequest
from promptgroup_router.apis.endpoints import Endpoint, form_of
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import NO_REPLICA_SECONDS, ApiError, KeysAwaitedError
from promptgroup_router.decision.arrival import (
    ModelsAnswer,
    arrive,
    asks_of_digest,
    check_head,
    endpoint_of,
    large_body,
)
from promptgroup_router.decision.engine_headers import from_engine
from promptgroup_router.decision.engine_query import engine_target
from promptgroup_router.decision.engine_request import engine_body, engine_fields
from promptgroup_router.decision.exchange import UNAVAILABLE, Action, Failed, Refuse, Send
from promptgroup_router.decision.life import RequestLife
from promptgroup_router.decision.record import refused_at_once
from promptgroup_router.http11.trace_context import HEADER as TRACEPARENT
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.key_waits import MOST_WAITING, WAIT_SECONDS
from promptgroup_router.proxy.response import REQUEST_ID
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.points import error_for, restricted
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState

READ_SECONDS = 60.0
"""Time limit from a request's head to the end of its body: it bounds what a slow client can hold."""
MAX_FIELDS = 1000
"""Most header fields of a request: gateways accept a hundred unless they are configured otherwise."""
FIELD_BYTES = 256
"""Memory that a header field takes beside its bytes."""
REQUEST_SECONDS = 3600.0
"""Time in which a request may be sent; gateways have limits of their own, and no answer is cut here."""

_OVERLOADED = "overloaded"
_TARGET = messages.PATH.encode()
_SHED = 429
OK = 200


class PickerState:
    """The things that all requests of a picker share."""

    def __init__(
        self,
        state: RouterState,
        bodies: BodyBudget,
        clock: Callable[[], float],
        *,
        max_body: int = 2**24,
        endpoints: int = 1,
        large_bodies: LargeBodies | None = None,
    ) -> None:
        self.state = state
        self.bodies = bodies
        self.clock = clock
        self.max_body = max_body
        self.endpoints = endpoints
        """Most endpoints that a gateway gets for one request."""
        self.large_bodies = large_bodies
        """Reads large bodies elsewhere; without it they are read here, and all others wait meanwhile."""
        self.open: set[Processing] = set()
        self.awaiting: dict[Processing, KeysAwaitedError] = {}
        """Requests that wait for the keys of an issuer, in the order of arrival."""
        state.features.on_keys.append(self._look)
        self.told_served = False
        """True once a gateway has reported the endpoint that served a request: such a gateway reports it for each."""

    def tick(self, now: float) -> None:
        """Refuse requests whose body does not arrive; called every second."""
        for processing in [item for item in self.open if item.is_late(now)]:
            processing.time_out_reading()

    def _look(self) -> None:
        """Decide requests whose sender can be identified now: keys were read, or could not be."""
        for processing in list(self.awaiting):
            processing.look()


class Processing:
    """A request and its answer, as a gateway shows them."""

    __slots__ = (
        "_answer",
        "_answer_mode",
        "_body",
        "_came",
        "_decided",
        "_endpoint",
        "_fallbacks",
        "_fields",
        "_life",
        "_over",
        "_picker",
        "_reading",
        "_repeated",
        "_route",
        "_side",
        "_since",
        "_stream",
        "_subset",
    )

    def __init__(self, picker: PickerState, stream: Stream) -> None:
        self._picker = picker
        self._stream = stream
        self._since = self._came = picker.clock()
        """The times at which the request arrived, and at which all of it had arrived."""
        self._side = RequestSide()
        self._answer_mode = MODE_FULL_DUPLEX
        self._fields: dict[bytes, bytes] | None = None
        """The head of the request, once it has arrived."""
        self._repeated: frozenset[bytes] = frozenset()
        """Names of header fields that the request has more than once."""
        self._subset: frozenset[str] | None = None
        self._endpoint: Endpoint
        self._body = CallBody(picker.bodies, picker.max_body)
        self._decided = False
        """True once the picker has chosen the request's endpoints, or has refused it."""
        self._reading = False
        """True while another process reads the body."""
        self._route: Route | None = None
        self._life: RequestLife | None = None
        """None until the request is routed."""
        self._answer: ShownAnswer | None = None
        """The answer, from then on."""
        self._fallbacks: list[Member] = []
        self._over = False
        """True once the books are closed."""
        picker.open.add(self)

    # --- Events of the stream --------------------------------------------------------------------------------------

    def begun(self, size: int) -> None:
        """Reserve the memory of a large message before it arrives: a body that a gateway buffers is one message.

        Raises:
            GrpcError: the head has not arrived, which is never as large, or there is no memory for a message other than
                a body of a request.
        """
        if self._fields is None and not self._decided:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"the first message has {size} bytes, at most {MAX_BESIDE}")
        if not self._takes_body:
            if not self._body.expect_other(size):
                raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "the picker has no memory for a message: retry")
        elif (problem := self._body.expect(size, MAX_BESIDE)) is not None:
            self._refuse(problem)
            self._stream.finish()  # the rest is not needed

    def message(self, data: bytes) -> None:
        """Take a message of the gateway.

        Raises:
            GrpcError: it does not follow those before it.
        """
        self._body.came()
        message = messages.read(data)
        kind = message.WhichOneof("request") or ""
        if kind.startswith("response") and not self._decided:
            self._answered_early(message)
        if kind == "request_headers":
            self._request_head(message)
        elif kind == "response_headers":
            self._answer_head(message)
        elif kind == "response_body":
            self._answer_body(message.response_body)
        elif kind == "response_trailers":
            self._answer_trailers(message)
        elif not kind:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "a message has none of the parts of a request or an answer")
        elif self._fields is None:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"{kind} comes before request_headers")
        elif kind == "request_body":
            self._request_body(message.request_body)
        else:
            self._request_trailers(message)

    def half_closed(self) -> None:
        """End the call: the gateway shows nothing more."""
        self._leave()
        self._stream.finish()

    def lost(self) -> None:
        """Release the resources: the gateway has finished the request, or disconnected."""
        self._leave()

    # --- Who sends the request ---------------------------------------------------------------------------------------

    def peer_address(self) -> str:
        """Return the gateway's address: it is the gateway that a group trusts to name callers in a header."""
        return self._stream.peer

    def repeats(self, name: bytes) -> bool:
        """Return True if the request has a header field more than once."""
        return name in self._repeated

    def known_key(self) -> object:
        """Return None: a gateway's stream has one request."""
        return None

    def remember(self, key: object) -> None:
        """Keep nothing."""

    # --- The request -------------------------------------------------------------------------------------------------

    def _request_head(self, message: ProcessingRequest) -> None:
        if self._fields is not None or self._decided:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "request_headers comes twice, or behind the answer")
        headers, self._fields, self._endpoint = message.request_headers.headers, {}, endpoint_of(b"")
        count, size = len(headers.headers), message.ByteSize()
        needs = size + FIELD_BYTES * count
        if count > MAX_FIELDS:
            text = f"the request has {count} header fields, at most {MAX_FIELDS}: send less"
            self._refuse(ApiError(431, text, code="headers_too_large"))
            return
        if not self._body.take_head(needs):
            self._refuse(ApiError(503, "the picker has no memory for another request: retry", code="body_memory"))
            return
        self._fields = fields = messages.fields(headers)
        if len(fields) < count:
            self._repeated = messages.repeated(headers)
        self._subset = messages.subset(message.metadata_context)
        self._agree(message)
        self._endpoint = endpoint_of(path_of(fields), self._picker.state.pass_paths)
        if message.request_headers.end_of_stream:
            self._decide()
        elif not self._side.shows_bodies:
            text = "the gateway does not show the body of requests: set its request_body_mode to FULL_DUPLEX_STREAMED"
            self._refuse(ApiError(500, text, code="not_shown"))
        else:
            for item in self._side.headed():
                self._stream.send(item)

    def _agree(self, message: ProcessingRequest) -> None:
        """Learn from the first message of a stream how the gateway shows bodies."""
        if message.HasField("protocol_config"):
            self._side.mode = message.protocol_config.request_body_mode
            self._answer_mode = message.protocol_config.response_body_mode

    def _request_body(self, part: HttpBody) -> None:
        if not self._takes_body:
            return  # the last part can arrive twice, and parts of a refused body may still arrive
        if (problem := self._body.add(part.body)) is not None:
            self._refuse(problem)
        elif self._side.is_whole(part):
            self._decide()

    def _request_trailers(self, message: ProcessingRequest) -> None:
        answer = messages.without_trailers(message)
        if self._decided:
            self._stream.send(answer)
            return
        self._side.trailers = answer
        if self._side.is_late:
            text = "a request that has trailers and no body cannot be routed by this gateway, which holds bodies"
            self._refuse(ApiError(400, f"{text}: send it without trailers", code="trailers_alone"))
        elif not self._waits and self._life is None:
            self._decide()

    @property
    def _takes_body(self) -> bool:
        """True until the request is whole, or its body is not needed any more."""
        return not (self._decided or self._waits or self._life is not None)

    @property
    def _waits(self) -> bool:
        """True if the request is whole and cannot be decided yet."""
        return self._reading or self in self._picker.awaiting

    def _decide(self) -> None:
        self._body.join()
        self._came = self._picker.clock()
        self.look()

    def look(self) -> None:
        """Decide the request, have its body parsed first, or wait until an issuer's keys have been read."""
        awaiting = self._picker.awaiting
        try:
            self._judge()
        except KeysAwaitedError as error:
            if self in awaiting or len(awaiting) < MOST_WAITING:
                awaiting[self] = error
            else:
                self._refuse(error)
        else:
            awaiting.pop(self, None)

    def _judge(self) -> None:
        fields, large_bodies = self._fields or {}, self._picker.large_bodies
        large = None
        if large_bodies is not None:
            large = large_body(self._picker.state, fields.get(b":method", b""), path_of(fields), self._body.whole)
        if large is None or large_bodies is None:
            route = self.arrive()
            if route is not None:
                self.begin(route)
            return
        now = self._picker.clock()
        try:
            check_head(self._picker.state, fields, self, self._came)
        except KeysAwaitedError:
            raise
        except ApiError as error:
            self._refuse(error)
            return
        self._reading, self._since = True, now
        large_bodies.read(self, large, self._body.whole)

    # --- A body that another process reads ----------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Return True once the gateway does not wait for the decision any more."""
        return self._over

    def declared_messages(self) -> int:
        """Return the most messages that a group of the table declares."""
        return self._picker.state.index.most_messages

    def asks_by_header(self) -> bool:
        """Return True if the client requests a cache diagnosis by a header."""
        return asks_of_digest(self._fields or {})

    def refuse_read(self, error: ApiError, route: Route | None) -> None:
        """Refuse a request whose body could not be read or written."""
        if route is not None:
            self._give_back(route, self._picker.clock())
        if not self._over:
            self._refuse(error)

    def fail(self) -> None:
        """End the call: the picker has a fault."""
        self._leave()
        self._stream.finish(GrpcStatus.INTERNAL, FAILED)

    # --- The decision ------------------------------------------------------------------------------------------------

    def arrive(self, ask: ParsedRequest | None = None) -> Route | None:
        """Decide where the request may go, by the digest of its body where it was parsed; None if it was answered.

        Raises:
            KeysAwaitedError: the sender cannot be identified yet, and the request may wait.
        """
        picker, fields = self._picker, self._fields or {}
        now = picker.clock()
        try:
            route = arrive(
                picker.state,
                method=fields.get(b":method", b""),
                path=path_of(fields),
                headers=fields,
                body=self._body.whole,
                now=now,
                sender=self,
                request=ask,
                came=self._came,
                rewrites=self._answer_mode == MODE_FULL_DUPLEX,
                relays=False,
            )
            if isinstance(route, ModelsAnswer):
                self._answer_self(OK, route.fields, route.body)
                return None
        except ApiError as error:
            if ask is None and isinstance(error, KeysAwaitedError):
                raise
            self._refuse(error)
            return None
        try:
            return route if self._subset is None else _within(route, self._subset, now)
        except ApiError as error:
            self._give_back(route, now)
            self._refuse(error)
            return None

    def begin(self, route: Route) -> None:
        """Choose a replica, or wait for capacity."""
        state, now, fields = self._picker.state, self._picker.clock(), self._fields or {}
        self._reading = False
        if self._over:
            self._give_back(route, now)
            return
        if route.candidates.rules.cached_tokens is not CachedTokens.EXACT and self._answer_mode != MODE_FULL_DUPLEX:
            self._give_back(route, now)
            text = "the group hides what was cached, and the gateway does not let the picker rewrite answers"
            self._refuse(ApiError(500, f"{text}: set its response_body_mode to FULL_DUPLEX_STREAMED", code="not_shown"))
            return
        self._route = route
        self._life = RequestLife(
            state,
            route,
            self,
            request_id=fields.get(REQUEST_ID, b""),
            path=self._endpoint.path,
            traceparent=fields.get(TRACEPARENT, b""),
            began=now,
            deadline=now + REQUEST_SECONDS,
        )
        self._answer = ShownAnswer(self._life, route, self._endpoint, fields, self._answer_mode)
        self.perform(self._life.begin(now))

    def _give_back(self, route: Route, now: float) -> None:
        """Take back the charge of a request that is refused before it is begun."""
        for feature in route.features:
            feature.withdrawn(now)

    def perform(self, effect: Failed) -> None:
        """Perform the effect of an event: of this request, or of another that has freed capacity for it."""
        match effect:
            case Send(member, _):
                self._send_to(member)
            case Refuse(error):
                self._refuse(error)
            case Action.WAIT | Action.CUT:  # an answer that is cut has ended its call already
                pass

    def _send_to(self, member: Member) -> None:
        """Name the replica, and give the body back."""
        self._decided = True
        route, life = self._routed(), self._begun()
        traceparent, traced = life.sent(self._picker.clock()), life.traced
        allowed, given = engine_fields(self._picker.state.features, route, member, traced=traced)
        if traced:
            given = (*given, (TRACEPARENT, traceparent))
        if target := self._changed_target():
            given = (*given, (_TARGET, target))
        removed = to_remove(self._fields or {}, allowed, dict(given))
        more = tuple((name.decode(), value) for name, value in given)
        body = bytes(engine_body(route, member, os.urandom))
        # a body that names the replica, as by the id of a response, is for no other
        bound = any(feature.binds for feature in route.features)
        most = 0 if bound else self._picker.endpoints - 1
        fallbacks = life.fallbacks(most, self._picker.clock()) if most else []
        # all get the same header fields, and so the same credential
        self._fallbacks = [item for item in fallbacks if item.credential == member.credential]
        endpoints = ",".join([member.address, *(item.address for item in self._fallbacks)])
        choice = EndpointChoice(endpoints, removed, more, once=traced or target != b"")
        for item in self._side.chosen(choice, body, changed=body is not self._body.whole):
            self._stream.send(item)

    def _changed_target(self) -> bytes:
        """Return the path and the query that the engine gets; empty if they are those that the client sent."""
        requested = (self._fields or {}).get(_TARGET, b"")
        path, _, query = requested.partition(b"?")
        target = engine_target(self._endpoint, path, query)
        return target if target != requested else b""

    def _refuse(self, error: ApiError) -> None:
        if error.code == _OVERLOADED:
            error = ApiError(_SHED, str(error), param=error.param, code=error.code, retry_after=error.retry_after)
        fields = self._fields or {}
        status, headers, body = self._written(error)
        if self._life is not None:
            self._life.refused(error, status, self._picker.clock())
        else:
            path, now = self._endpoint.path, self._picker.clock()
            request_id = fields.get(REQUEST_ID, b"")
            refused_at_once(
                self._picker.state, error, status, request_id=request_id, path=path, headers=fields, now=now
            )
        self._answer_self(status, headers, body)

    def _written(self, error: ApiError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return status, header fields and body of an error in the form of the API that the request uses."""
        fields = self._fields or {}
        request_id = fields.get(REQUEST_ID, b"")
        form = form_of(path_of(fields), fields)
        status, body = form.refuse(error, request_id)
        ids = [(name, request_id) for name in form.id_fields[1:]] if request_id else []
        return status, [*error.headers(), *ids], body

    def _answer_self(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self._decided = True
        self._stream.send(messages.immediate(status, headers, body))
        self._close()

    # --- The answer --------------------------------------------------------------------------------------------------

    def _answered_early(self, message: ProcessingRequest) -> None:
        """Decide nothing any more: the gateway answers by itself.

        One of its filters has refused a request that the picker was not shown, or it gives up one that waits.
        """
        if self._fields is None:
            self._agree(message)
        self._leave()
        self._decided = True

    def _answer_head(self, message: ProcessingRequest) -> None:
        life, route, answer, now = self._life, self._route, self._answer, self._picker.clock()
        if life is None or route is None or answer is None or self._over:
            self._stream.send(messages.response_headers(()))
            return
        head = messages.fields(message.response_headers.headers)
        status = _status(head.get(b":status", b""))
        served = messages.served(message)
        if served:
            self._picker.told_served = True
            life.served_by(served, self._fallbacks, now)
        elif status in UNAVAILABLE and self._picker.told_served:
            # the gateway answers by itself, and names no endpoint that served: it reached none of the replicas
            life.not_sent(status, now)
            self._stream.send(messages.response_headers(()))
            self._close()
            return
        if (error := error_for(route.features, status)) is not None:
            life.replaced(status, now)
            self._answer_self(*self._written(error))
            return
        streamed = head.get(b"content-type", b"")[:17].lower() == b"text/event-stream"
        added = answer.begin(status, streamed=streamed, compressed=b"content-encoding" in head, now=now)
        label = UNMATCHED if route.group == UNMATCHED else life.member.label
        values = [(names.HEADER_SERVED_BY, label)]
        if route.revision:
            values.append((names.HEADER_REVISION, route.revision))
        further = [*added.limit_fields(), *added.fields]
        values += [(name.decode(), value.decode("latin-1")) for name, value in further]
        removed = to_remove(head, from_engine(route.candidates.rules))
        self._stream.send(messages.response_headers(tuple(values), removed))
        self._body.free()
        if message.response_headers.end_of_stream or self._answer_mode == MODE_NONE:
            self._answer_ended()

    def _answer_trailers(self, message: ProcessingRequest) -> None:
        left = self._passed(b"", end=True)
        for part in messages.response_body(left, end=False) if left else ():
            self._stream.send(part)
        # a gateway's own answer is left unchanged
        of_engine = self._life is not None and not self._over
        self._stream.send(messages.without_trailers(message) if of_engine else messages.UNCHANGED["response_trailers"])
        self._answer_ended()

    def _answer_body(self, part: HttpBody) -> None:
        data, end = part.body, part.end_of_stream
        passed = self._passed(data, end=end)
        if self._answer_mode in (MODE_STREAMED, MODE_BUFFERED):
            self._stream.send(messages.UNCHANGED["response_body"])
        else:
            for sent in messages.response_body(passed, end=end):
                self._stream.send(sent)
        answer = self._answer
        if self._over or answer is None:
            return
        if data:
            answer.came(data, self._picker.clock())
        if answer.broken:
            self._close()
            answer.break_off(self._picker.clock())
        elif end:
            self._answer_ended()

    def _passed(self, data: bytes, *, end: bool) -> bytes:
        """Return what the client gets of a part of the answer."""
        return data if self._answer is None else self._answer.passed(data, end=end)

    def _answer_ended(self) -> None:
        if not self._over and self._answer is not None:
            self._close()
            self._answer.end(self._picker.clock())

    # --- The end -----------------------------------------------------------------------------------------------------

    def is_late(self, now: float) -> bool:
        """Return True if the request takes too long to arrive, or to be parsed."""
        if self in self._picker.awaiting:
            return now - self._came >= WAIT_SECONDS
        limit = TURN_SECONDS if self._reading else READ_SECONDS
        return not self._decided and self._life is None and now - self._since > limit

    def time_out_reading(self) -> None:
        """Refuse a request that has not arrived whole, or was not parsed in time."""
        if self._fields is None:
            self._close()
            self._stream.finish(GrpcStatus.INVALID_ARGUMENT, f"no request_headers came within {READ_SECONDS:g} s")
            return
        if (awaited := self._picker.awaiting.pop(self, None)) is not None:
            self._refuse(awaited)
            return
        if self._reading:
            text = f"large bodies are read one after the other, and {TURN_SECONDS:g} s have passed: retry later"
            self._refuse(ApiError(503, text, code=_OVERLOADED))
            return
        self._refuse(ApiError(408, f"the request was not whole within {READ_SECONDS:g} s: send it again"))

    def _leave(self) -> None:
        """Close the books of a request whose answer has not ended."""
        self._body.came()
        if self._over:
            return
        self._close()
        if self._answer is not None:
            self._answer.leave(self._picker.clock(), sent=self._decided)

    def _routed(self) -> Route:
        if self._route is None:
            raise RuntimeError("the request was not decided: call _decide first")
        return self._route

    def _begun(self) -> RequestLife:
        if self._life is None:
            raise RuntimeError("the request was not decided: call _decide first")
        return self._life

    def _close(self) -> None:
        self._over = True
        self._body.drop()
        self._picker.open.discard(self)
        self._picker.awaiting.pop(self, None)


def _status(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) == 3 else 0


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
