"""Decides where a request may go: match, session, revision, demand, and the body for the engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import xxhash

from promptgroup_contract.access import ANONYMOUS, Access, Caller
from promptgroup_contract.caller_rules import EngineField, Priority
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.names import HEADER_GROUP, HEADER_NAMESPACE, HEADER_SESSION, UNMATCHED
from promptgroup_contract.table import Policy
from promptgroup_router.apis.by_model import renamed
from promptgroup_router.apis.conversation import first_bytes
from promptgroup_router.apis.endpoints import BODIES
from promptgroup_router.apis.request import ApiKind, ParsedRequest, Preamble, size_of
from promptgroup_router.apis.session_key import (
    NO_SESSION,
    RequestSession,
    SessionKey,
    find_session,
)
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import NO_REPLICA_SECONDS, ApiError, shown
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.expected_ttft import ANSWER
from promptgroup_router.policy.gossip import LAST_TURN
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.prefixes.cache_domain import SHARED, CacheDomain
from promptgroup_router.prefixes.leading import LEADING_BYTES, LEADING_IDS, leading_of
from promptgroup_router.prefixes.prompt_marks import ID_BYTES, LEAST, marks_of
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.rings.index import Candidates, GroupEntry, RevisionEntry, RoutingIndex, TenantEntry
from promptgroup_router.routing.admission_queue import Share
from promptgroup_router.routing.engine_fields import CUTTING, NONE, without_engine_fields
from promptgroup_router.routing.match import ByContent, ByName, MatchedBy, NoMatch, match_group
from promptgroup_router.routing.points import NO_CHANGES, NO_FEATURES, BodyChange, RequestFeature
from promptgroup_router.routing.process_points import GroupPoints, PlacedRequest, RoutingPoints

_GROUP, _NAMESPACE = HEADER_GROUP.encode(), HEADER_NAMESPACE.encode()
_prefix_key = cast("Callable[[bytes], PrefixKey]", xxhash.xxh3_64_intdigest)
_REVISION_SEED = 1
"""Makes a session's revision and its place on the ring independent of each other."""

_CONVERSATIONS = (ApiKind.CHAT, ApiKind.TEXT, ApiKind.MESSAGES, ApiKind.RESPONSES)
"""Requests that a declared prompt is put in front of."""

_RANKS = {priority: rank for rank, priority in enumerate(Priority)}


@dataclass(slots=True)
class Rewrite:
    """The changes by which a body becomes the engine's."""

    allowed: frozenset[EngineField] = frozenset()
    """Fields of the engine's operator that the group lets clients set."""
    stripped: frozenset[str] = NONE
    """The fields that engines do not get, beside those of their operator."""
    domain: CacheDomain = SHARED
    """The part of engines' caches that the request reads and writes."""
    ordered: bool = False
    """True if tools are put in the order in which the group's engines have them in cache."""
    preamble: Preamble | None = None
    """The declared prompt that is put in front."""
    model: str = ""
    """The model to name instead of the one that the client names; empty to leave that."""
    changes: tuple[BodyChange, ...] = NO_CHANGES
    """The changes of features."""
    body: bytes | bytearray = b""
    """The body for the engine. It is empty for a digest of a request, whose body another process makes."""


@dataclass(slots=True)
class Route:
    """The replicas that may serve a request, and what is sent there."""

    matched_by: MatchedBy
    group: str
    """`namespace/group`, or UNMATCHED."""
    model: str
    candidates: Candidates
    demand: Demand
    session: RequestSession
    rewrite: Rewrite
    """The body for the engine, and the changes by which it is made."""
    caller: Caller = ANONYMOUS
    """The caller who sent the request, identified by the access rules of its group."""
    revision: str = ""
    """Short fingerprint of the group's revision; empty without a group."""
    features: tuple[RequestFeature, ...] = NO_FEATURES
    """The features that have a part in the request, in the order in which they act."""

    def add(self, feature: RequestFeature) -> None:
        """Add a feature to the request, behind those that it has."""
        self.features = (*self.features, feature)

    def remove(self, feature: RequestFeature) -> None:
        """Remove a feature that has no part in the request any more."""
        self.features = tuple([item for item in self.features if item is not feature])


Identify = Callable[[Access | None, str], Caller]
"""An access (None: the router's own default) and a namespace → who sends the request at hand; raises ApiError (401,
403) if the sender is not identified or not authorized."""


