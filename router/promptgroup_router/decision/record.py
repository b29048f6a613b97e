"""The metrics and log lines of one request. Keys and places are logged, never text of a prompt or an answer."""

import logging
from collections.abc import Mapping

from promptgroup_contract import names
from promptgroup_contract.names import UNMATCHED
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.base.exposition import Exemplar
from promptgroup_router.base.logs import ACCESS, fields, log_request
from promptgroup_router.base.request_series import RequestSeries
from promptgroup_router.base.series import Observations
from promptgroup_router.decision.attempts import Attempts
from promptgroup_router.decision.span_attributes import api_attributes, end_without_engine, placed_by, span_name
from promptgroup_router.http11.trace_context import HEADER, sampled_trace, trace_id
from promptgroup_router.placement.likeness import is_like, own_tokens, shared_tokens
from promptgroup_router.placement.misses import EVICTED, find_miss, repeated, seconds_saved
from promptgroup_router.routing.points import ERRORS
from promptgroup_router.routing.process_points import PrefixUse, RequestTrace, Value
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState

log = logging.getLogger("promptgroup.router")
access = logging.getLogger(ACCESS)

UPSTREAM_ERRORS = 500
"""From this status on an answer counts as a failure of its revision."""


QUARTERS = ("0-25", "25-50", "50-75", "75-100")
"""Values of the label `cached`: percent of the prompt's tokens that were cached."""
UNKNOWN = "unknown"
"""The value where the engine does not report it."""


