"""Decides where a request may go: match, session, revision, demand, and the body for the engine."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import ceil
from typing import cast

import xxhash

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import EngineField, Priority
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.names import HEADER_GROUP, HEADER_NAMESPACE, HEADER_SESSION
from promptgroup_contract.table import Policy
from promptgroup_router.access.caller import ANONYMOUS, Caller
from promptgroup_router.apis.by_model import renamed
from promptgroup_router.apis.conversation import first_bytes
from promptgroup_router.apis.endpoints import BODIES
from promptgroup_router.apis.request import ApiKind, ParsedRequest, Preamble, size_of
from promptgroup_router.apis.responses import previous_response
from promptgroup_router.apis.session_key import (
    NO_SESSION,
    RequestSession,
    SessionKey,
    find_session,
)
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import NO_REPLICA_SECONDS, ApiError, shown
from promptgroup_router.callers.engine_fields import CUTTING, NONE, TO_ROUTER
from promptgroup_router.callers.isolation import cache_domain, for_engine, salted_body
from promptgroup_router.callers.salts import SHARED, CacheDomain, Salts
from promptgroup_router.callers.unasked_usage import asking, is_unasked
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.expected_ttft import ANSWER
from promptgroup_router.policy.gossip import LAST_TURN
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.prefixes.prompt_marks import ID_BYTES, LEAST, marks_of
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.rings.index import Candidates, GroupEntry, RevisionEntry, RoutingIndex, TenantEntry
from promptgroup_router.routing.admission_queue import Share
from promptgroup_router.routing.holder import PREVIOUS, find_holder, holds, lost, only
from promptgroup_router.routing.match import ByContent, ByName, MatchedBy, NoMatch, match_group
from promptgroup_router.routing.near_miss import UnmatchedPrompt, find_near_miss
from promptgroup_router.routing.points import NO_FEATURES, RequestFeature
from promptgroup_router.routing.response_id import ChosenResponseId, decode, is_of, is_open_to
from promptgroup_router.routing.secret_prompt import SecretPrompt, check_by_name, is_given_secret
from promptgroup_router.undeclared.leading import LEADING_BYTES, LEADING_IDS, leading_of
from promptgroup_router.undeclared.unmatched import UNMATCHED

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
    domain: CacheDomain = SHARED
    """The part of engines' caches that the request reads and writes."""
    salted: AbstractSet[str] | None = None
    """The APIs on which the engines take a salt; None where callers share their caches."""
    cached: bool = True
    """False for requests that leave nothing in a cache."""
    ordered: bool = False
    """True if tools are put in the order in which the group's engines have them in cache."""
    preamble: Preamble | None = None
    """The declared prompt that is put in front."""
    model: str = ""
    """The model to name instead of the one that the client names; empty to leave that."""
    metered: bool = False
    """True if the router requests the usage of a stream whose client did not request it."""
    keeps: bool = False
    """True in a group with a response cache, where the field `cache` is for the router."""
    body: bytes | bytearray = b""
    """The body for the engine. It is empty for a digest of a request, whose body another process makes."""

    @property
    def further(self) -> frozenset[str]:
        """The fields that engines do not get, beside those of their operator."""
        return TO_ROUTER if self.keeps else NONE


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
    locations: SessionLocations,
    tokens: Tokens,
    now: float,
    cached: bool = True,
    metered: bool = False,
    identify: Identify = identify_nobody,
    salts: Salts | None = None,
) -> Route:
    """Decide where a request may go.

    Args:
        view: the routing table.
        request: the request.
        headers: its header fields, names in lower case.
        locations: where sessions are cached.
        tokens: the lengths of texts in tokens.
        now: monotonic seconds.
        cached: whether the engine keeps the prompt in its KV cache.
        metered: whether the router may request the usage of streams, for which it must rewrite the answer.
        identify: returns who sends the request, by the access rules of its group.
        salts: the salts of callers, for groups that isolate them.

    Raises:
        ApiError: the model or group is unknown, the caller is not identified (401) or may not use the group (403), the
            request cannot be combined with the group's prompt, or none of the group's replicas can take it (503).
    """
    result = _cached_route(
        view,
        request,
        headers,
        locations=locations,
        tokens=tokens,
        now=now,
        cached=cached,
        metered=metered and cached,
        identify=identify,
        salts=salts,
    )
    if request.kind is ApiKind.RESPONSES:
        _continue(result, request, locations, now, salts)
    if not cached:
        _place_anywhere(result, request)
    elif request.kind.value in result.candidates.unranked:
        _leave_rank_to_engine(result.demand)
    return result