def identify_nobody(_access: Access | None, _namespace: str) -> Caller:
    """Return ANONYMOUS, whatever the access: for tools that examine requests and send none."""
    return ANONYMOUS


def route(
    view: RoutingIndex,
    request: ParsedRequest,
    headers: dict[bytes, bytes],
    *,
    points: RoutingPoints,
    locations: SessionLocations,
    tokens: Tokens,
    now: float,
    cached: bool = True,
    metered: bool = False,
    identify: Identify = identify_nobody,
) -> Route:
    """Decide where a request may go.

    Args:
        view: the routing table.
        request: the request.
        headers: its header fields, names in lower case.
        points: the features that take part.
        locations: where sessions are cached.
        tokens: the lengths of texts in tokens.
        now: monotonic seconds.
        cached: whether the engine keeps the prompt in its KV cache.
        metered: whether the router may request the usage of streams, for which it must rewrite the answer.
        identify: returns who sends the request, by the access rules of its group.

    Raises:
        ApiError: the model or group is unknown, the caller is not identified (401) or may not use the group (403), the
            request cannot be combined with the group's prompt, or none of the group's replicas can take it (503).
    """
    rewrites = metered and cached
    match match_group(view, request, _named(headers, _GROUP), _named(headers, _NAMESPACE)):
        case ByContent(claim=claim):
            result = _by_content(
                view,
                claim,
                request,
                headers,
                points,
                tokens=tokens,
                locations=locations,
                now=now,
                identify=identify,
                cached=cached,
                rewrites=rewrites,
            )
        case ByName(group=group):
            result = _by_name(
                group,
                request,
                headers,
                points,
                tokens,
                locations=locations,
                now=now,
                identify=identify,
                cached=cached,
                rewrites=rewrites,
            )
        case NoMatch(model=tenant):
            result = _unmatched(
                tenant, request, headers, points, tokens, identify=identify, cached=cached, rewrites=rewrites
            )
    _check_adapter(result.candidates, request)
    if request.kind is ApiKind.RESPONSES:
        _continue(result, request, points, locations, now)
    if not cached:
        _place_anywhere(result, request)
    elif result.candidates.unranked and request.kind.value in result.candidates.unranked:
        _leave_rank_to_engine(result.demand)
    return result


def _by_content(
    view: RoutingIndex,
    revision: RevisionEntry,
    request: ParsedRequest,
    headers: dict[bytes, bytes],
    points: RoutingPoints,
    *,
    tokens: Tokens,
    locations: SessionLocations,
    now: float,
    identify: Identify,
    cached: bool,
    rewrites: bool,
) -> Route:
    """Return the route of a request that contains the prompt of a revision."""
    group = revision.group
    caller = identify(group.access, group.namespace)
    domain = _domain(points.of(revision.candidates.id), caller, group.namespace, request, cached=cached)
    messages, declared = revision.revision.messages, revision.revision.system_bytes
    session = _session(
        request,
        headers,
        revision.label,
        group.session_header,
        declared,
        points=points,
        messages=messages,
        caller=caller,
        domain=domain,
    )
    revision = _with_adapter(view, revision, points, locations, session, request=request, now=now, domain=domain)
    of_revision, model = points.of(revision.candidates.id), revision.candidates.served_model or group.model
    rewrite = Rewrite(
        group.callers.allowed,
        of_revision.stripped,
        domain,
        ordered=True,
        model="" if request.model == model else model,
        changes=_changes(of_revision, request, domain, cached=cached, rewrites=rewrites),
    )
    inside = declared + size_of(request.tools) + (first_bytes(request, messages) if messages else 0)
    return _to(
        MatchedBy.CONTENT,
        revision,
        session,
        request,
        rewrite=rewrite,
        inside=inside,
        messages=messages,
        rate=tokens.per_byte(group.model),
        caller=caller,
        domain=domain,
    )


