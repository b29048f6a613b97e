"""A request of a gateway that has a route: its replicas are chosen, and its answer is accounted.

| message from the gateway | effect                                                            |
|--------------------------|-------------------------------------------------------------------|
| head of the answer       | learn who served it; an error of the gateway's own ejects the slot |
| body of the answer       | give it back; the first token corrects the estimates              |
| end of the answer        | the account is closed with the engine's token counts              |
"""

import os

from promptgroup_contract import names
from promptgroup_contract.names import UNMATCHED
from promptgroup_picker.extproc import messages
from promptgroup_picker.extproc.gateway_call import GatewayCall, PickerState, shed
from promptgroup_picker.extproc.gateway_fields import to_remove
from promptgroup_picker.extproc.messages import MODE_NONE
from promptgroup_picker.extproc.request_side import EndpointChoice
from promptgroup_picker.extproc.shown_answer import ShownAnswer
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.actions import Action, Failed, Refuse, Send
from promptgroup_router.decision.engine_headers import from_engine
from promptgroup_router.decision.engine_request import engine_body, engine_fields
from promptgroup_router.decision.exchange import UNAVAILABLE
from promptgroup_router.decision.life import RequestLife
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.points import error_for
from promptgroup_router.routing.route import Route

REQUEST_SECONDS = 3600.0
"""Time in which a request may be sent; gateways have limits of their own, and no answer is cut here."""
_TARGET = messages.PATH.encode()


class RoutedCall:
    """A request from its first choice of a replica to the end of its answer."""

    __slots__ = ("_answer", "_call", "_fallbacks", "_life", "_picker", "_route")

    def __init__(self, picker: PickerState, call: GatewayCall, route: Route) -> None:
        now, head = picker.clock(), call.head
        self._picker = picker
        self._call = call
        self._route = route
        self._life = RequestLife(
            picker.state,
            route,
            self,
            request_id=head.request_id,
            path=head.endpoint.path,
            traceparent=head.traceparent,
            began=now,
            deadline=now + REQUEST_SECONDS,
        )
        self._answer = ShownAnswer(self._life, route, head.endpoint, head.fields, call.answer_mode)
        self._fallbacks: list[Member] = []

    def begin(self) -> None:
        """Choose a replica, or wait for capacity."""
        self.perform(self._life.begin(self._picker.clock()))

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
        call, route, life = self._call, self._route, self._life
        call.decide()
        traceparent, traced = life.sent(self._picker.clock()), life.traced
        allowed, given = engine_fields(self._picker.state.features, route, member, traced=traced)
        if traced:
            given = (*given, call.head.trace_field(traceparent))
        if target := call.head.changed_target():
            given = (*given, (_TARGET, target))
        removed = to_remove(call.head.fields, allowed, dict(given))
        more = tuple((name.decode(), value) for name, value in given)
        body = bytes(engine_body(route, member, os.urandom))
        # a body that names the replica, as by the id of a response, is for no other
        bound = any(feature.binds for feature in route.features)
        most = 0 if bound else self._picker.endpoints - 1
        fallbacks = life.exchange.attempts.fallbacks(most, self._picker.clock()) if most else []
        # all get the same header fields, and so the same credential
        self._fallbacks = [item for item in fallbacks if item.credential == member.credential]
        endpoints = ",".join([member.address, *(item.address for item in self._fallbacks)])
        choice = EndpointChoice(endpoints, removed, more, once=traced or target != b"")
        for item in call.side.chosen(choice, body, changed=body is not call.body.whole):
            call.send(item)

    def _refuse(self, error: ApiError) -> None:
        error = shed(error)
        status, headers, body = self._call.head.refusal(error)
        self._life.refused(error, status, self._picker.clock())
        self._call.answer(status, headers, body)

    # --- The answer --------------------------------------------------------------------------------------------------

    def answered(self, kind: str, message: ProcessingRequest) -> None:
        """Take a message of the answer."""
        if kind == "response_headers":
            self._take_head(message)
        elif kind == "response_body":
            self._take_body(message.response_body.body, end=message.response_body.end_of_stream)
        else:
            self._take_trailers(message)

    def leave(self) -> None:
        """Close the account of a request whose answer has not ended."""
        self._answer.leave(self._picker.clock(), sent=self._call.decided)

    def _take_head(self, message: ProcessingRequest) -> None:
        call, life, route, now = self._call, self._life, self._route, self._picker.clock()
        if call.over:
            call.pass_on("response_headers", message)
            return
        head = messages.fields(message.response_headers.headers)
        status = _status(head.get(b":status", b""))
        served = messages.served(message)
        if served:
            self._picker.record_served()
            life.exchange.served_by(served, self._fallbacks, now)
        elif status in UNAVAILABLE and self._picker.reports_served:
            # the gateway answers by itself, and names no endpoint that served: it reached none of the replicas
            life.exchange.not_sent(now)
            life.refused(ApiError(status, "the gateway reached no engine", code="no_answer"), status, now)
            call.pass_on("response_headers", message)
            call.close()
            return
        if (error := error_for(route.features, status)) is not None:
            life.replaced(status, now)
            call.answer(*call.head.refusal(error))
            return
        streamed = head.get(b"content-type", b"")[:17].lower() == b"text/event-stream"
        added = self._answer.begin(status, streamed=streamed, compressed=b"content-encoding" in head, now=now)
        label = UNMATCHED if route.group == UNMATCHED else life.exchange.attempts.member.label
        values = [(names.HEADER_SERVED_BY, label)]
        if route.revision:
            values.append((names.HEADER_REVISION, route.revision))
        further = [*added.limit_fields(), *added.fields]
        values += [(name.decode(), value.decode("latin-1")) for name, value in further]
        removed = to_remove(head, from_engine(route.candidates.rules))
        call.send(messages.response_headers(tuple(values), removed))
        call.body.free()
        if message.response_headers.end_of_stream or call.answer_mode == MODE_NONE:
            self._end()

    def _take_body(self, data: bytes, *, end: bool) -> None:
        answer, call = self._answer, self._call
        call.send_body(answer.passed(data, end=end), end=end)
        if call.over:
            return
        if data:
            answer.came(data, self._picker.clock())
        if answer.broken:
            call.close()
            answer.break_off(self._picker.clock())
        elif end:
            self._end()

    def _take_trailers(self, message: ProcessingRequest) -> None:
        call, left = self._call, self._answer.passed(b"", end=True)
        for part in messages.response_body(left, end=False) if left else ():
            call.send(part)
        if call.over:
            call.pass_on("response_trailers", message)
            return
        call.send(messages.without_trailers(message))
        self._end()

    def _end(self) -> None:
        if not self._call.over:
            self._call.close()
            self._answer.end(self._picker.clock())


def _status(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) == 3 else 0
