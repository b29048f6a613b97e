"""The response cache of a router process: what it keeps, what is on its way, and who is asked for what is not here."""

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
from promptgroup_router.callers.engine_fields import CACHE_FIELD
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
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.route import Route
from promptgroup_router.semantic.question import Circumstances, Question, read_question
from promptgroup_router.semantic.similar_answers import NO_QUESTION, SimilarAnswers
from promptgroup_router.tracing.trace_context import HEADER as TRACEPARENT
from promptgroup_router.tracing.tracer import RequestSpan, Tracer, Value

OK = 200
SHUN_SECONDS = 5.0
"""Time for which a router that could not be reached is asked nothing: as long as peers take to miss one."""

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
        tracer: Tracer | None = None,
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
            home: a key → `host:port` of the router that answers for it; None for this one.
            lives: whether another router, `host:port`, is there.
            store: keeps answers for all routers; None without one.
            similar: finds the answers of similar questions; None where nobody wants them.
            tracer: records requests that no engine is asked for; None where nobody wants it.
            purge_file: keeps purges over restarts; None to forget them.
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
        """`host:port` of another router → monotonic seconds until which it is sent nothing."""
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
        found: Route,
        kept: KeptRequest,
        begin: Begin,
        *,
        from_peer: bool,
    ) -> ActiveRequest:
        """Answer a request of a group that keeps answers, or return what will.

        Args:
            client: the connection.
            request: the request.
            found: where it may go.
            kept: what was asked.
            begin: asks an engine.
            from_peer: whether another router asks this one, as the key's home.

        Raises:
            ApiError: 400: the body's `cache` cannot be read; 504: only a kept answer is wanted, and there is none.
        """
        caching, settings = found.candidates.responses, found.candidates.settings
        ask, endpoint = kept.ask, endpoint_of(request.head.path)
        if caching is None or ask is None:
            raise RuntimeError(f"{found.group} keeps no answers: check before the call")
        asked = self._asked(request, found, ask)
        sharers = _sharers(caching, found, request.head.fields)
        allowed = found.rewrite.allowed
        if feature_of(found.features, CacheDiagnosis) is not None:
            reason: Bypass | None = Bypass.QUESTION
        elif endpoint.cached:
            reason = _reason(ask, caching, settings, allowed, asked=asked, sharers=sharers)
        else:
            reason = Bypass.API
        named = partial(
            cache_key,
            path=request.head.path,
            query=engine_query(endpoint, request.head.path, request.head.query),
            revision=found.candidates.id,
            settings=settings,
            model=found.model,
            preamble=found.rewrite.preamble,
            allowed=allowed,
            sharers=sharers or b"",
            space=asked.namespace,
            headers=_named_headers(request, found),
        )
        wanted = None
        try:
            # what was parsed takes more memory than the body, and is not needed any more
            found.rewrite.body = _engine_body(ask, found)
            kept.ask = None
            if reason is None and sharers is not None:
                wanted = WantedAnswer(named(ask), found, caching, asked, request, ask.kind, begin)
                if caching.semantic is not None and not from_peer and not asked.no_cache:
                    wanted = wanted._replace(question=_question(ask, found, named))
        except ApiError:  # nested too deeply to be written again
            reason, wanted = reason or Bypass.REQUEST, None
        if wanted is None:
            return begin(client, request, found, self._past(found, asked, reason or Bypass.CALLER))
        return self._answer(client, wanted, from_peer=from_peer)

    def pass_by(self, request: HttpRequest, found: Route, ask: ParsedRequest) -> Headers:
        """Let a request past the cache, of whose body there is a digest alone.

        Args:
            request: the request.
            found: where it goes.
            ask: the digest.

        Returns:
            What its answer says of the cache.

        Raises:
            ApiError: as `start` does.
        """
        return self._past(found, self._asked(request, found, ask), Bypass.LARGE)

    def _asked(self, request: HttpRequest, found: Route, ask: ParsedRequest) -> Directives:
        try:
            return read_directives(pairs(request.head.headers), ask.doc.get(CACHE_FIELD))
        except ApiError:
            self._withdraw(found)
            raise

    def _past(self, found: Route, asked: Directives, reason: Bypass) -> Headers:
        if asked.only_if_cached:
            raise self._not_kept(found)
        self.metrics.responses.add(found.group, "bypass")
        return cache_status.of_bypass(reason)

    def _answer(self, client: ClientConnection, wanted: WantedAnswer, *, from_peer: bool) -> ActiveRequest:
        key, group, asked = wanted.key, wanted.route.group, wanted.asked
        kept = self.kept(key, wanted)
        if kept is not None:
            self.metrics.responses.add(group, "hit")
            fields = cache_status.of_hit(kept, self.wall())
            follower = self._follower(client, wanted, kept_source(kept), fields, result="hit")
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
        if asked.only_if_cached:
            raise self._not_kept(wanted.route)
        running = None
        if not asked.no_cache and asked.max_age is None:
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
        if wanted.caching.semantic is not None and wanted.question is None and not from_peer and not asked.no_cache:
            self.metrics.semantic.add(group, NO_QUESTION)
        # limits are kept where a request arrives, which its home would not know
        here = from_peer or _is_limited(wanted.route)
        errand.go(None if here else self._home_of(key))
        return follower

    def _stale(self, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return an answer that is too old, and may be given all the same while another is computed."""
        caching, route = wanted.caching, wanted.route
        if not caching.stale or _is_limited(route):  # limits count what is computed, for one caller or another
            return None
        kept = self._memory.get(route.group, wanted.key)
        if kept is None or self._purges.forbid_kept(kept):
            return None
        kept = freshness.held_to(kept, caching.ttl)
        given = freshness.may_be_given_stale(kept, wanted.asked, self.wall(), ttl=caching.ttl, stale=caching.stale)
        return kept if given else None

    def _revalidate(self, wanted: WantedAnswer, *, from_peer: bool) -> None:
        """Compute an answer again, unless somebody does."""
        if wanted.key in self._errands or self._revalidations.full or wanted.asked.only_if_cached:
            return
        errand = Errand(wanted._replace(question=None), self)
        self._errands.add(errand)
        self._revalidations.add(wanted.key, errand.flight)
        errand.go(None if from_peer else self._home_of(wanted.key))

    def tick(self, now: float) -> None:
        """Enforce the deadlines of what no client waits for; called every second."""
        self._revalidations.tick(now)

    def _not_kept(self, found: Route) -> ApiError:
        self._withdraw(found)
        return ApiError(504, "there is no kept answer: leave out `only-if-cached` for an engine's", code="not_cached")

    def _home_of(self, key: CacheKey) -> str | None:
        home = self.home(key)
        return None if home is None or self._shunned.get(home, 0.0) > self._clock() else home

    def shun(self, address: str) -> None:
        """Send nothing to the router at an address for a while."""
        now = self._clock()
        self._shunned = {each: until for each, until in self._shunned.items() if until > now}
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
        """Return what answers a request from a source; `result` is told of it, unless a relay counts the request."""
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
            if tracer is not None and span is not None:
                self._end_span(tracer, span, wanted, source.status, result)
            if logged:
                told = _told(wanted, result) | {"promptgroup.seconds": round(self._clock() - began, 6)}
                log_without_engine(event, request_id, source.status, traceparent, told)

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

    def _end_span(self, tracer: Tracer, span: RequestSpan, wanted: WantedAnswer, status: int, result: str) -> None:
        """End the span of a request that got a kept or a shared answer."""
        path, told = wanted.request.head.path, _told(wanted, result)
        end_without_engine(tracer, span, path, status=status, now=self._clock(), told=told)

    def _withdraw(self, route: Route) -> None:
        """Take back the tokens of a request that no engine has computed; it counts as a request."""
        for feature in route.features:
            feature.withdrawn(self._clock())

    # --- Answers ----------------------------------------------------------------------------------------------------

    def kept(self, key: CacheKey, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return an answer that is kept here and may be given to a request, if there is one."""
        kept = self._memory.get(wanted.route.group, key)
        return self.given(kept, wanted) if kept is not None else None

    def given(self, kept: KeptAnswer, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return a kept answer as it may be given to a request; None if it may not, or a purge covers it."""
        held = freshness.held_to(kept, wanted.caching.ttl)
        fresh = freshness.may_be_given(held, wanted.asked, self.wall())
        return held if fresh and not self._purges.forbid_kept(held) else None

    def landed(self, errand: Errand) -> None:
        """Keep the answer of a flight that has ended, if it may be kept."""
        wanted, flight = errand.wanted, errand.flight
        newest = self._errands.end(errand)
        kept = errand.found or _to_keep(errand)
        if kept is not None:
            too_old = kept.born < newest or kept.age(self.wall()) >= kept.lifetime
            kept = None if too_old or self._purges.forbid_kept(kept) else kept
        if errand.search is not None:
            errand.search.landed(kept.key if kept is not None else None)
        if kept is None:
            return
        self._errands.landed(wanted.key, kept.born)
        self._memory.put(kept, wanted.caching.max_bytes)
        if self.store is not None and flight.complete and not errand.fetched and errand.found is None:
            self.store.put(kept)

    def tell(self) -> None:
        """Write the gauges."""
        groups = self._memory.groups.items()
        self.metrics.responses_bytes.replace({(label,): each.bytes for label, each in groups})
        self.metrics.responses_kept.replace({(label,): len(each) for label, each in groups})
        self.metrics.responses_evicted.replace({(): self._memory.evictions})
        if self.similar is not None:
            self.similar.tell()

    def keep_groups(self, caching: dict[str, ResponseCaching]) -> None:
        """Forget the answers of groups that are not listed, and bring the others within their limits."""
        self._memory.keep({group: each.max_bytes for group, each in caching.items()})
        if self.similar is not None:
            rules = {group: each.semantic for group, each in caching.items()}
            self.similar.keep_groups({group: each.max_entries for group, each in rules.items() if each is not None})

    def purge(self, purge: Purge) -> int:
        """Forget answers, and keep none of those that are on their way. Return the number of those forgotten."""
        self._purges.add(purge, self.wall())
        if self._purge_file is not None:
            self._purge_file.save(self._purges)
        if self.similar is not None:
            self.similar.purge(purge)
        self._errands.purge(purge)
        return self._memory.remove_if(lambda kept: purge.covers(kept.key, kept.group, kept.revision))

    async def purge_everywhere(self, purge: Purge) -> int:
        """Forget answers here, and remove them from the store. Return the number of those forgotten here.

        Raises:
            ApiError: 503: the store may have some left.
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
    ask: ParsedRequest,
    caching: ResponseCaching,
    settings: str,
    allowed: frozenset[EngineField],
    *,
    asked: Directives,
    sharers: bytes | None,
) -> Bypass | None:
    if asked.no_store:
        return Bypass.REQUEST
    return bypass(ask, caching, settings, allowed) or (Bypass.CALLER if sharers is None else None)


def _question(ask: ParsedRequest, found: Route, named: Callable[[ParsedRequest], CacheKey]) -> Question | None:
    """Return the question of a request; None if it has none. `named` returns the key of a request's answer."""
    preamble = found.rewrite.preamble
    parts = read_question(ask) if preamble is None or preamble.tools is None else None
    return Question(parts[0], Circumstances(named(parts[1]))) if parts is not None else None


def _is_limited(route: Route) -> bool:
    account = feature_of(route.features, CallerAccount)
    return account is not None and account.charge is not None


def _sharers(caching: ResponseCaching, found: Route, fields: dict[bytes, bytes]) -> bytes | None:
    """Return a name for those who share a request's answer, empty for all; None if nobody can tell them from others.

    A credential that only the engine checks parts those who send it from all others: whoever has none, or a wrong one,
    must be refused by the engine.
    """
    if found.rewrite.domain.salt:
        return (
            b"salt:" + found.rewrite.domain.salt.encode()
        )  # callers who are kept apart in engines are kept apart here
    if found.caller.name:
        return b"" if caching.scope is CacheScope.GROUP else b"name:" + found.caller.name.encode()
    given = [name + b":" + fields[name] for name in CREDENTIALS if name in fields]
    if given:
        return b"credential:" + blake2b(b"\n".join(given), digest_size=16).hexdigest().encode()
    return b"" if caching.scope is CacheScope.GROUP else None


def _named_headers(request: HttpRequest, found: Route) -> list[bytes]:
    """Return the lines of the header fields that an engine gets of this request because the group names them."""
    named = found.candidates.rules.headers
    return forwarded(request.head, frozenset(name.encode() for name in named)) if named else []


def _engine_body(ask: ParsedRequest, found: Route) -> bytes | bytearray:
    """Return the body for an engine, written from what the key was made from.

    What was received could be read in another way by an engine, as where it names a field twice.
    """
    as_received = found.rewrite.body is ask.raw
    if not (as_received or found.rewrite.domain.salt):
        return found.rewrite.body
    return encoded(ask.doc if as_received else read_object(bytes(found.rewrite.body))[0])


def _tail_of(wanted: WantedAnswer) -> Tail:
    """Return what keeps the end of a kept or shared answer."""
    return endpoint_of(wanted.request.head.path).tail()


def _told(wanted: WantedAnswer, result: str) -> dict[str, Value]:
    """Return what a span and the access log have of a request that got a kept or a shared answer."""
    route = wanted.route
    told: dict[str, Value] = {
        "gen_ai.request.model": route.model[:256],
        "promptgroup.group": route.group,
        "promptgroup.revision": route.revision,
        "promptgroup.matched_by": route.matched_by.value,
        "promptgroup.response_cache": result,
    }
    if route.caller.name:
        told["promptgroup.caller"] = route.caller.name
    return told


def _to_keep(errand: Errand) -> KeptAnswer | None:
    """Return the answer of a flight; None if it may not be kept."""
    wanted, source = errand.wanted, errand.flight.source
    if source.state is not SourceState.WHOLE or source.status != OK or not errand.flight.complete:
        return None
    if not is_whole(wanted.kind, source.pieces, streamed=source.streamed):
        return None
    kept = KeptAnswer(
        key=wanted.key,
        group=wanted.route.group,
        revision=wanted.route.revision,
        content_type=next((value for name, value in source.headers if name == b"content-type"), b""),
        pieces=tuple(source.shared),
        id=source.id,
        born=errand.born,
        lifetime=freshness.lifetime(wanted.caching.ttl, wanted.asked.ttl, wanted.key),
    )
    return kept if kept.size <= MOST_BYTES else None