def _by_name(
    group: GroupEntry,
    request: ParsedRequest,
    headers: dict[bytes, bytes],
    points: RoutingPoints,
    tokens: Tokens,
    *,
    locations: SessionLocations,
    now: float,
    identify: Identify,
    cached: bool,
    rewrites: bool,
) -> Route:
    """Return the route of a request that names a group, whose prompt is put in front of it."""
    caller = identify(group.group.access, group.group.namespace)
    rules = group.group.callers
    domain = _domain(points.of(group.label), caller, group.group.namespace, request, cached=cached)
    session = _session(
        request, headers, group.label, group.group.session_header, points=points, caller=caller, domain=domain
    )
    revision, prompt = _choose_revision(group, points, locations, session, request, now=now, domain=domain)
    of_revision = points.of(revision.candidates.id)
    features = NO_FEATURES
    for feature in of_revision.by_name:
        if (added := feature.by_name(request, cached=cached)) is not None:
            features = (*features, added)
    rewrite = Rewrite(
        rules.allowed,
        of_revision.stripped,
        domain,
        preamble=prompt,
        model=revision.candidates.served_model or group.group.model,
        changes=_changes(of_revision, request, domain, cached=cached, rewrites=rewrites),
    )
    inside = size_of(request.tools)
    put = revision.revision.system_bytes + size_of(prompt.canonical_tools) + prompt.message_bytes - inside
    result = _to(
        MatchedBy.NAME,
        revision,
        session,
        request,
        rewrite=rewrite,
        inside=inside,
        put=put,
        rate=tokens.per_byte(group.group.model),
        caller=caller,
        domain=domain,
    )
    result.features = features
    return result


def _domain(
    points: GroupPoints, caller: Caller, namespace: str, request: ParsedRequest, *, cached: bool
) -> CacheDomain:
    """Return the part of engines' caches that a request uses: the one that all callers share, unless a feature says."""
    for feature in points.domain:
        return feature.domain(caller, namespace, request, cached=cached)
    return SHARED


def _changes(
    points: GroupPoints, request: ParsedRequest, domain: CacheDomain, *, cached: bool, rewrites: bool
) -> tuple[BodyChange, ...]:
    changes = NO_CHANGES
    for feature in points.change:
        if (change := feature.change(request, domain, cached=cached, rewrites=rewrites)) is not None:
            changes = (*changes, change)
    return changes


def _named(headers: dict[bytes, bytes], header: bytes) -> str:
    value = headers.get(header)
    return value.decode("latin-1") if value else ""


def _session(
    request: ParsedRequest,
    headers: dict[bytes, bytes],
    group: str,
    header: str,
    declared: int = 0,
    *,
    points: RoutingPoints,
    messages: int = 0,
    caller: Caller,
    domain: CacheDomain,
) -> RequestSession:
    """Return the session of a request; that of the response that it continues, if a router made its id.

    Raises:
        ApiError: 404: the response is another caller's, or its id has no tag of a caller.
    """
    if request.kind is ApiKind.RESPONSES and (session := points.continuation.session(request, domain)) is not None:
        return session
    return find_session(request, headers, group + domain.salt, header, declared, messages=messages, caller=caller.name)


def _to(
    how: MatchedBy,
    revision: RevisionEntry,
    session: RequestSession,
    request: ParsedRequest,
    *,
    rewrite: Rewrite,
    inside: int,
    messages: int = 0,
    put: int = 0,
    rate: float,
    caller: Caller,
    domain: CacheDomain,
) -> Route:
    """Return the route to a revision.

    The request contains `inside` bytes of its Tier-1 prefix, with `messages` of its messages; `put` bytes are added.
    """
    model, counted = revision.group.model, revision.revision.tokens
    tier1 = counted or ceil((inside + put) * rate)
    rest = max(0, request.text - inside)
    # declared messages resemble an earlier turn, but every replica has them cached
    returns = request.history > (inside if messages else 0)
    demand = Demand(
        session=session.key,
        prefix=domain.prefix(revision.prefix),
        prompt=tier1 + ceil(rest * rate),
        tier1=tier1,
        history=tier1 + ceil(max(0, request.history - inside) * rate) if returns else 0,
        turn=min(request.turn - messages, LAST_TURN),
        origin=session.first if session.first != session.key else NO_SESSION,
        streamed=request.streamed,
        shared_prefix=revision.prefix,
        counted=counted,
        estimated_bytes=0 if request.media else rest if counted else request.text + put,
    )
    if revision.candidates.policy is Policy.EXPECTED_TTFT:
        _share(demand, request, demand.prefix, inside=inside, before=tier1, rate=rate)
    rewrite.body = _body(request, rewrite)
    return Route(how, revision.label, model, revision.candidates, demand, session, rewrite, caller, revision.short)


def ceil(value: float) -> int:
    """Return the least integer that is not below a value; compiled, it takes a fraction of the library's time."""
    whole = int(value)
    return whole + 1 if whole < value else whole