def _cached_route(
    view: RoutingIndex,
    request: ParsedRequest,
    headers: dict[bytes, bytes],
    *,
    locations: SessionLocations,
    tokens: Tokens,
    now: float,
    cached: bool,
    metered: bool,
    identify: Identify,
    salts: Salts | None,
) -> Route:
    match match_group(view, request, _named(headers, _GROUP), _named(headers, _NAMESPACE)):
        case ByContent(claim=claim):
            caller = identify(claim.group.access, claim.group.namespace)
            salted, of = claim.candidates.rules.salted, claim.group.namespace
            domain = cache_domain(salted, salts, caller, of, request, cached=cached)
            messages = claim.revision.messages
            header, declared = claim.group.session_header, claim.revision.system_bytes
            session = _session(
                request, headers, claim.label, header, declared, messages=messages, caller=caller, domain=domain
            )
            claim = _with_adapter(view, claim, locations, session, request, now=now, domain=domain)
            unasked = metered and _is_unasked(claim.candidates, request)
            model = claim.candidates.served_model or claim.group.model
            rewrite = Rewrite(
                claim.group.callers.allowed,
                domain,
                salted,
                cached=cached,
                ordered=True,
                model="" if request.model == model else model,
                metered=unasked,
                keeps=claim.candidates.responses is not None,
            )
            inside = (
                claim.revision.system_bytes
                + size_of(request.tools)
                + (first_bytes(request, messages) if messages else 0)
            )
            rate = tokens.per_byte(claim.group.model)
            return _to(
                MatchedBy.CONTENT,
                claim,
                session,
                request,
                rewrite=rewrite,
                inside=inside,
                messages=messages,
                rate=rate,
                caller=caller,
                domain=domain,
            )
        case ByName(group=group):
            caller = identify(group.group.access, group.group.namespace)
            rules, of = group.group.callers, group.group.namespace
            domain = cache_domain(rules.salted, salts, caller, of, request, cached=cached)
            session = _session(request, headers, group.label, group.group.session_header, caller=caller, domain=domain)
            revision, prompt = _choose_revision(group, locations, session, request, now=now, domain=domain)
            check_by_name(request, revision.revision, cached=cached)
            rewrite = Rewrite(
                rules.allowed,
                domain,
                rules.salted,
                cached=cached,
                preamble=prompt,
                model=revision.candidates.served_model or group.group.model,
                metered=metered and _is_unasked(revision.candidates, request),
                keeps=revision.candidates.responses is not None,
            )
            rate = tokens.per_byte(group.group.model)
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
                rate=rate,
                caller=caller,
                domain=domain,
            )
            if is_given_secret(request, revision.revision):
                result.add(SecretPrompt())
            return result
        case NoMatch(model=tenant):
            rate = tokens.per_byte(tenant.model)
            return _unmatched(
                tenant, request, headers, rate=rate, identify=identify, salts=salts, cached=cached, metered=metered
            )


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
    messages: int = 0,
    caller: Caller,
    domain: CacheDomain,
) -> RequestSession:
    """Return the session of a request; that of the response that it continues, if a router made its id.

    Raises:
        ApiError: 404: the response is another caller's, or its id has no tag of a caller.
    """
    if request.kind is ApiKind.RESPONSES and (continued := previous_response(request)):
        previous = decode(continued)
        if domain.salt and not is_of(continued, domain):
            raise lost(continued, PREVIOUS, "previous_response_not_found", restarted=False)
        if previous is not None:
            return RequestSession(previous.session, previous.session, named=True, source=f"field {PREVIOUS}")
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
    further = rewrite.further
    if rewrite.preamble is not None and request.kind in _CONVERSATIONS:
        further |= CUTTING
    sent = for_engine(request, rewrite.allowed, rewrite.domain, further)
    if rewrite.model and rewrite.preamble is None:
        sent = renamed(sent, rewrite.model)
    body = sent.raw
    if rewrite.preamble is not None:
        body = BODIES[request.kind].with_preamble(sent, rewrite.preamble, rewrite.model)
    elif rewrite.ordered and not sent.tools_in_order:
        body = BODIES[request.kind].with_ordered_tools(sent)
    if rewrite.metered:
        body = asking(sent, body)
    return salted_body(body, rewrite.domain, rewrite.salted, request.kind, cached=rewrite.cached)


def _is_unasked(candidates: Candidates, request: ParsedRequest) -> bool:
    """Return True if the router is to request a usage that the client did not request.

    A cached answer is sent to all its clients exactly as its engine has sent it.
    """
    return candidates.responses is None and is_unasked(request)


