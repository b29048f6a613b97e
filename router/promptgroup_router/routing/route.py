"""Decides where a request may go: match, session, revision, demand, and the body for the engine.

Does no I/O and reads no clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple, cast

import xxhash

from promptgroup_router.apis.conversation import first_bytes
from promptgroup_router.apis.endpoints import BODIES
from promptgroup_router.apis.request import ApiKind, ParsedRequest, Preamble, size_of
from promptgroup_router.apis.responses import previous_response
from promptgroup_router.apis.session_key import (
    NO_SESSION,
    RequestSession,
    SessionKey,
    chat_start,
    find_session,
    first_ids,
)
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import NO_REPLICA_SECONDS, ApiError, shown
from promptgroup_router.contract.fingerprint import Fingerprint
from promptgroup_router.contract.names import HEADER_GROUP, HEADER_NAMESPACE, HEADER_SESSION
from promptgroup_router.contract.table import Policy
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.rings.index import Candidates, GroupEntry, RevisionEntry, RoutingIndex, TenantEntry
from promptgroup_router.routing.holder import PREVIOUS, find_holder, holds, lost, only
from promptgroup_router.routing.match import ByContent, ByName, MatchedBy, NoMatch, match_group
from promptgroup_router.routing.near_miss import NearMiss, find_near_miss
from promptgroup_router.routing.response_id import decode
from promptgroup_router.routing.secret_prompt import check_by_name
from promptgroup_router.routing.unmatched import UNMATCHED

LEADING_BYTES = 2048
"""Bytes of an undeclared prompt by which it is listed; for text completions also the bytes that take the place of Tier
1."""
LEADING_IDS = 512
"""The same for a prompt of token ids: about as much text."""
MOST_TURNS = 65535
"""Largest turn that a placement for other routers can hold (16 bits)."""

_GROUP, _NAMESPACE = HEADER_GROUP.encode(), HEADER_NAMESPACE.encode()
_REVISION_SEED = 1
"""Keeps a session's revision and its place on the ring independent of each other."""

_prefix_key = cast("Callable[..., PrefixKey]", xxhash.xxh3_64_intdigest)
"""The hash that names an undeclared prompt."""


@dataclass(frozen=True, slots=True)
class Leading:
    """The start of a prompt that no group declares."""

    hash: PrefixKey
    length: int
    """Bytes of the whole system text."""


class Route(NamedTuple):
    """The replicas that may serve a request, and what is sent there."""

    how: MatchedBy
    group: str
    """`namespace/group`, or UNMATCHED."""
    model: str
    candidates: Candidates
    demand: Demand
    body: bytes
    estimated: int
    """Bytes of text whose tokens are an estimate; 0 where the engine's count says nothing about text."""
    counted: int
    """Tokens of the prompt beside that text."""
    session: RequestSession
    pinned: bool = False
    """True if the revision is the one that a running session began with, instead of the choice of this request."""
    revision: str = ""
    """Short fingerprint of the group's revision; empty without a group."""
    leading: Leading | None = None
    """Set for a request without a group."""
    near_miss: NearMiss | None = None
    """Set for a request that nearly matches a group."""
    stamped: bool = False
    """True if the request asks for a response whose id the router chooses, so that it says where the response is."""


def route(
    view: RoutingIndex,
    ask: ParsedRequest,
    headers: Mapping[bytes, bytes],
    *,
    locations: SessionLocations,
    tokens: Tokens,
    now: float,
    cached: bool = True,
) -> Route:
    """Decide where a request may go.

    Args:
        view: the routing table.
        ask: the request.
        headers: its header fields, names in lower case.
        locations: where sessions are cached.
        tokens: the lengths of texts in tokens.
        now: monotonic seconds.
        cached: whether the engine keeps the prompt in its KV cache.

    Raises:
        ApiError: the model or group is unknown, the request cannot be combined with the group's prompt, or none of the
            group's replicas can take it (503).
    """
    found = _cached_route(view, ask, headers, locations=locations, tokens=tokens, now=now, cached=cached)
    if ask.kind is ApiKind.RESPONSES:
        found = _continued(found, ask, locations, now)
    return found if cached else _uncached_route(found, ask)