def _share(demand: Demand, request: ParsedRequest, scope: PrefixKey, *, inside: int, before: int, rate: float) -> None:
    """Name the prefixes that a request may share with others beyond a declared one.

    Args:
        demand: the request, to which they are added.
        request: its body.
        scope: distinguishes them from the same text in other groups, and in the caches of other callers.
        inside: bytes of the declared prompt within what is cut.
        before: tokens of the declared prompt.
        rate: tokens of a byte.
    """
    marks = marks_of(request)
    if request.ids:
        rate = 1 / ID_BYTES
    prompt = demand.prompt
    names: list[PrefixKey] = []
    lengths: list[int] = []
    hashes, ends = marks.hashes, marks.ends
    for place in range(len(ends)):
        if ends[place] >= inside + LEAST:
            names.append(PrefixKey(hashes[place] ^ scope))
            lengths.append(min(before + int((ends[place] - inside) * rate), prompt))
    demand.marks, demand.lengths = names, lengths
    if names:
        demand.scope = scope
        demand.instructions = before + int((size_of(request.tools) + size_of(request.system) - inside) * rate)


def _body(request: ParsedRequest, rewrite: Rewrite) -> bytes:
    return b"" if request.content else written(request, rewrite)


def written(request: ParsedRequest, rewrite: Rewrite) -> bytes:
    """Return the body for the engine.

    Raises:
        ApiError: 400, the request cannot be combined with the declared prompt.
    """
    stripped = rewrite.stripped
    if rewrite.preamble is not None and request.kind in _CONVERSATIONS:
        stripped |= CUTTING
    sent = without_engine_fields(request, rewrite.allowed, stripped)
    for change in rewrite.changes:
        sent = change.prepare(sent)
    if rewrite.model and rewrite.preamble is None:
        sent = renamed(sent, rewrite.model)
    body = sent.raw
    if rewrite.preamble is not None:
        body = BODIES[request.kind].with_preamble(sent, rewrite.preamble, rewrite.model)
    elif rewrite.ordered and not sent.tools_in_order:
        body = BODIES[request.kind].with_ordered_tools(sent)
    for change in rewrite.changes:
        body = change.finish(body, sent)
    return body


def check_in(index: RoutingIndex, identify: Identify) -> None:
    """Check that at least one group admits the sender of a request, before its body is parsed.

    Raises:
        ApiError: 401, 403 or 503: none does.
    """
    if len(index.accesses) == 1:
        access, namespace = index.accesses[0]
        identify(access, namespace)
        return
    refusals = []
    for access, namespace in index.accesses:
        try:
            identify(access, namespace)
        except ApiError as error:
            refusals.append(error)
        else:
            return
    if refusals:
        raise gravest(refusals)


def gravest(refusals: list[ApiError]) -> ApiError:
    """Return the error to answer if several groups refuse the sender of a request: 503 before 403 before 401."""
    return max(refusals, key=lambda error: error.status)


def _admitted(tenant_entry: TenantEntry, identify: Identify) -> tuple[Caller, Candidates]:
    """Return who sends a request that no group declares, and the replicas that they may use.

    Raises:
        ApiError: 401 or 403: they may use none.
    """
    refusals = []
    for access, candidates in tenant_entry.by_access:
        try:
            return identify(access, tenant_entry.namespace), candidates
        except ApiError as error:
            refusals.append(error)
    raise gravest(refusals)


