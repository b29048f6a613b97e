"""The response cache of a router process: cached answers, answers in progress, and where to get those it lacks."""

import logging
from collections.abc import Callable
from functools import partial

from promptgroup_contract import names
from promptgroup_contract.table import ResponseCaching
from promptgroup_router.apis.request import ParsedRequest, encoded, read_object
from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.decision.arrival import endpoint_of
from promptgroup_router.decision.engine_request import engine_query
from promptgroup_router.decision.record import access, log_without_engine
from promptgroup_router.decision.span_attributes import end_without_engine
from promptgroup_router.features.caller_account import CallerAccount
from promptgroup_router.flights.answer_store import AnswerStore
from promptgroup_router.flights.errand import Errand, WantedAnswer
from promptgroup_router.flights.flight import Flight
from promptgroup_router.flights.follower import PEER_STALL_SECONDS, STALL_SECONDS, Follower
from promptgroup_router.flights.purge_file import PurgeFile
from promptgroup_router.flights.revalidation import Revalidations
from promptgroup_router.flights.source import Source, SourceState, source_of
from promptgroup_router.flights.under_way import UnderWay
from promptgroup_router.http11.http1 import Headers, forwarded
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.http11.trace_context import HEADER as TRACEPARENT
from promptgroup_router.proxy.api_handler import Begin
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection
from promptgroup_router.proxy.request_ids import RequestIds
from promptgroup_router.proxy.response import id_fields
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.response_cache import cache_status, freshness
from promptgroup_router.response_cache.answer import MOST_BYTES, KeptAnswer
from promptgroup_router.response_cache.cacheable import Bypass, Eligibility, EligibleRequest
from promptgroup_router.response_cache.canonical import CacheKey, cache_key
from promptgroup_router.response_cache.memory import Memory
from promptgroup_router.response_cache.points import AnswerObserver
from promptgroup_router.response_cache.purge import Purge, Purges
from promptgroup_router.response_cache.wholeness import is_whole
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.process_points import RequestTrace, RequestTracer, Value
from promptgroup_router.routing.route import Route

OK = 200
SHUN_SECONDS = 5.0
"""Time for which no request is sent to a router that could not be reached: as long as peers take to notice its loss."""

_REVISION = names.HEADER_REVISION.encode()