def check_in(index: RoutingIndex, identify: Identify) -> None:
    """Check that at least one group admits the sender of a request, before its body is parsed.

    Raises:
        ApiError: 401, 403 or 503: none does.
    """
    if len(index.accesses) == 1:
        identify(*index.accesses[0])
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
    *,
    rate: float,
    identify: Identify,
    salts: Salts | None,
    cached: bool,
    metered: bool,
) -> Route:
    caller, candidates = _admitted(tenant_entry, identify)
    salted = candidates.rules.salted
    domain = cache_domain(salted, salts, caller, tenant_entry.namespace, request, cached=cached)
    unasked = metered and _is_unasked(candidates, request)
    model = candidates.served_model or tenant_entry.model
    model = "" if request.model == model else model
    rewrite = Rewrite(candidates.rules.allowed, domain, salted, cached=cached, model=model, metered=unasked)
    session = _session(
        request, headers, tenant_entry.candidates.id, HEADER_SESSION, LEADING_BYTES, caller=caller, domain=domain
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
    )
    scope = domain.prefix(_prefix_key(tenant_entry.candidates.id.encode()))
    _share(demand, request, scope, inside=0, before=0, rate=rate)
    rewrite.body = _body(request, rewrite)
    found_none = Route(MatchedBy.NONE, UNMATCHED, tenant_entry.model, candidates, demand, session, rewrite, caller)
    if cached:
        found_none.add(UnmatchedPrompt(leading, find_near_miss(tenant_entry, request)))
    return found_none


def _continue(
    result: Route, request: ParsedRequest, locations: SessionLocations, now: float, salts: Salts | None
) -> None:
    """Lead a request for a response to the replica that holds the response that it continues.

    Raises:
        ApiError: 404: no replica that may serve the request holds it, or the response is another caller's.
    """
    # an isolated caller chooses no ids: such an id would have no tag of the caller
    domain = result.rewrite.domain
    chosen = EngineField.REQUEST_ID in result.rewrite.allowed and EngineField.REQUEST_ID in request.doc
    if domain.salt or not chosen:
        result.add(ChosenResponseId(result.demand.session, domain))
    previous = previous_response(request)
    desired = decode(previous)
    if desired is None:
        return  # the request continues none, or only the engine that made the id can decode it
    member = find_holder(result.candidates, desired)
    if member is None or not holds(member, desired):
        raise lost(previous, PREVIOUS, "previous_response_not_found", restarted=member is not None)
    namespace = member.group.partition("/")[0]
    if not is_open_to(previous, result.caller, namespace, salts, isolated=bool(domain.salt)):
        raise lost(previous, PREVIOUS, "previous_response_not_found", restarted=False)
    placement = locations.get_by_origin(desired.session, NO_SESSION, now)
    before = int(placement.tokens) if placement is not None else 0
    result.candidates = only(result.candidates, member)
    demand = result.demand
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
    locations: SessionLocations,
    session: RequestSession,
    request: ParsedRequest,
    *,
    now: float,
    domain: CacheDomain,
) -> tuple[RevisionEntry, Preamble]:
    """Return the revision of a session and its prompt; `session.pinned` is set if the session began with it.

    A session that is new to the group gets a revision by weight, decided by its key.
    """
    ready = [item for item in group.revisions if item.candidates.members]
    if not ready and group.group.sleep is not None:
        ready = list(group.revisions)
    serving = [
        (revision_entry, revision_entry.preamble) for revision_entry in ready if revision_entry.preamble is not None
    ]
    if request.kind is ApiKind.RESPONSES and (previous := decode(previous_response(request))) is not None:
        for revision in group.revisions:  # also one that drains, and takes nothing else
            if revision.preamble is not None and find_holder(revision.candidates, previous) is not None:
                session.pinned = True
                return revision, revision.preamble
    # a chat that begins is not a next turn, even if another one began with the same words
    if session.named or request.history or request.kind is ApiKind.TEXT:
        place = locations.get_by_origin(session.key, session.first, now)
        for revision, prompt in serving:
            if place is not None and domain.prefix(revision.prefix) == place.prefix:
                session.pinned = True
                return revision, prompt
    choices = [(revision_entry, prompt) for revision_entry, prompt in serving if revision_entry.revision.weight]
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
    locations: SessionLocations,
    session: RequestSession,
    request: ParsedRequest,
    *,
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
    return _choose_revision(replace(group, revisions=alike), locations, session, request, now=now, domain=domain)[0]


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