def _unmatched(
    tenant_entry: TenantEntry,
    request: ParsedRequest,
    headers: dict[bytes, bytes],
    points: RoutingPoints,
    tokens: Tokens,
    *,
    identify: Identify,
    cached: bool,
    rewrites: bool,
) -> Route:
    """Return the route of a request whose prompt no group declares."""
    caller, candidates = _admitted(tenant_entry, identify)
    of_pool, rate = points.of(candidates.id), tokens.per_byte(tenant_entry.model)
    domain = _domain(of_pool, caller, tenant_entry.namespace, request, cached=cached)
    model = candidates.served_model or tenant_entry.model
    rewrite = Rewrite(
        candidates.rules.allowed,
        of_pool.stripped,
        domain,
        model="" if request.model == model else model,
        changes=_changes(of_pool, request, domain, cached=cached, rewrites=rewrites),
    )
    session = _session(
        request,
        headers,
        tenant_entry.candidates.id,
        HEADER_SESSION,
        LEADING_BYTES,
        points=points,
        caller=caller,
        domain=domain,
    )
    leading, prefix = leading_of(request)
    if request.ids:
        tier1 = min(request.ids, LEADING_IDS)
    elif request.kind is ApiKind.TEXT:
        tier1 = ceil(min(leading.length, LEADING_BYTES) * rate)
    else:
        tier1 = ceil((leading.length + size_of(request.tools)) * rate)
    demand = Demand(
        session=session.key,
        prefix=domain.prefix(prefix),
        prompt=request.ids or ceil(request.text * rate),
        tier1=tier1,
        history=ceil(request.history * rate),
        turn=min(request.turn, LAST_TURN),
        origin=session.first if session.first != session.key else NO_SESSION,
        streamed=request.streamed,
        estimated_bytes=0 if request.media else request.text,
        declared=False,
    )
    scope = domain.prefix(_prefix_key(tenant_entry.candidates.id.encode()))
    _share(demand, request, scope, inside=0, before=0, rate=rate)
    rewrite.body = _body(request, rewrite)
    unmatched = Route(MatchedBy.NONE, UNMATCHED, tenant_entry.model, candidates, demand, session, rewrite, caller)
    if cached and (feature := points.unmatched(tenant_entry, request, leading)) is not None:
        unmatched.add(feature)
    return unmatched


def _continue(
    result: Route, request: ParsedRequest, points: RoutingPoints, locations: SessionLocations, now: float
) -> None:
    """Lead a request for a response to the replica that holds the response that it continues.

    Raises:
        ApiError: 404: no replica that may serve the request holds it, or the response is another caller's.
    """
    rewrite, demand = result.rewrite, result.demand
    chosen = EngineField.REQUEST_ID in rewrite.allowed and EngineField.REQUEST_ID in request.doc
    placed = PlacedRequest(result.candidates, result.caller, rewrite.domain, demand.session, chosen)
    continued = points.continuation.replica(request, placed)
    if continued.feature is not None:
        result.add(continued.feature)
    if continued.member is None:
        return  # the request continues none, or only the engine that made the id can decode it
    placement = locations.get_by_origin(continued.session, NO_SESSION, now)
    before = int(placement.tokens) if placement is not None else 0
    result.candidates = result.candidates.only(continued.member)
    rest = max(0, demand.prompt - demand.tier1)
    demand.history = max(1, demand.tier1, before)
    demand.prompt = demand.history + rest
    demand.estimated_bytes = 0  # the engine counts the history too, whose text the router does not have


def _place_anywhere(result: Route, request: ParsedRequest) -> None:
    """Place a request that leaves nothing in a cache on the least loaded replica, and do not record its session.

    Among replicas with the same load the content decides, so that equal requests reach the engine that has cached them.
    """
    content = request.content or xxhash.xxh3_64_intdigest(request.raw)
    result.candidates = replace(result.candidates, policy=Policy.LEAST_REQUEST)
    result.demand = Demand(SessionKey(content), result.demand.prefix, streamed=False, cached=False)
    result.revision = ""


def _check_adapter(candidates: Candidates, request: ParsedRequest) -> None:
    """Refuse a request that engines would answer with the model alone, without the LoRA adapter that it is for.

    Raises:
        ApiError: 400: the engines apply no adapter on its API.
    """
    apis = candidates.served_apis
    if apis is not None and request.kind.value not in apis:
        message = (
            f"model {shown(request.model)} is served by a LoRA adapter, which its engines do not apply on this API: "
            f"use one of {', '.join(sorted(apis))}"
        )
        raise ApiError(400, message, param="model", code="adapter_not_supported")


def _leave_rank_to_engine(demand: Demand) -> None:
    """Expect nothing in cache for a request whose engine chooses the rank, though the router chooses the replica."""
    demand.unranked = True
    demand.history, demand.marks, demand.lengths, demand.scope = 0, (), (), None


def share_of(result: Route) -> Share:
    """Return the share of the capacity that a request has while it waits."""
    demand, caller = result.demand, result.caller.name
    work = max(0.0, demand.prompt - max(demand.history, demand.tier1)) + ANSWER
    limits = result.candidates.rules.limits_of(caller)
    return Share(result.group, caller, limits.weight, work, _RANKS[limits.priority], result.revision)


