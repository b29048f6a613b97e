"""The response cache of a router process: cached answers, answers in progress, and where to get those it lacks."""

import logging
from collections.abc import Callable
from functools import partial
from hashlib import blake2b

from promptgroup_contract import names
from promptgroup_contract.caller_rules import EngineField
from promptgroup_contract.table import CacheScope, ResponseCaching
from promptgroup_router.apis.request import ParsedRequest, encoded, read_object
from promptgroup_router.apis.session_key import CREDENTIALS
from promptgroup_router.apis.usage import Tail, Usage
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.decision.arrival import endpoint_of
from promptgroup_router.decision.engine_query import engine_query
from promptgroup_router.decision.record import access, log_without_engine
from promptgroup_router.decision.span_attributes import end_without_engine
from promptgroup_router.features.cache_diagnosis import CacheDiagnosis
from promptgroup_router.features.caller_account import CallerAccount
from promptgroup_router.features.kept_request import KeptRequest
from promptgroup_router.flights.answer_store import AnswerStore
from promptgroup_router.flights.errand import Errand, WantedAnswer
from promptgroup_router.flights.flight import Flight
from promptgroup_router.flights.follower import PEER_STALL_SECONDS, STALL_SECONDS, Follower
from promptgroup_router.flights.purge_file import PurgeFile
from promptgroup_router.flights.revalidation import Revalidations
from promptgroup_router.flights.source import Source, SourceState, kept_source
from promptgroup_router.flights.under_way import UnderWay
from promptgroup_router.http11.http1 import Headers, forwarded, pairs
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.http11.trace_context import HEADER as TRACEPARENT
from promptgroup_router.proxy.api_handler import Begin
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection
from promptgroup_router.proxy.request_ids import RequestIds
from promptgroup_router.proxy.response import id_fields
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.response_cache import cache_status, freshness
from promptgroup_router.response_cache.answer import MOST_BYTES, KeptAnswer
from promptgroup_router.response_cache.cacheable import Bypass, bypass
from promptgroup_router.response_cache.canonical import CacheKey, cache_key
from promptgroup_router.response_cache.directives import Directives, read_directives
from promptgroup_router.response_cache.memory import Memory
from promptgroup_router.response_cache.purge import Purge, Purges
from promptgroup_router.response_cache.wholeness import is_whole
from promptgroup_router.routing.engine_fields import CACHE_FIELD
from promptgroup_router.routing.points import RequestTrace, RequestTracer, Value, feature_of
from promptgroup_router.routing.route import Route
from promptgroup_router.semantic.question import Circumstances, Question, read_question
from promptgroup_router.semantic.similar_answers import NO_QUESTION, SimilarAnswers

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
        similar: SimilarAnswers | None = None,
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
            similar: searches for similar questions; None where that is off.
            tracer: records spans of requests that are answered without an engine; None where tracing is off.
            purge_file: stores purges across restarts; None to lose them at a restart.
        """
        self.metrics = metrics
        self.connections = connections
        self.tracer = tracer
        self.store = store
        self.similar = similar
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
        """Answer a request of a group with a response cache, from the cache or by an engine; None for any other.

        Args:
            client: the connection.
            request: the request.
            route: its route.
            begin: sends a request to an engine.
            from_peer: whether another router sent the request to this one, as the key's home router.

        Raises:
            ApiError: 400: the body's `cache` is invalid; 504: the client accepts only a cached answer, and there is
                none.
        """
        caching, settings = route.candidates.responses, route.candidates.settings
        kept_request = feature_of(route.features, KeptRequest)
        if kept_request is None:
            return None
        parsed_request, endpoint = kept_request.ask, endpoint_of(request.head.path)
        if caching is None or parsed_request is None:
            raise RuntimeError(f"{route.group} keeps no answers: check before the call")
        directives = self._asked(request, route, parsed_request)
        sharers = _sharers(caching, route, request.head.fields)
        allowed = route.rewrite.allowed
        if feature_of(route.features, CacheDiagnosis) is not None:
            reason: Bypass | None = Bypass.QUESTION
        elif endpoint.cached:
            reason = _reason(parsed_request, caching, settings, allowed, asked=directives, sharers=sharers)
        else:
            reason = Bypass.API
        named = partial(
            cache_key,
            path=request.head.path,
            query=engine_query(endpoint, request.head.path, request.head.query),
            revision=route.candidates.id,
            settings=settings,
            model=route.model,
            preamble=route.rewrite.preamble,
            allowed=allowed,
            sharers=sharers or b"",
            space=directives.namespace,
            headers=_named_headers(request, route),
        )
        wanted_answer = None
        try:
            # the parsed document takes more memory than the body, and is not needed any more
            route.rewrite.body = _engine_body(parsed_request, route)
            kept_request.ask = None
            if reason is None and sharers is not None:
                wanted_answer = WantedAnswer(
                    named(parsed_request), route, caching, directives, request, parsed_request.kind, begin
                )
                if caching.semantic is not None and not from_peer and not directives.no_cache:
                    wanted_answer = wanted_answer._replace(question=_question(parsed_request, route, named))
        except ApiError:  # nested too deeply to be written again
            reason, wanted_answer = reason or Bypass.REQUEST, None
        if wanted_answer is None:
            return begin(client, request, route, self._past(route, directives, reason or Bypass.CALLER))
        return self._answer(client, wanted_answer, from_peer=from_peer)

    def pass_by(self, request: HttpRequest, route: Route, parsed_request: ParsedRequest) -> Headers:
        """Return the cache header fields of a request that bypasses the cache, since only its digest is available.

        Args:
            request: the request.
            route: its route.
            parsed_request: the request, made from its digest.

        Returns:
            The header fields of its answer that report the result of the cache.

        Raises:
            ApiError: as `start` does.
        """
        return self._past(route, self._asked(request, route, parsed_request), Bypass.LARGE)

    def _asked(self, request: HttpRequest, route: Route, parsed_request: ParsedRequest) -> Directives:
        try:
            return read_directives(pairs(request.head.headers), parsed_request.doc.get(CACHE_FIELD))
        except ApiError:
            self._withdraw(route)
            raise

    def _past(self, route: Route, directives: Directives, reason: Bypass) -> Headers:
        if directives.only_if_cached:
            raise self._not_kept(route)
        self.metrics.responses.add(route.group, "bypass")
        return cache_status.of_bypass(reason)

    def _answer(self, client: ClientConnection, wanted: WantedAnswer, *, from_peer: bool) -> ActiveRequest:
        key, group, requested = wanted.key, wanted.route.group, wanted.asked
        kept_answer = self.kept(key, wanted)
        if kept_answer is not None:
            self.metrics.responses.add(group, "hit")
            fields = cache_status.of_hit(kept_answer, self.wall())
            follower = self._follower(client, wanted, kept_source(kept_answer), fields, result="hit")
            follower.advance()
            return follower
        stale = self._stale(wanted)
        if stale is not None:
            self.metrics.responses.add(group, "stale")
            fields = cache_status.of_hit(stale, self.wall())
            follower = self._follower(client, wanted, kept_source(stale), fields, result="stale")
            follower.advance()
            self._revalidate(wanted, from_peer=from_peer)
            return follower
        if requested.only_if_cached:
            raise self._not_kept(wanted.route)
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
        if wanted.caching.semantic is not None and wanted.question is None and not from_peer and not requested.no_cache:
            self.metrics.semantic.add(group, NO_QUESTION)
        # limits are enforced by the router that receives a request; the key's home router would not know of them
        here = from_peer or _is_limited(wanted.route)
        errand.go(None if here else self._home_of(key))
        return follower

    def _stale(self, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return a stale answer that may be served while a new one is computed; None if there is none."""
        caching, route = wanted.caching, wanted.route
        if not caching.stale or _is_limited(route):  # limits count what is computed, for one caller or another
            return None
        kept_answer = self._memory.get(route.group, wanted.key)
        if kept_answer is None or self._purges.forbid_kept(kept_answer):
            return None
        kept_answer = freshness.held_to(kept_answer, caching.ttl)
        given = freshness.may_be_given_stale(
            kept_answer, wanted.asked, self.wall(), ttl=caching.ttl, stale=caching.stale
        )
        return kept_answer if given else None

    def _revalidate(self, wanted: WantedAnswer, *, from_peer: bool) -> None:
        """Recompute a stale answer in the background, unless that is under way or too many are recomputed already."""
        if wanted.key in self._errands or self._revalidations.full or wanted.asked.only_if_cached:
            return
        errand = Errand(wanted._replace(question=None), self)
        self._errands.add(errand)
        self._revalidations.add(wanted.key, errand.flight)
        errand.go(None if from_peer else self._home_of(wanted.key))

    def tick(self, now: float) -> None:
        """Enforce the deadlines of revalidations, for which no client waits; called every second."""
        self._revalidations.tick(now)

    def _not_kept(self, route: Route) -> ApiError:
        self._withdraw(route)
        return ApiError(504, "there is no kept answer: leave out `only-if-cached` for an engine's", code="not_cached")

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
            self._withdraw(wanted.route)
            if caller and event in ("served", "refused"):
                use = self.metrics.callers.of(wanted.route.group, caller)
                use.answered(source.status)
                use.kept_tokens += usage.completion_tokens if usage is not None else 0
            if span is not None:
                self._end_span(span, wanted, source.status, result)
            if logged:
                document = _told(wanted, result) | {"promptgroup.seconds": round(self._clock() - began, 6)}
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
        path, document = wanted.request.head.path, _told(wanted, result)
        end_without_engine(span, path, status=status, now=self._clock(), told=document)

    def _withdraw(self, route: Route) -> None:
        """Refund the tokens charged for a request that no engine has computed; it still counts as a request."""
        for feature in route.features:
            feature.withdrawn(self._clock())

    # --- Answers ----------------------------------------------------------------------------------------------------

    def kept(self, key: CacheKey, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return the answer in memory that may be served to a request; None if there is none."""
        kept_answer = self._memory.get(wanted.route.group, key)
        return self.given(kept_answer, wanted) if kept_answer is not None else None

    def given(self, kept_answer: KeptAnswer, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return a cached answer as it may be served to a request; None if it may not, or a purge covers it."""
        held = freshness.held_to(kept_answer, wanted.caching.ttl)
        fresh = freshness.may_be_given(held, wanted.asked, self.wall())
        return held if fresh and not self._purges.forbid_kept(held) else None

    def landed(self, errand: Errand) -> None:
        """Cache the answer of a flight that has ended, if it is cacheable."""
        desired, flight = errand.wanted, errand.flight
        newest = self._errands.end(errand)
        kept_answer = errand.found or _to_keep(errand)
        if kept_answer is not None:
            too_old = kept_answer.born < newest or kept_answer.age(self.wall()) >= kept_answer.lifetime
            kept_answer = None if too_old or self._purges.forbid_kept(kept_answer) else kept_answer
        if errand.search is not None:
            errand.search.landed(kept_answer.key if kept_answer is not None else None)
        if kept_answer is None:
            return
        self._errands.landed(desired.key, kept_answer.born)
        self._memory.put(kept_answer, desired.caching.max_bytes)
        if self.store is not None and flight.complete and not errand.fetched and errand.found is None:
            self.store.put(kept_answer)

    def tell(self) -> None:
        """Update the gauges."""
        groups = self._memory.groups.items()
        self.metrics.responses_bytes.replace({(label,): group_answers.bytes for label, group_answers in groups})
        self.metrics.responses_kept.replace({(label,): len(group_answers) for label, group_answers in groups})
        self.metrics.responses_evicted.replace({(): self._memory.evictions})
        if self.similar is not None:
            self.similar.tell()

    def keep_groups(self, caching: dict[str, ResponseCaching]) -> None:
        """Remove the answers of groups that are not listed, and shrink the other groups to their limits."""
        self._memory.keep({group: semantic_caching.max_bytes for group, semantic_caching in caching.items()})
        if self.similar is not None:
            rules = {group: semantic_caching.semantic for group, semantic_caching in caching.items()}
            self.similar.keep_groups(
                {
                    group: semantic_caching.max_entries
                    for group, semantic_caching in rules.items()
                    if semantic_caching is not None
                }
            )

    def purge(self, purge: Purge) -> int:
        """Remove answers from memory, and do not cache those in progress. Return the number of removed answers."""
        self._purges.add(purge, self.wall())
        if self._purge_file is not None:
            self._purge_file.save(self._purges)
        if self.similar is not None:
            self.similar.purge(purge)
        self._errands.purge(purge)
        return self._memory.remove_if(
            lambda kept_answer: purge.covers(kept_answer.key, kept_answer.group, kept_answer.revision)
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


def _reason(
    request: ParsedRequest,
    caching: ResponseCaching,
    settings: str,
    allowed: frozenset[EngineField],
    *,
    asked: Directives,
    sharers: bytes | None,
) -> Bypass | None:
    if asked.no_store:
        return Bypass.REQUEST
    return bypass(request, caching, settings, allowed) or (Bypass.CALLER if sharers is None else None)


def _question(request: ParsedRequest, route: Route, named: Callable[[ParsedRequest], CacheKey]) -> Question | None:
    """Return the question of a request; None if it has none. `named` returns the cache key of a request."""
    preamble = route.rewrite.preamble
    parts = read_question(request) if preamble is None or preamble.tools is None else None
    return Question(parts[0], Circumstances(named(parts[1]))) if parts is not None else None


def _is_limited(route: Route) -> bool:
    account = feature_of(route.features, CallerAccount)
    return account is not None and account.charge is not None


def _sharers(caching: ResponseCaching, route: Route, fields: dict[bytes, bytes]) -> bytes | None:
    """Return an identifier of the callers that share a request's answer; empty for all, None if it is undetermined.

    A credential that only the engine verifies separates the callers that send it from all others: a caller without a
    credential, or with a wrong one, must be refused by the engine.
    """
    if route.rewrite.domain.salt:
        return (
            b"salt:" + route.rewrite.domain.salt.encode()
        )  # callers that are isolated in engines' caches are isolated here
    if route.caller.name:
        return b"" if caching.scope is CacheScope.GROUP else b"name:" + route.caller.name.encode()
    given = [name + b":" + fields[name] for name in CREDENTIALS if name in fields]
    if given:
        return b"credential:" + blake2b(b"\n".join(given), digest_size=16).hexdigest().encode()
    return b"" if caching.scope is CacheScope.GROUP else None


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


def _told(wanted: WantedAnswer, result: str) -> dict[str, Value]:
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
    kept_answer = KeptAnswer(
        key=desired.key,
        group=desired.route.group,
        revision=desired.route.revision,
        content_type=next((value for name, value in source.headers if name == b"content-type"), b""),
        pieces=tuple(source.shared),
        id=source.id,
        born=errand.born,
        lifetime=freshness.lifetime(desired.caching.ttl, desired.asked.ttl, desired.key),
    )
    return kept_answer if kept_answer.size <= MOST_BYTES else None
