"""The account of a request's caller: limits against which it is charged, and token counts by the caller's name."""

from promptgroup_contract.caller_rules import NO_LIMITS, EngineField
from promptgroup_contract.names import UNMATCHED
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.apis.responses import BACKGROUND, goes_on
from promptgroup_router.apis.usage import Tail
from promptgroup_router.base.caller_metrics import CallerUse
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.answer_events import UNSEEN, AnswerEvents, SeenEvents
from promptgroup_router.callers.limiter import Charge, Limiter
from promptgroup_router.callers.longest_answer import longest_answer
from promptgroup_router.routing.points import Answering, RequestEnd, RequestFeature
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState


class CallerAccount(RequestFeature):
    """One request in the account of its caller."""

    __slots__ = ("_group", "_limiter", "_metrics", "_name", "_prompt", "_seen", "_use", "charge")

    def __init__(self, limiter: Limiter, metrics: Metrics, route: Route, charge: Charge | None) -> None:
        """Begin the account.

        Args:
            limiter: the accounts of callers with limits.
            metrics: count the requests and tokens of callers.
            route: its route.
            charge: the charge against the limits; None for a caller without limits.
        """
        self._limiter = limiter
        self._metrics = metrics
        self._group = route.group
        self._name = route.caller.name
        self._prompt = route.demand.prompt if route.demand.cached else -1
        """Estimated tokens of the prompt; negative where tokens that an engine does not report are not counted."""
        self._seen: SeenEvents | None = None
        """The events of a streamed answer; None for any other."""
        self._use: CallerUse | None = None
        """The use of its caller; None until the request is counted, and for a caller that is not identified."""
        self.charge = charge

    def tail(self, tail: Tail, *, streamed: bool) -> Tail:
        """Count the events of a stream, whose end may never arrive."""
        if not streamed:
            return tail
        if self._seen is None:
            self._seen = SeenEvents()
        return AnswerEvents(tail, self._seen)

    def answering(self, answer: Answering) -> None:
        """Add the caller's limits, and their remaining amounts, to the answer."""
        if self.charge is not None:
            answer.limits = self._limiter.lines(self.charge, answer.now)

    def answered(self, status: int) -> None:
        """Count the request."""
        if (use := self._callers_use()) is not None:
            use.answered(status)

    def ended(self, end: RequestEnd) -> None:
        """Settle the charge, and count the tokens."""
        seen = self._seen.count if self._seen is not None else UNSEEN
        if self.charge is not None:
            if end.worked or end.usage is not None:
                self._limiter.settle(self.charge, end.usage, end.now, seen)
            else:
                self._limiter.give_back(self.charge, end.now)
        use = self._use if end.shown else self._callers_use()
        if use is None or not end.metered:
            return
        if (usage := end.usage) is not None:
            use.prompt_tokens += usage.prompt_tokens
            use.cached_tokens += usage.cached_tokens or 0
            use.answer_tokens += usage.completion_tokens
        elif self._prompt >= 0:
            use.unmetered += 1
            if seen != UNSEEN:
                use.prompt_tokens += self._prompt
                use.answer_tokens += seen

    def withdrawn(self, now: float) -> None:
        """Refund the charge."""
        if self.charge is not None:
            self._limiter.give_back(self.charge, now)

    def _callers_use(self) -> CallerUse | None:
        if self._use is None and self._name:
            self._use = self._metrics.callers.of(self._group, self._name)
        return self._use


def open_account(
    state: RouterState, limiter: Limiter, route: Route, request: ParsedRequest, size: int, *, now: float
) -> CallerAccount | None:
    """Charge the caller for a request, if its group has limits; return None for a caller without limits and name.

    Args:
        state: of the router or picker.
        limiter: the accounts of callers with limits.
        route: its route.
        request: the request.
        size: bytes of its body; 0 if none counts.
        now: monotonic seconds.

    Raises:
        ApiError: 429: the caller has reached a limit. 400: the router would not see the end of a limited response.
    """
    limits = route.candidates.rules.limits_of(route.caller.name)
    if limits is NO_LIMITS:
        return CallerAccount(limiter, state.metrics, route, None) if route.caller.name else None
    if (limits.in_flight or limits.tokens_per_minute or limits.tokens_per_day) and goes_on(request):
        raise ApiError(
            400,
            "background is set, and the caller has limits of tokens or of requests at a time, for which the end of a "
            "response must be seen: leave background out, and stream the response",
            param=BACKGROUND,
            code="background_not_supported",
        )
    group = route.candidates.id if route.group == UNMATCHED else route.group
    if route.demand.cached:
        # embeddings that the group does not allow are removed from the body
        embedded = request.embedded if EngineField.PROMPT_EMBEDS in route.rewrite.allowed else 0
        prompt = route.demand.prompt
        longest, stated = longest_answer(request.kind, request.doc, request.prompts + embedded)
    else:  # embeddings and similar APIs, whose text is not measured
        prompt, longest, stated = int(size * state.tokens.per_byte(route.model)), 0, True
    try:
        charge = limiter.admit(
            group,
            route.caller.name,
            limits,
            prompt=prompt,
            longest=longest,
            stated=stated,
            now=now,
        )
    except ApiError as error:
        state.metrics.callers.of(route.group, route.caller.name).refused(error.code or "")
        raise
    return CallerAccount(limiter, state.metrics, route, charge) if charge is not None or route.caller.name else None