def _cached_route(
    view: RoutingIndex,
    ask: ParsedRequest,
    headers: Mapping[bytes, bytes],
    *,
    locations: SessionLocations,
    tokens: Tokens,
    now: float,
    cached: bool,
) -> Route:
    named, namespace = (headers.get(name, b"").decode("latin-1") for name in (_GROUP, _NAMESPACE))
    found = match_group(view, ask, named, namespace)
    match found:
        case ByContent(claim):
            messages = claim.revision.messages
            header, declared = claim.group.session_header, claim.revision.system_bytes
            session = _session(ask, headers, claim.label, header, declared, messages=messages)
            inside = claim.revision.system_bytes + size_of(ask.tools) + (first_bytes(ask, messages) if messages else 0)
            body = BODIES[ask.kind].with_ordered_tools(ask)
            rate = tokens.per_byte(ask.model)
            return _to(MatchedBy.CONTENT, claim, session, ask, body=body, inside=inside, messages=messages, rate=rate)
        case ByName(group):
            session = _session(ask, headers, group.label, group.group.session_header)
            revision, prompt, pinned = _choose_revision(group, locations, session, ask, now)
            check_by_name(ask, revision.revision, cached=cached)
            body = BODIES[ask.kind].with_preamble(ask, prompt, group.group.model)
            rate = tokens.per_byte(group.group.model)
            inside = size_of(ask.tools)
            put = revision.revision.system_bytes + size_of(prompt.canonical_tools) + prompt.message_bytes - inside
            return _to(
                MatchedBy.NAME, revision, session, ask, body=body, inside=inside, put=put, rate=rate, pinned=pinned
            )
        case NoMatch(tenant):
            return _unmatched(tenant, ask, headers, tokens.per_byte(ask.model))


def _session(
    ask: ParsedRequest,
    headers: Mapping[bytes, bytes],
    group: str,
    header: str,
    declared: int = 0,
    *,
    messages: int = 0,
) -> RequestSession:
    """Return the session of a request; that of the response that it continues, if a router made its id."""
    if ask.kind is ApiKind.RESPONSES and (previous := decode(previous_response(ask))) is not None:
        return RequestSession(previous.session, previous.session, named=True, source=f"field {PREVIOUS}")
    return find_session(ask, headers, group, header, declared, messages=messages)


def _to(
    how: MatchedBy,
    revision: RevisionEntry,
    session: RequestSession,
    ask: ParsedRequest,
    *,
    body: bytes,
    inside: int,
    messages: int = 0,
    put: int = 0,
    rate: float,
    pinned: bool = False,
) -> Route:
    """Return the route to a revision.

    `inside` bytes of its Tier-1 prefix come with the request, with `messages` of its messages; `put` bytes are added.
    """
    model, counted = revision.group.model, revision.revision.tokens
    tier1 = counted or ceil((inside + put) * rate)
    rest = max(0, ask.text - inside)
    # declared messages look like an earlier turn, but every replica has them
    returns = ask.history > (inside if messages else 0)
    demand = Demand(
        session=session.key,
        prefix=revision.prefix,
        prompt=tier1 + ceil(rest * rate),
        tier1=tier1,
        history=tier1 + ceil(max(0, ask.history - inside) * rate) if returns else 0,
        turn=min(ask.turn - messages, MOST_TURNS),
        origin=session.first if session.first != session.key else NO_SESSION,
        streamed=ask.streamed,
    )
    estimated = 0 if ask.media else rest if counted else ask.text + put
    return Route(
        how,
        revision.label,
        model,
        revision.candidates,
        demand,
        body,
        estimated,
        counted,
        session,
        pinned,
        revision.short,
    )


def _unmatched(found: TenantEntry, ask: ParsedRequest, headers: Mapping[bytes, bytes], rate: float) -> Route:
    session = _session(ask, headers, found.candidates.id, HEADER_SESSION, LEADING_BYTES)
    leading, prefix = _leading(ask)
    if ask.ids:
        tier1 = min(ask.ids, LEADING_IDS)
    elif ask.kind is ApiKind.TEXT:
        tier1 = ceil(min(leading.length, LEADING_BYTES) * rate)
    else:
        tier1 = ceil((leading.length + size_of(ask.tools)) * rate)
    demand = Demand(
        session=session.key,
        prefix=prefix,
        prompt=ask.ids or ceil(ask.text * rate),
        tier1=tier1,
        history=ceil(ask.history * rate),
        turn=min(ask.turn, MOST_TURNS),
        origin=session.first if session.first != session.key else NO_SESSION,
        streamed=ask.streamed,
    )
    estimated = 0 if ask.media else ask.text
    missed = find_near_miss(found, ask)
    return Route(
        MatchedBy.NONE,
        UNMATCHED,
        ask.model,
        found.candidates,
        demand,
        ask.raw,
        estimated,
        0,
        session,
        leading=leading,
        near_miss=missed,
    )