def quarter(usage: Usage | None) -> str:
    """Return the quarter that contains the cached share of the prompt."""
    if usage is None or usage.cached_tokens is None or not usage.prompt_tokens:
        return UNKNOWN
    return QUARTERS[min(3, 4 * usage.cached_tokens // usage.prompt_tokens)]


_NO_MORE: dict[str, Value] = {}
_NO_SPAN: tuple[bytes, RequestTrace | None] = (b"", None)


def refused_at_once(
    state: RouterState,
    error: ApiError,
    status: int,
    *,
    request_id: bytes,
    path: bytes,
    headers: Mapping[bytes, bytes],
    now: float,
) -> None:
    """Record a request that is refused before it has a route.

    Args:
        state: of the router or picker.
        error: the error.
        status: the one that its API has for it.
        request_id: its id.
        path: the path of the API.
        headers: of the request, names in lower case.
        now: monotonic seconds.
    """
    state.metrics.requests.add(UNMATCHED, str(status))
    state.features.refused(error)
    tracer = state.features.tracer
    header, span = tracer.begin(headers.get(HEADER, b""), now) if tracer is not None else _NO_SPAN
    if span is not None:
        end_without_engine(span, path, status=status, now=now, error=error.code or str(status))
    if access.isEnabledFor(logging.INFO):
        values: dict[str, Value] = {"promptgroup.group": UNMATCHED, "error.type": error.code or str(status)}
        log_without_engine("refused", request_id, status, header or headers.get(HEADER, b""), values)


def log_without_engine(
    event: str, request_id: bytes, status: int, traceparent: bytes, values: Mapping[str, Value]
) -> None:
    """Write the line of the access log for a request that was sent to no engine.

    Args:
        event: how it ended.
        request_id: its id.
        status: of the answer.
        traceparent: the router's header of that name, or the client's; empty for none.
        values: further fields.
    """
    line: dict[str, Value] = {"http.request.id": shown_id(request_id), "http.response.status_code": status}
    if traceparent and (text := trace_id(traceparent)):
        line["trace_id"] = text
    line.update(values)
    log_request(event, line)


def shown_id(request_id: bytes) -> str:
    """Return as much of a request's id as a line of a log has."""
    return request_id.decode("latin-1")[:128]


def _to_microseconds(seconds: float) -> float:
    """Round seconds to six digits; `round` takes as long for it as a third of the whole line."""
    return int(1e6 * seconds + 0.5) / 1e6


class RequestRecord:
    """The account of one request: each method records one thing that happened to it."""

    __slots__ = (
        "_answered",
        "_attempts",
        "_began",
        "_header",
        "_held",
        "_path",
        "_queued",
        "_request_id",
        "_route",
        "_series",
        "_span",
        "_state",
        "_status",
        "_trace",
        "_traceparent",
    )

    def __init__(
        self,
        state: RouterState,
        route: Route,
        attempts: Attempts,
        request_id: bytes,
        began: float,
        *,
        path: bytes = b"",
        traceparent: bytes = b"",
    ) -> None:
        """Begin the account.

        Args:
            state: of the router or picker.
            route: where the request may go.
            attempts: the replicas that it was sent to.
            request_id: its id.
            began: when it was whole, in monotonic seconds.
            path: the path of its API.
            traceparent: the client's header of that name; empty for none.
        """
        self._state = state
        self._route = route
        self._attempts = attempts
        self._request_id = request_id
        self._began = began
        self._path = path
        self._traceparent = traceparent
        tracer = state.features.tracer
        self._header, self._span = tracer.begin(traceparent, began) if tracer is not None else _NO_SPAN
        """The header `traceparent` for engines, empty for the client's; and the span, None for a request that is not
        sampled."""
        self._trace = 0
        """The trace, if it is recorded: by this process, or by the client where this process records none."""
        if self._span is not None:
            self._trace = self._span.trace_id
        elif traceparent and tracer is None:
            self._trace = sampled_trace(traceparent)
        self._status = 0
        self._answered = began
        """Time at which the first byte went to the client."""
        self._held: float | None = None
        """Since when the request waits for capacity; None while it does not."""
        self._series = state.metrics.of_requests(
            route.group,
            route.revision,
            turn=names.TURN_FIRST if attempts.new else names.TURN_LATER,
            how=route.matched_by,
            streamed=route.demand.streamed,
        )
        """The series of requests like this one. A canary has young sessions of clients that name the group, whose
        requests may differ from those of other clients, so that only similar requests are compared."""
        self._queued = False
        """True if it waited for capacity."""

    @property
    def _tried_once(self) -> RequestSeries:
        """The series of its time and its cache, which a second try would distort."""
        return self._series if self._attempts.tries <= 1 else self._series.other

    @property
    def sampled(self) -> bool:
        """True if the request is recorded in a span."""
        return self._span is not None

    def sent(self, now: float) -> bytes:
        """Record that the request goes to a replica.

        Returns:
            The header `traceparent` for the engine; empty where it gets the client's unchanged.
        """
        pick = self._attempts.pick
        if (
            pick is not None
            and self._attempts.tries == 1
            and not is_like(pick, self._route.group, self._route.revision)
        ):
            self._series = self._series.other
        if self._span is not None:
            expected = round(pick.cached) if pick is not None else 0
            slot = self._attempts.member.label
            self._span.note("sent", now, {"promptgroup.slot": slot, "promptgroup.expected_cached_tokens": expected})
        return self._header

    def waits(self, now: float) -> None:
        """Record that no replica has capacity for the request."""
        self._held = now
        self._queued = True
        self._state.metrics.held.add(self._route.group)
        if self._span is not None:
            self._span.note("waits", now, {})

    def admitted(self, now: float) -> None:
        """Record that the request waits no longer: a replica has capacity, or it has waited for too long."""
        if self._held is not None:
            self._observe(self._state.metrics.queued_seconds.series((self._route.group,)), now - self._held, now)
            self._held = None
            if self._span is not None:
                self._span.note("admitted", now, {})

    def answer_began(self, status: int, now: float) -> None:
        """Record the first byte that goes to the client."""
        route, series = self._route, self._series
        self._status = status
        self._answered = now
        series.answered(status)
        if status < ERRORS:
            self._observe(series.first_byte, now - self._began, now)
        if route.revision and status < ERRORS and route.demand.streamed:
            pick = self._attempts.pick
            waited = self._queued or (pick is not None and pick.ahead)
            timed = self._series.other if waited else self._tried_once
            self._observe(timed.revision_first_token, now - self._began, now)
            if pick is not None:
                timed.revision_own_tokens.add(own_tokens(pick))
                timed.revision_shared_tokens.add(shared_tokens(pick))
        if route.group != UNMATCHED and (origin := self._attempts.moved_from):
            self._state.metrics.sessions_moved.add(route.group)
            self._state.moves.add(origin, self._attempts.member.id, now)
        if self._span is not None:
            self._span.note("first byte", now, {})

    def served(self, usage: Usage | None, now: float) -> None:
        """Record the end of a whole answer."""
        self._count_outcome(failed=self._status >= UPSTREAM_ERRORS)
        if self._status < ERRORS:
            self._observe(self._series.duration, now - self._began, now)
            self._count_times(usage, now)
            self._note_shared(usage, now)
            if usage is not None and self._route.demand.cached:
                self._count_tokens(usage)
        self._tell("served", now, usage)

    def unseen(self, now: float) -> None:
        """Record the end of a request whose answer a gateway did not show."""
        self._tell("served", now)

    def refused(self, error: ApiError, status: int, now: float) -> None:
        """Record an error that the router answers, with the status that its API has for it."""
        self._series.answered(status)
        if self._attempts.tries:  # the revision is not at fault where no replica had capacity
            self._count_outcome(failed=True)
        self._tell("refused", now, more={"status": status, "code": error.code or ""})

    def cut(self, now: float) -> None:
        """Record an answer that the engine did not finish."""
        self._state.metrics.cut.add(self._route.group, "engine")
        self._count_outcome(failed=True)
        self._tell("cut", now)

    def client_left(self, now: float) -> None:
        """Record that the client left before the end of the answer."""
        self._state.metrics.cut.add(self._route.group, "client")
        self._tell("client left", now)

    def engine_failed(self, failure: Failure, now: float) -> None:
        """Record a try that failed."""
        if self._span is not None:
            slot = self._attempts.member.label
            self._span.note("failed", now, {"promptgroup.slot": slot, "error.type": failure.value})
        if log.isEnabledFor(logging.INFO) and failure is not Failure.STALE:
            attempts = self._attempts
            log.info(
                "engine failed",
                extra=fields(slot=attempts.member.label, failure=failure.value, tries=attempts.tries),
            )

    def _note_shared(self, usage: Usage | None, now: float) -> None:
        """Count the prefixes that the request shares with others, and their cached tokens."""
        route, pick = self._route, self._attempts.pick
        demand = route.demand
        if pick is None or demand.scope is None:
            return
        cached_tokens = usage.cached_tokens if usage is not None else None
        cached = pick.cached if cached_tokens is None else cached_tokens
        use = PrefixUse(route.model, route.group, demand, demand.scope, pick.known, cached)
        self._state.features.prefixes_used(use, now)

    def _count_times(self, usage: Usage | None, now: float) -> None:
        """Count the times of a whole stream, by the cached share of its prompt."""
        route, metrics = self._route, self._state.metrics
        if not route.revision or not route.demand.streamed:
            return
        labels = route.group, route.revision, quarter(usage)
        self._observe(metrics.ttft.series(labels), self._answered - self._began, now)
        if usage is not None and usage.completion_tokens > 1:
            item = (now - self._answered) / (usage.completion_tokens - 1)
            self._observe(metrics.tpot.series(labels), item, now)

    def _observe(self, series: Observations, value: float, now: float) -> None:
        """Add an observation, with the request's trace as its exemplar if it is recorded."""
        series.record(value)
        if self._trace:
            series.mark(Exemplar(self._trace, value, self._state.metrics.epoch + now))

    def _count_tokens(self, usage: Usage) -> None:
        route, series = self._route, self._series
        if route.revision:
            if usage.cached_tokens is not None and usage.prompt_tokens and not route.demand.unranked:
                pick = self._attempts.pick
                repeats = repeated(pick, usage) if pick is not None else 0.0
                share = usage.cached_tokens / (repeats or usage.prompt_tokens)
                self._tried_once.revision_cached.record(min(1.0, share))
            series.revision_prompt_tokens.add(usage.prompt_tokens)
            series.answer_tokens.add(usage.completion_tokens)
            self._count_cache(usage)
        series.prompt_tokens.add(usage.prompt_tokens)
        series.cached_tokens.add(usage.cached_tokens or 0)
        self._state.tokens.learn(route.model, route.demand.estimated_bytes, usage.prompt_tokens - route.demand.counted)

    def _count_cache(self, usage: Usage) -> None:
        """Count the tokens that the replica had cached, and the expected ones that it had not."""
        route, metrics, pick = self._route, self._state.metrics, self._attempts.pick
        if usage.cached_tokens is None or pick is None or route.demand.unranked:
            return
        slot = self._series.slot(pick.member.label)
        slot.prompt_tokens.add(usage.prompt_tokens)
        slot.cached_tokens.add(usage.cached_tokens)
        self._series.saved_seconds.add(seconds_saved(pick, usage))
        miss = find_miss(pick, usage)
        if miss is not None:
            metrics.missed_tokens.add(route.group, route.revision, miss.cause, amount=miss.tokens)
            metrics.missed_seconds.add(route.group, route.revision, miss.cause, amount=miss.seconds)
            if miss.cause == EVICTED:
                metrics.revision_evicted.add(route.group, route.revision, miss.within, amount=miss.tokens)

    def _count_outcome(self, *, failed: bool) -> None:
        """Count how a revision's request ended, for the analysis of its release."""
        if self._route.revision:
            (self._series.failed if failed else self._series.ok).add()

    def _line(self, now: float, usage: Usage | None) -> dict[str, Value]:
        """Return the line of the access log: names of OpenTelemetry's conventions for GenAI where it has one."""
        route, pick = self._route, self._attempts.pick
        line: dict[str, Value] = {
            "http.request.id": shown_id(self._request_id),
            "http.response.status_code": self._status,
            "gen_ai.request.model": route.model[:256],
            "promptgroup.group": route.group,
            "promptgroup.revision": route.revision,
            "promptgroup.matched_by": str(route.matched_by),
            "promptgroup.pinned": route.session.pinned,
            "promptgroup.session": f"{route.demand.session:016x}",
            "promptgroup.tries": self._attempts.tries,
            "promptgroup.seconds": _to_microseconds(now - self._began),
        }
        if route.caller.name:
            line["promptgroup.caller"] = route.caller.name
        if self._status:
            line["promptgroup.first_byte_seconds"] = _to_microseconds(self._answered - self._began)
        if pick is not None:
            line["promptgroup.slot"] = pick.member.label
            line["promptgroup.moved"] = pick.moved
            line["promptgroup.placed_by"] = placed_by(route, pick, self._attempts.tries)
            line["promptgroup.expected_cached_tokens"] = round(pick.cached)
        if usage is not None:
            line["gen_ai.usage.input_tokens"] = usage.prompt_tokens
            line["gen_ai.usage.output_tokens"] = usage.completion_tokens
            if usage.cached_tokens is not None:
                line["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
                miss = find_miss(pick, usage) if pick is not None else None
                line["promptgroup.missed_because"] = miss.cause if miss is not None else ""
        for feature in route.features:
            line.update(feature.log_fields(usage))
        return line

    def _tell(self, event: str, now: float, usage: Usage | None = None, more: dict[str, Value] = _NO_MORE) -> None:
        """Record the end of the request in its span, the access log and the log of decisions."""
        if self._span is not None:
            self._end_span(self._span, event, now, usage, more)
        if 0 < access.level <= logging.INFO:
            line = self._line(now, usage)
            traceparent = self._header or self._traceparent
            if traceparent and (text := trace_id(traceparent)):
                line["trace_id"] = text
            if "status" in more:  # of the router's own error, instead of an engine's
                line["http.response.status_code"], line["error.type"] = more["status"], more["code"]
            log_request(event, line)
        if not log.isEnabledFor(logging.DEBUG):
            return
        route, tries = self._route, self._attempts.tries
        log.debug(
            event,
            extra=fields(
                request=shown_id(self._request_id),
                how=route.matched_by.value,
                group=route.group,
                caller=route.caller.name,
                session=f"{route.demand.session:016x}",
                slot=self._attempts.member.label if tries else "",
                tries=tries,
                seconds=round(now - self._began, 6),
                **more,
            ),
        )

    def _end_span(
        self, span: RequestTrace, event: str, now: float, usage: Usage | None, more: dict[str, Value]
    ) -> None:
        """End the request's span, with what the access log has and what only a span has."""
        route, pick = self._route, self._attempts.pick
        line = self._line(now, usage)
        line.update(api_attributes(self._path))
        line["promptgroup.outcome"] = event
        line["gen_ai.request.stream"] = route.demand.streamed
        if pick is not None:
            line["promptgroup.placed_by"] = placed_by(route, pick, self._attempts.tries)
        if self._status and route.demand.streamed:
            line["gen_ai.response.time_to_first_chunk"] = round(self._answered - self._began, 6)
        status = more.get("status", self._status)
        line["http.response.status_code"] = status
        failed = event == "cut" or (isinstance(status, int) and status >= UPSTREAM_ERRORS)
        kind = event if event == "cut" else str(more.get("code", "") or (status if failed else ""))
        if kind:
            line["error.type"] = kind
        span.end(span_name(self._path, route.model[:256]), line, now, kind if failed else "")
