"""The metrics and log lines of one request. Keys and places are logged, never text of a prompt or an answer."""

import logging

from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.base.logs import fields
from promptgroup_router.contract import names
from promptgroup_router.proxy.exchange import Exchange
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState
from promptgroup_router.routing.unmatched import UNMATCHED

log = logging.getLogger("promptgroup.router")

ERRORS = 400
"""From this status on the time to an answer says nothing about the engine's work."""
UPSTREAM_ERRORS = 500
"""From this status on an answer counts as a failure of its revision."""


class RequestRecord:
    """The account of one request: each method records one thing that happened to it."""

    __slots__ = ("_began", "_exchange", "_request_id", "_route", "_state", "_status", "_stratum")

    def __init__(self, state: RouterState, route: Route, exchange: Exchange, request_id: bytes, began: float) -> None:
        self._state = state
        self._route = route
        self._exchange = exchange
        self._request_id = request_id
        self._began = began
        self._status = 0
        turn = names.TURN_FIRST if exchange.new else names.TURN_LATER
        self._stratum = (turn, route.how.value, names.STREAMED if route.demand.streamed else names.WHOLE)
        """The labels turn, how and streamed, by which requests are compared: a canary has young sessions of clients
        that name the group, which may differ from others in how they ask."""

    def waits(self) -> None:
        """Record that no replica has room for the request."""
        self._state.metrics.held.add(self._route.group)

    def answer_began(self, status: int, now: float) -> None:
        """Record the first byte that goes to the client."""
        route, metrics = self._route, self._state.metrics
        self._status = status
        metrics.requests.add(route.group, str(status))
        metrics.first_byte.observe(route.group, value=now - self._began)
        if route.revision and status < ERRORS:
            metrics.revision_first_token.observe(route.group, route.revision, *self._stratum, value=now - self._began)
        if route.group != UNMATCHED and self._exchange.moved:
            metrics.sessions_moved.add(route.group)

    def served(self, usage: Usage | None, now: float) -> None:
        """Record the end of a whole answer."""
        route, metrics = self._route, self._state.metrics
        metrics.duration.observe(route.group, value=now - self._began)
        self._count_outcome(failed=self._status >= UPSTREAM_ERRORS)
        if usage is not None:
            self._count_tokens(usage)
        self._trace("served", now)

    def refused(self, error: ApiError, status: int, now: float) -> None:
        """Record an error that the router answers, with the status that its API has for it."""
        self._state.metrics.requests.add(self._route.group, str(status))
        if self._exchange.tries:  # the revision is not at fault where no replica had room
            self._count_outcome(failed=True)
        self._trace("refused", now, status=status, code=error.code)

    def cut(self, now: float) -> None:
        """Record an answer that the engine did not finish."""
        self._state.metrics.cut.add(self._route.group, "engine")
        self._count_outcome(failed=True)
        self._trace("cut", now)

    def client_left(self, now: float) -> None:
        """Record that the client left before the end of the answer."""
        self._state.metrics.cut.add(self._route.group, "client")
        self._trace("client left", now)

    def engine_failed(self, failure: Failure) -> None:
        """Record a try that failed."""
        if log.isEnabledFor(logging.INFO) and failure is not Failure.STALE:
            exchange = self._exchange
            log.info(
                "engine failed",
                extra=fields(slot=exchange.member.label, failure=failure.value, tries=exchange.tries),
            )

    def _count_tokens(self, usage: Usage) -> None:
        route, metrics = self._route, self._state.metrics
        if route.revision:
            if usage.cached_tokens is not None and usage.prompt_tokens:
                share = usage.cached_tokens / usage.prompt_tokens
                metrics.revision_cached.observe(route.group, route.revision, *self._stratum, value=share)
            metrics.revision_prompt_tokens.add(route.group, route.revision, amount=usage.prompt_tokens)
        metrics.prompt_tokens.add(route.group, amount=usage.prompt_tokens)
        metrics.cached_tokens.add(route.group, amount=usage.cached_tokens or 0)
        self._state.tokens.learn(route.model, route.estimated, usage.prompt_tokens - route.counted)

    def _count_outcome(self, *, failed: bool) -> None:
        """Count how a revision's request ended, for the analysis of its release."""
        route = self._route
        if route.revision:
            outcome = names.OUTCOME_FAILED if failed else names.OUTCOME_OK
            self._state.metrics.revision_requests.add(route.group, route.revision, *self._stratum, outcome)

    def _trace(self, event: str, now: float, **more: object) -> None:
        if not log.isEnabledFor(logging.DEBUG):
            return
        route, tries = self._route, self._exchange.tries
        log.debug(
            event,
            extra=fields(
                request=self._request_id.decode("latin-1")[:128],
                how=route.how.value,
                group=route.group,
                session=f"{route.demand.session:016x}",
                slot=self._exchange.member.label if tries else "",
                tries=tries,
                seconds=round(now - self._began, 6),
                **more,
            ),
        )