def _continued(found: Route, ask: ParsedRequest, locations: SessionLocations, now: float) -> Route:
    """Return the route of a request for a response: to the replica that holds the response that it continues.

    Raises:
        ApiError: 404: no replica that may serve the request holds it.
    """
    found = found._replace(stamped="request_id" not in ask.doc)
    previous = previous_response(ask)
    wanted = decode(previous)
    if wanted is None:
        return found  # the request continues none, or only the engine that made the id can tell
    member = find_holder(found.candidates, wanted)
    if member is None or not holds(member, wanted):
        raise lost(previous, PREVIOUS, "previous_response_not_found", restarted=member is not None)
    placement = locations.get_by_origin(wanted.session, NO_SESSION, now)
    before = int(placement.tokens) if placement is not None else 0
    demand = found.demand
    history = max(1, demand.tier1, before)
    rest = max(0, demand.prompt - demand.tier1)
    return found._replace(
        candidates=only(found.candidates, member),
        demand=demand._replace(history=history, prompt=history + rest),
        estimated=0,  # the engine counts the history too, whose text is not known
    )


def _uncached_route(found: Route, ask: ParsedRequest) -> Route:
    """Return the route of a request that leaves nothing in a cache: to the least loaded replica, and on no record.

    Of several replicas with the same load the content chooses, so that equal requests find what an engine remembers.
    """
    content = xxhash.xxh3_64_intdigest(ask.raw)
    return found._replace(
        candidates=replace(found.candidates, policy=Policy.LEAST_REQUEST),
        demand=Demand(SessionKey(content), found.demand.prefix, streamed=False, cached=False),
        estimated=0,
        revision="",
        leading=None,
        near_miss=None,
    )


def refuse_empty(found: Route) -> None:
    """Refuse a route that leads to no replica. The caller counts the request for its group first.

    Raises:
        ApiError: 503, there is none.
    """
    if found.candidates.members:
        return
    if found.how is MatchedBy.NONE:
        what = f"model {shown(found.model)} has no replica that is ready for prompts which no group declares"
        raise ApiError(
            503,
            f"{what}: retry, or send a declared prompt",
            param="model",
            code="no_replica",
            retry_after=NO_REPLICA_SECONDS,
        )
    raise _no_replica(found.group)


def _no_replica(group: str) -> ApiError:
    return ApiError(
        503,
        f"group {group!r} has no replica that is ready: retry",
        param="model",
        code="no_replica",
        retry_after=NO_REPLICA_SECONDS,
    )


def _choose_revision(
    group: GroupEntry, locations: SessionLocations, session: RequestSession, ask: ParsedRequest, now: float
) -> tuple[RevisionEntry, Preamble, bool]:
    """Return the revision of a session, its prompt, and True if the session began with it.

    A session that is new to the group gets a revision by weight, decided by its key.
    """
    ready = [each for each in group.revisions if each.candidates.members]
    serving = [(each, each.preamble) for each in ready if each.preamble is not None]
    if ask.kind is ApiKind.RESPONSES and (previous := decode(previous_response(ask))) is not None:
        for each in group.revisions:  # also one that drains, and takes nothing else
            if each.preamble is not None and find_holder(each.candidates, previous) is not None:
                return each, each.preamble, True
    # a chat that begins is not a next turn, even if another one began with the same words
    if session.named or ask.history or ask.kind is ApiKind.TEXT:
        place = locations.get_by_origin(session.key, session.first, now)
        for each, prompt in serving:
            if place is not None and each.prefix == place.prefix:
                return each, prompt, True
    choices = [(each, prompt) for each, prompt in serving if each.revision.weight]
    if not choices and any(each.revision.weight for each in ready):
        raise ApiError(
            503,
            f"the prompt of group {group.label!r} has not been read yet: retry, or send the prompt with the request",
            param="model",
            code="prompt_not_available",
        )
    if not choices:
        raise _no_replica(group.label)
    # by the key of the first turn: a session keeps its revision when its key changes with what follows
    weights = {each.revision.fingerprint: each.revision.weight for each, _ in choices}
    chosen = revision_by_weight(session.first, weights)
    for each, prompt in choices:
        if each.revision.fingerprint == chosen:
            return each, prompt, False
    raise AssertionError("one of the weights was chosen")


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


def _leading(ask: ParsedRequest) -> tuple[Leading, PrefixKey]:
    """Return the start of an undeclared prompt, and the hash of what takes the place of its Tier 1."""
    if ask.ids:
        listed = _prefix_key(first_ids(ask, LEADING_IDS))
        return Leading(listed, 0), listed
    text = ask.system.encode()
    start = text[:LEADING_BYTES]
    if not start and ask.kind is not ApiKind.TEXT:
        said, first = chat_start(ask)
        start = b"\0".join(said[:first])  # these are the same on every turn
    listed = _prefix_key(start)
    if ask.kind is ApiKind.TEXT or not (text or ask.tools):
        return Leading(listed, len(text)), listed
    # the whole text: to take a text for cached that only begins like another costs more than to compute it again
    return Leading(listed, len(text)), _prefix_key(ask.tools.encode() + b"\0" + text)