def refuse_empty(result: Route) -> None:
    """Refuse a route that leads to no replica, unless that is on purpose. The caller counts the request first.

    Raises:
        ApiError: 503, there is none.
    """
    if result.candidates.members or result.candidates.sleep is not None:
        return
    if result.matched_by is MatchedBy.NONE:
        subject = f"model {shown(result.model)} has no replica that is ready for prompts which no group declares"
        raise ApiError(
            503,
            f"{subject}: retry, or send a declared prompt",
            param="model",
            code="no_replica",
            retry_after=NO_REPLICA_SECONDS,
        )
    raise _no_replica(result.group)


def _no_replica(group: str) -> ApiError:
    return ApiError(
        503,
        f"group {group!r} has no replica that is ready: retry",
        param="model",
        code="no_replica",
        retry_after=NO_REPLICA_SECONDS,
    )


def _choose_revision(
    group: GroupEntry,
    points: RoutingPoints,
    locations: SessionLocations,
    session: RequestSession,
    request: ParsedRequest,
    *,
    now: float,
    domain: CacheDomain,
) -> tuple[RevisionEntry, Preamble]:
    """Return the revision of a session and its prompt; `session.pinned` is set if the session began with it.

    A session that is new to the group gets a revision by weight, decided by its key. A running session leaves a
    revision that has lost all of its replicas: on replicas that others lend, its prompt would be cold.
    """
    ready = [item for item in group.revisions if item.candidates.members]
    if not ready and group.group.sleep is not None:
        ready = list(group.revisions)
    serving = [
        (revision_entry, revision_entry.preamble) for revision_entry in ready if revision_entry.preamble is not None
    ]
    choices = [item for item in serving if item[0].revision.weight]
    warm = [item for item in choices if item[0].candidates.ready]
    if request.kind is ApiKind.RESPONSES:
        holding = points.continuation.revision(group, request)  # also one that drains, and takes nothing else
        if holding is not None and holding.preamble is not None:
            session.pinned = True
            return holding, holding.preamble
    # a chat that begins is not a next turn, even if another one began with the same words
    if session.named or request.history or request.kind is ApiKind.TEXT:
        place = locations.get_by_origin(session.key, session.first, now)
        for revision, prompt in serving:
            stays = not warm or revision.candidates.ready
            if place is not None and stays and domain.prefix(revision.prefix) == place.prefix:
                session.pinned = True
                return revision, prompt
    choices = warm or choices
    if not choices and any(revision_entry.revision.weight for revision_entry in ready):
        raise ApiError(
            503,
            f"the prompt of group {group.label!r} has not been read yet: retry, or send the prompt with the request",
            param="model",
            code="prompt_not_available",
        )
    if not choices:
        raise _no_replica(group.label)
    # by the key of the first turn: a session keeps its revision when its key changes with what follows
    weights = {revision_entry.revision.fingerprint: revision_entry.revision.weight for revision_entry, _ in choices}
    chosen = revision_by_weight(session.first, weights)
    for revision, prompt in choices:
        if revision.revision.fingerprint == chosen:
            return revision, prompt
    raise AssertionError("one of the weights was chosen")


def _with_adapter(
    view: RoutingIndex,
    claim: RevisionEntry,
    points: RoutingPoints,
    locations: SessionLocations,
    session: RequestSession,
    *,
    request: ParsedRequest,
    now: float,
    domain: CacheDomain,
) -> RevisionEntry:
    """Return the revision of a request that brings its prompt.

    Of several with the same prompt and other LoRA adapters it is the one that the session has, or gets by weight.
    """
    if not claim.revision.text_fingerprint:
        return claim
    group = view.names[claim.label]
    alike = tuple(item for item in group.revisions if item.revision.declared == claim.revision.declared)
    if len(alike) == 1:
        return claim
    if not any(item.revision.weight and item.candidates.members for item in alike):
        return next((item for item in alike if item.candidates.members), claim)
    group = replace(group, revisions=alike)
    return _choose_revision(group, points, locations, session, request, now=now, domain=domain)[0]


def revision_by_weight(key: SessionKey, weights: Mapping[Fingerprint, int]) -> Fingerprint:
    """Return the fingerprint that a session gets, by its key on its first turn.

    Every router of every version gives a session the same revision: `tests/golden/weights.json` has test vectors.

    Args:
        key: the session's key.
        weights: fingerprint → share of the sessions; at least one is not 0.
    """
    at = xxhash.xxh3_64_intdigest(key.to_bytes(8, "little"), seed=_REVISION_SEED) % sum(weights.values())
    for fingerprint in sorted(weights):
        at -= weights[fingerprint]
        if at < 0:
            return fingerprint
    raise AssertionError("the remainder is less than the sum of the weights")