class SharedAnswers:
    """The answers that this process shares between requests."""

    def __init__(
        self,
        memory: Memory,
        metrics: Metrics,
        connections: EngineConnections,
        limiter: Limiter,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        home: Callable[[CacheKey], str | None],
        lives: Callable[[str], bool],
        store: AnswerStore | None = None,
        observer: AnswerObserver | None = None,
        tracer: RequestTracer | None = None,
        purge_file: PurgeFile | None = None,
    ) -> None:
        """Begin with no answer.

        Args:
            memory: for answers.
            metrics: of the router.
            connections: to other routers.
            limiter: holds callers to their limits.
            clock: monotonic seconds.
            wall: seconds since the epoch.
            home: key → `host:port` of its home router; None if that is this one.
            lives: whether another router, `host:port`, is a live peer.
            store: the store that all routers share; None without one.
            observer: the feature that observes the requests; None without one.
            tracer: records spans of requests that are answered without an engine; None where tracing is off.
            purge_file: stores purges across restarts; None to lose them at a restart.
        """
        self.metrics = metrics
        self.connections = connections
        self.tracer = tracer
        self.store = store
        self.observer = observer or AnswerObserver()
        self.home = home
        self.lives = lives
        self.wall = wall
        self._shunned: dict[str, float] = {}
        """`host:port` of another router → monotonic seconds until which no request is sent to it."""
        self._memory = memory
        self._limiter = limiter
        self._clock = clock
        self._ids = RequestIds()
        self._purges = Purges()
        self._purge_file = purge_file
        if purge_file is not None:
            purge_file.restore(self._purges, wall())
        self._errands = UnderWay()
        self._revalidations = Revalidations()
        self._eligibility = Eligibility(metrics, clock)

    # --- Requests ---------------------------------------------------------------------------------------------------

    def start(
        self,
        client: ClientConnection,
        request: HttpRequest,
        route: Route,
        begin: Begin,
        *,
        from_peer: bool,
    ) -> ActiveRequest | None:
        """Answer a request from the cache or by an engine, as `AnswerSharing.start` does.

        Raises:
            ApiError: 400: the body's `cache` is invalid; 504: the client accepts only a cached answer, and there is
                none.
        """
        judged = self._eligibility.judge(request.head, route)
        if judged is None:
            return None
        if not isinstance(judged, EligibleRequest):
            return begin(client, request, route, judged)
        parsed_request, endpoint, directives = judged.parsed, judged.endpoint, judged.directives
        caching, allowed = judged.caching, route.rewrite.allowed
        named = partial(
            cache_key,
            path=request.head.path,
            query=engine_query(endpoint, request.head.path, request.head.query),
            revision=route.candidates.id,
            settings=route.candidates.settings,
            model=route.model,
            preamble=route.rewrite.preamble,
            allowed=allowed,
            sharers=judged.sharers,
            space=directives.namespace,
            headers=_named_headers(request, route),
        )
        try:
            route.rewrite.body = _engine_body(parsed_request, route)
            wanted_answer = WantedAnswer(
                named(parsed_request), route, caching, directives, request, parsed_request.kind, begin
            )
            if not from_peer and not directives.no_cache:
                observed = self.observer.observe(route, caching, parsed_request, named)
                wanted_answer = wanted_answer._replace(observed=observed)
        except ApiError:  # nested too deeply to be written again
            return begin(client, request, route, self._eligibility.bypassed(route, directives, Bypass.REQUEST))
        return self._answer(client, wanted_answer, from_peer=from_peer)

    def pass_by(self, request: HttpRequest, route: Route, parsed_request: ParsedRequest) -> Headers:
        """Let a request bypass the cache, as `AnswerSharing.pass_by` does; raises ApiError as `start` does."""
        return self._eligibility.bypassed_large(request.head, route, parsed_request)

    def _answer(self, client: ClientConnection, wanted: WantedAnswer, *, from_peer: bool) -> ActiveRequest:
        key, group, requested = wanted.key, wanted.route.group, wanted.directives
        cached_answer = self.cached(key, wanted)
        if cached_answer is not None:
            self.metrics.responses.add(group, "hit")
            fields = cache_status.of_hit(cached_answer, self.wall())
            follower = self._follower(client, wanted, source_of(cached_answer), fields, result="hit")
            follower.advance()
            return follower
        stale = self._stale(wanted)
        if stale is not None:
            self.metrics.responses.add(group, "stale")
            fields = cache_status.of_hit(stale, self.wall())
            follower = self._follower(client, wanted, source_of(stale), fields, result="stale")
            follower.advance()
            self._revalidate(wanted, from_peer=from_peer)
            return follower
        if requested.only_if_cached:
            raise self._eligibility.not_cached(wanted.route)
        running = None
        if not requested.no_cache and requested.max_age is None:
            running = self._errands.to_join(key, from_peer=from_peer)
        if running is not None:
            self.metrics.responses.add(group, "collapsed")
            flight = running.flight
            fields = cache_status.of_collapsed(key)
            follower = self._follower(
                client, wanted, flight.source, fields, flight, result="collapsed", from_peer=from_peer
            )
            running.join(follower, wanted)
            return follower
        errand = Errand(wanted, self)
        self._errands.add(errand)
        follower = self._follower(
            client, wanted, errand.flight.source, [], errand.flight, result="found", from_peer=from_peer
        )
        errand.first = follower
        errand.join(follower, wanted)
        # limits are enforced by the router that receives a request; the key's home router would not know of them
        here = from_peer or _is_limited(wanted.route)
        errand.go(None if here else self._home_of(key))
        return follower

    def _stale(self, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return a stale answer that may be served while a new one is computed; None if there is none."""
        caching, route = wanted.caching, wanted.route
        if not caching.stale or _is_limited(route):  # limits count what is computed, for one caller or another
            return None
        cached_answer = self._memory.get(route.group, wanted.key)
        if cached_answer is None or self._purges.forbid_kept(cached_answer):
            return None
        cached_answer = freshness.held_to(cached_answer, caching.ttl)
        given = freshness.may_be_given_stale(
            cached_answer, wanted.directives, self.wall(), ttl=caching.ttl, stale=caching.stale
        )
        return cached_answer if given else None

    def _revalidate(self, wanted: WantedAnswer, *, from_peer: bool) -> None:
        """Recompute a stale answer in the background, unless that is under way or too many are recomputed already."""
        if wanted.key in self._errands or self._revalidations.full or wanted.directives.only_if_cached:
            return
        errand = Errand(wanted._replace(observed=None), self)
        self._errands.add(errand)
        self._revalidations.add(wanted.key, errand.flight)
        errand.go(None if from_peer else self._home_of(wanted.key))

    def tick(self, now: float) -> None:
        """Enforce the deadlines of revalidations, for which no client waits; called every second."""
        self._revalidations.tick(now)
        self.observer.tick(now)

    def _home_of(self, key: CacheKey) -> str | None:
        home = self.home(key)
        return None if home is None or self._shunned.get(home, 0.0) > self._clock() else home

    def shun(self, address: str) -> None:
        """Send no requests to the router at an address for a while."""
        now = self._clock()
        self._shunned = {item: until for item, until in self._shunned.items() if until > now}
        self._shunned[address] = now + SHUN_SECONDS

    def _follower(
        self,
        client: ClientConnection,
        wanted: WantedAnswer,
        source: Source,
        fields: Headers,
        flight: Flight | None = None,
        *,
        result: str,
        from_peer: bool = False,
    ) -> Follower:
        """Return a follower for a request; `result` is logged and traced, unless a relay counts the request."""
        account, tracer, span = feature_of(wanted.route.features, CallerAccount), self.tracer, None
        traceparent, began = wanted.request.head.fields.get(TRACEPARENT, b""), self._clock()
        request_id, logged = self._ids.of(wanted.request), access.isEnabledFor(logging.INFO)
        caller = wanted.route.caller.name
        ids = id_fields(endpoint_of(wanted.request.head.path).form, request_id)[1:]
        if account is not None and account.charge is not None:
            fields = [*fields, *self._limiter.headers(account.charge, self._clock())]
        if tracer is not None:
            header, span = tracer.begin(traceparent, began)
            traceparent = header or traceparent

        def settle(event: str, usage: Usage | None) -> None:
            self._eligibility.withdraw(wanted.route)
            if caller and event in ("served", "refused"):
                use = self.metrics.callers.of(wanted.route.group, caller)
                use.answered(source.status)
                use.reused_tokens += usage.completion_tokens if usage is not None else 0
            if span is not None:
                self._end_span(span, wanted, source.status, result)
            if logged:
                document = _attributes(wanted, result) | {"promptgroup.seconds": round(self._clock() - began, 6)}
                log_without_engine(event, request_id, source.status, traceparent, document)

        return Follower(
            client,
            wanted.request,
            source,
            fields=[*fields, *ids, (_REVISION, wanted.route.revision.encode())],
            request_id=request_id,
            answer_id=self._ids.new(),
            group=wanted.route.group,
            metrics=self.metrics,
            clock=self._clock,
            shared=flight,
            patience=PEER_STALL_SECONDS if from_peer else STALL_SECONDS,
            tail=_tail_of(wanted) if caller else None,
            ended=settle if caller or account is not None or span is not None or logged else None,
        )

    def _end_span(self, span: RequestTrace, wanted: WantedAnswer, status: int, result: str) -> None:
        """End the span of a request that was served a cached or shared answer."""
        path, document = wanted.request.head.path, _attributes(wanted, result)
        end_without_engine(span, path, status=status, now=self._clock(), further=document)

    # --- Answers ----------------------------------------------------------------------------------------------------

    def cached(self, key: CacheKey, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return the answer in memory that may be served to a request; None if there is none."""
        cached_answer = self._memory.get(wanted.route.group, key)
        return self.given(cached_answer, wanted) if cached_answer is not None else None

    def given(self, cached_answer: KeptAnswer, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return a cached answer as it may be served to a request; None if it may not, or a purge covers it."""
        held = freshness.held_to(cached_answer, wanted.caching.ttl)
        fresh = freshness.may_be_given(held, wanted.directives, self.wall())
        return held if fresh and not self._purges.forbid_kept(held) else None

    def landed(self, errand: Errand) -> None:
        """Cache the answer of a flight that has ended, if it is cacheable."""
        desired, flight = errand.wanted, errand.flight
        newest = self._errands.end(errand)
        cached_answer = errand.cached_answer or _to_keep(errand)
        if cached_answer is not None:
            too_old = cached_answer.born < newest or cached_answer.age(self.wall()) >= cached_answer.lifetime
            cached_answer = None if too_old or self._purges.forbid_kept(cached_answer) else cached_answer
        if errand.observed is not None:
            errand.observed.computed(cached_answer.key if cached_answer is not None else None)
        if cached_answer is None:
            return
        self._errands.landed(desired.key, cached_answer.born)
        self._memory.put(cached_answer, desired.caching.max_bytes)
        if self.store is not None and flight.complete and not errand.fetched and errand.cached_answer is None:
            self.store.put(cached_answer)

    def tell(self) -> None:
        """Update the gauges."""
        groups = self._memory.groups.items()
        self.metrics.responses_bytes.replace({(label,): group_answers.bytes for label, group_answers in groups})
        self.metrics.responses_kept.replace({(label,): len(group_answers) for label, group_answers in groups})
        self.metrics.responses_evicted.replace({(): self._memory.evictions})
        self.observer.tell()

    def keep_groups(self, caching: dict[str, ResponseCaching]) -> None:
        """Remove the answers of groups that are not listed, and shrink the other groups to their limits."""
        self._memory.keep({group: rules.max_bytes for group, rules in caching.items()})
        self.observer.keep_groups(caching)

    def purge(self, purge: Purge) -> int:
        """Remove answers from memory, and do not cache those in progress. Return the number of removed answers."""
        self._purges.add(purge, self.wall())
        if self._purge_file is not None:
            self._purge_file.save(self._purges)
        self.observer.purge(purge)
        self._errands.purge(purge)
        return self._memory.remove_if(
            lambda cached_answer: purge.covers(cached_answer.key, cached_answer.group, cached_answer.revision)
        )

    async def purge_everywhere(self, purge: Purge) -> int:
        """Remove answers from memory and from the store. Return the number of answers removed from memory.

        Raises:
            ApiError: 503: the store may still hold some of the answers.
        """
        count = self.purge(purge)
        if self.store is not None:
            try:
                await self.store.purge(purge)
            except OSError as error:
                problem = f"the answers in memory are forgotten, and the store may keep some: {error}; purge again"
                raise ApiError(503, problem, code="overloaded") from None
        return count


def _is_limited(route: Route) -> bool:
    account = feature_of(route.features, CallerAccount)
    return account is not None and account.charge is not None


def _named_headers(request: HttpRequest, route: Route) -> list[bytes]:
    """Return the lines of this request's header fields that engines get because the group lists them."""
    named = route.candidates.rules.headers
    return forwarded(request.head, frozenset(name.encode() for name in named)) if named else []


def _engine_body(request: ParsedRequest, route: Route) -> bytes | bytearray:
    """Return the body for an engine, serialized from the document from which the key was computed.

    An engine could interpret the received bytes differently, for example where a field occurs twice.
    """
    as_received = route.rewrite.body is request.raw
    if not (as_received or route.rewrite.domain.salt):
        return route.rewrite.body
    return encoded(request.doc if as_received else read_object(bytes(route.rewrite.body))[0])


def _tail_of(wanted: WantedAnswer) -> Tail:
    """Return the reader of the usage at the end of a cached or shared answer."""
    return endpoint_of(wanted.request.head.path).tail()


def _attributes(wanted: WantedAnswer, result: str) -> dict[str, Value]:
    """Return the attributes, for the span and the access log, of a request with a cached or shared answer."""
    route = wanted.route
    values: dict[str, Value] = {
        "gen_ai.request.model": route.model[:256],
        "promptgroup.group": route.group,
        "promptgroup.revision": route.revision,
        "promptgroup.matched_by": route.matched_by.value,
        "promptgroup.response_cache": result,
    }
    if route.caller.name:
        values["promptgroup.caller"] = route.caller.name
    return values


def _to_keep(errand: Errand) -> KeptAnswer | None:
    """Return the answer of a flight as it is cached; None if it is not cacheable."""
    desired, source = errand.wanted, errand.flight.source
    if source.state is not SourceState.WHOLE or source.status != OK or not errand.flight.complete:
        return None
    if not is_whole(desired.kind, source.pieces, streamed=source.streamed):
        return None
    cached_answer = KeptAnswer(
        key=desired.key,
        group=desired.route.group,
        revision=desired.route.revision,
        content_type=next((value for name, value in source.headers if name == b"content-type"), b""),
        pieces=tuple(source.shared),
        id=source.id,
        born=errand.born,
        lifetime=freshness.lifetime(desired.caching.ttl, desired.directives.ttl, desired.key),
    )
    return cached_answer if cached_answer.size <= MOST_BYTES else None
