"""Explains where a request would go at this moment, and why: steps 2 to 5 of a request's life without effects.

The request is not placed, counted or recorded, and its text and headers are not repeated in the result. The caller is
identified by the headers, as for a real request; a header by which a gateway names callers is accepted as if the
request came from that gateway. Where a group identifies its callers, the request is explained as the first one of its
session: the result shows the effect of the group's rules, and nothing that another caller has sent. Does no I/O and
reads no clock.

The document is JSON:

| field        | value                                                                                              |
|--------------|----------------------------------------------------------------------------------------------------|
| `table`      | version of the table                                                                               |
| `refusal`    | the error for the client: status, code, param, message; then later fields may be missing           |
| `match`      | how (content, name, none), group (`namespace/name`), model, alias (null: a model or a group is     |
|              | named); `nearMiss`: the prompt of a near miss                                                      |
| `caller`     | null where the group does not identify callers; name: of the caller, null if anonymous             |
| `session`    | key, named, source (a header or a field; empty: the start of the conversation), last (where it was; |
|              | null where the group identifies callers)                                                           |
| `revision`   | fingerprint, weight of weights, why (content, session, weight); null without a group               |
| `tokens`     | prompt, prefix, history: lengths as the router estimates them                                      |
| `policy`     | its name                                                                                           |
| `ring`       | the replicas in the order in which the key prefers them, home first: replica, state                |
| `candidates` | where it may go, the cheapest first: replica, lent, requests (in flight), ejected, room, cost      |
| `choice`     | the replica that would get it; null: it would wait for capacity                                    |
| `why`        | the same in words                                                                                  |

A cost has cachedTokens, copiedTokens (from a KV tier that all replicas share) and, in seconds, wait, prefill, step,
crowding, margin and total. It and the room are null for a replica that is ejected, and where the policy weighs neither.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import orjson

from promptgroup_contract.access import Access, AccessType, Caller
from promptgroup_contract.names import UNMATCHED
from promptgroup_contract.table import Policy, RoutingTable, SlotState
from promptgroup_router.access.authenticator import NoSender
from promptgroup_router.apis import structure
from promptgroup_router.apis.endpoints import ENDPOINTS, Endpoint
from promptgroup_router.apis.request import CHAT_PATH, ParsedRequest
from promptgroup_router.apis.session_key import NO_SESSION
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.decision.composition import features_of, router_state
from promptgroup_router.features.near_miss import UnmatchedPrompt
from promptgroup_router.features.sleeping import waking
from promptgroup_router.http11.http1 import MAX_HEAD
from promptgroup_router.policy.expected_ttft import ReplicaCost
from promptgroup_router.policy.policies import load_cap
from promptgroup_router.policy.session_locations import Placement, SessionLocations
from promptgroup_router.rings.ids import MemberId, PrefixKey, member_parts, place_name
from promptgroup_router.rings.index import GroupEntry, Member, RevisionEntry, places_of, preferred
from promptgroup_router.rings.ring import ring_of
from promptgroup_router.routing.admission_queue import NEW_SECONDS, WAIT_SECONDS
from promptgroup_router.routing.match import MatchedBy
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.route import Identify, Route, check_in, identify_nobody, refuse_empty, route
from promptgroup_router.routing.state import RouterState

NO_PREFIX = PrefixKey(0)
"""A prefix that no replica holds."""


class ExplainRequest(NamedTuple):
    """A request as a client would send it."""

    endpoint: Endpoint
    headers: dict[bytes, bytes]
    """Header names in lower case."""
    body: bytes


def parse_explain_request(data: bytes) -> ExplainRequest:
    """Parse a request to explain from JSON: `body` (a string), `headers` (an object), `path` (of the API).

    Headers are part of it because proxies on the way consume some, `authorization` above all.

    Raises:
        ApiError: 400, the JSON cannot be used, or what a router would not parse of a client is in it.
    """
    structure.check(data, structure.MOST_VALUES_OF_TEXT)
    try:
        requested = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the request to explain is not JSON: {error}", code="invalid_json") from None
    match requested:
        case {"body": str(body)}:
            headers, path = requested.get("headers", {}), requested.get("path", CHAT_PATH.decode())
        case _:
            raise ApiError(
                400, "body is missing or no string, expected the body of a request as a string", param="body"
            )
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise ApiError(400, "headers is not an object whose values are strings", param="headers")
    if sum(map(len, headers)) + sum(map(len, headers.values())) > MAX_HEAD:
        raise ApiError(400, f"headers have more than {MAX_HEAD} bytes, which no request may have", param="headers")
    endpoint = ENDPOINTS.get(str(path).encode())
    if endpoint is None or not endpoint.cached:
        expected = ", ".join(item.path.decode() for item in ENDPOINTS.values() if item.cached)
        raise ApiError(400, f"path is {shown(str(path))}, expected one of {expected}", param="path")
    return ExplainRequest(
        endpoint, {name.lower().encode(): value.encode() for name, value in headers.items()}, body.encode()
    )


def explain_with_table(table: RoutingTable, question: ExplainRequest) -> bytes:
    """Explain by a table alone, as a router does that has just started.

    A table has no keys, so callers cannot be identified: in a group that requires it, the session's key may differ from
    that of a running router.
    """
    state = router_state()
    state.install(table, "file", 0.0)
    return _explained(state, question, 0.0, identify_nobody)


def explain(state: RouterState, question: ExplainRequest, now: float) -> bytes:
    """Return which replica would get the request at this moment and why, as JSON.

    Args:
        state: of the router.
        question: the request.
        now: monotonic seconds.

    Raises:
        ApiError: 400, the body has so much structure that all others would wait.
    """
    try:
        structure.check(question.body, structure.LARGE_VALUES, structure.LARGE_OBJECTS)
    except ApiError as error:
        raise ApiError(400, f"{error}; or explain it by a table file", code=error.code) from None
    authenticator = features_of(state).authenticator

    def identify(own: Access | None, namespace: str) -> Caller:
        access = authenticator.access(own)
        # the request to explain has no connection: it is treated as one from the networks that may name callers
        sender = NoSender(access.sources[0].partition("/")[0] if access.sources else "")
        return authenticator.identify(access, namespace, question.headers, sender, now)

    return _explained(state, question, now, identify)


def _explained(state: RouterState, question: ExplainRequest, now: float, identify: Identify) -> bytes:
    result: dict[str, Any] = {"table": state.index.table.version, "refusal": None}
    try:
        if state.asks_callers:
            check_in(state.index, identify)
        request = question.endpoint.parse(question.body)
        routed = _routed(state, request, question.headers, now, identify)
        result["caller"] = _caller(state, routed)
        group, revision = _whose(state, routed)
        place = state.balancer.locations.get_by_origin(routed.demand.record, routed.demand.origin, now)
        result |= _request(routed, group, revision, place, requested=request.model, now=now)
        refuse_empty(routed)
        if (sleep := routed.candidates.sleep) is not None and not routed.candidates.members:
            if (error := waking.refusal(sleep, routed.candidates.sleeper)) is not None:
                raise error
            result |= _held(routed, revision, waking.in_words(sleep))
            return orjson.dumps(result, option=orjson.OPT_INDENT_2)
        result |= _placement(_case(state, routed, now), revision)
    except ApiError as error:
        result["refusal"] = {"status": error.status, "code": error.code, "param": error.param, "message": str(error)}
    return orjson.dumps(result, option=orjson.OPT_INDENT_2)


def _routed(
    state: RouterState, request: ParsedRequest, headers: dict[bytes, bytes], now: float, identify: Identify
) -> Route:
    """Return the route of a request; in a group that identifies its callers, without regard to earlier requests.

    The sender chooses the names of sessions and callers here, and could otherwise read the record of any session.
    """
    route_by = partial(
        route,
        state.index,
        request,
        headers,
        tokens=state.tokens,
        now=now,
        identify=identify,
        points=state.features.routing,
    )
    result = route_by(locations=SessionLocations())
    if state.features.access(result.candidates.access).type is AccessType.ANONYMOUS:
        return route_by(locations=state.balancer.locations)
    demand = result.demand
    demand.unseen, demand.origin, demand.marks, demand.lengths = True, NO_SESSION, (), ()
    if (result.group == UNMATCHED or result.rewrite.domain.salt) and result.candidates.policy is not Policy.PREFIX_HASH:
        demand.prefix = NO_PREFIX  # a prefix that is cached because of callers, and not of the operator
    return result


def _whose(state: RouterState, result: Route) -> tuple[GroupEntry | None, RevisionEntry | None]:
    if result.group == UNMATCHED:
        return None, None
    group = state.index.names[result.group]
    return group, next(revision for revision in group.revisions if revision.candidates.id == result.candidates.id)


def _caller(state: RouterState, result: Route) -> dict[str, str | None] | None:
    if state.features.access(result.candidates.access).type is AccessType.ANONYMOUS:
        return None
    return {"name": result.caller.name or None}


# --- group, session, revision ------------------------------------------------------------------------------


def _request(
    result: Route,
    group: GroupEntry | None,
    revision: RevisionEntry | None,
    place: Placement | None,
    *,
    requested: str,
    now: float,
) -> dict[str, Any]:
    demand, session, unmatched = result.demand, result.session, feature_of(result.features, UnmatchedPrompt)
    missed = unmatched.near_miss if unmatched is not None else None
    last = None
    if place is not None:
        ago = round(now - place.seen, 1)
        last = {"replica": _label(place.member), "tokens": round(place.tokens), "secondsAgo": ago}
    return {
        "match": {
            "how": result.matched_by.value,
            "group": group.label if group is not None else None,
            "model": result.model,
            "alias": requested if result.matched_by is not MatchedBy.NAME and requested != result.model else None,
            "nearMiss": {"group": missed.group, "atByte": missed.at} if missed is not None else None,
        },
        "session": {"key": f"{session.key:016x}", "named": session.named, "source": session.source, "last": last},
        "revision": _arm(result, group, revision) if group is not None and revision is not None else None,
        "tokens": {"prompt": demand.prompt, "prefix": demand.tier1, "history": demand.history},
    }


def _arm(result: Route, group: GroupEntry, revision: RevisionEntry) -> dict[str, Any]:
    return {
        "fingerprint": revision.revision.fingerprint,
        "weight": revision.revision.weight,
        "weights": sum(revision_entry.revision.weight for revision_entry in group.revisions),
        "why": "session" if result.session.pinned else "weight" if result.matched_by is MatchedBy.NAME else "content",
    }


# --- the replica -------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    member: Member
    requests: int
    """Requests in flight, of all routers."""
    ejected: bool
    cost: ReplicaCost | None
    room: bool | None
    """This and the cost are None for an ejected replica, and under policies that do not weigh them."""


class _Case(NamedTuple):
    routed: Route
    place: Placement | None
    """Where the session was served last."""
    home: Member
    """The member that the ring names first, of those that can be sent to."""
    ranked: list[_Candidate]
    """The members, those that can be chosen first, by cost; otherwise by slot."""
    chosen: Member | None
    last_resort: bool
    """True if only the group's other revisions have capacity; `ranked` are their members."""


def _case(state: RouterState, result: Route, now: float) -> _Case:
    demand, balancer = result.demand, state.balancer
    choice = balancer.preview(result.candidates, demand, now)
    candidates, allowed, chosen = choice.candidates, choice.allowed, choice.member
    costs = balancer.costs_by_member(candidates, demand, allowed, now)
    open_to = {member.id for member in allowed}
    ranked = []
    for member in candidates.members if costs else candidates.ready or candidates.members:
        cost, room = costs.get(member.id, (None, None))
        requests = balancer.members.replicas[member.id].load
        ranked.append(_Candidate(member, requests, member.id not in open_to, cost, room))
    return _Case(
        routed=result,
        place=balancer.locations.get_by_origin(demand.record, demand.origin, now),
        home=next(preferred(candidates, _key(result), allowed)),
        ranked=sorted(ranked, key=_rank),
        chosen=chosen,
        last_resort=candidates is not result.candidates,
    )


def _rank(candidate: _Candidate) -> tuple[bool, float]:
    return candidate.ejected, candidate.cost.total if candidate.cost is not None else 0.0


def _key(result: Route) -> int:
    """Return the key that is looked up on the ring."""
    return result.demand.prefix if result.candidates.policy is Policy.PREFIX_HASH else result.demand.session


def _placement(case: _Case, revision: RevisionEntry | None) -> dict[str, Any]:
    candidates = case.routed.candidates
    own = {member.id for member in candidates.ready}
    return {
        "policy": candidates.policy.value,
        "ring": list(_ring(case.routed, revision)),
        "candidates": [_shown(item, lent=item.member.id not in own) for item in case.ranked],
        "choice": case.chosen.label if case.chosen is not None else None,
        "why": _why(case),
    }


def _held(result: Route, revision: RevisionEntry | None, why: str) -> dict[str, Any]:
    """Return the placement of a request that is held until its group has a replica."""
    ring = list(_ring(result, revision))
    return {"policy": result.candidates.policy.value, "ring": ring, "candidates": [], "choice": None, "why": why}


def _ring(result: Route, revision: RevisionEntry | None) -> Iterator[dict[str, str]]:
    """Yield every slot of the revision, whatever its state, and then the members that others lend."""
    own = set()
    if revision is not None:
        places = places_of(revision.revision)
        for place in ring_of(frozenset(places)).order(_key(result)):
            slot = places[place]
            rank = place >> 32 if slot.ranks > 1 else None
            replica = f"{revision.label}/{revision.short}/{place_name(slot.index, rank)}"
            own.add(replica)
            yield {"replica": replica, "state": slot.state.value}
    for member in result.candidates.order(_key(result)):
        if member.label not in own:
            yield {"replica": member.label, "state": SlotState.READY.value}


def _shown(candidate: _Candidate, *, lent: bool) -> dict[str, Any]:
    member, estimate = candidate.member, candidate.cost
    cost = None
    if estimate is not None:
        names = ("wait", "prefill", "step", "crowding", "margin", "total")
        seconds = {name: round(getattr(estimate, name), 6) for name in names}
        cost = {"cachedTokens": round(estimate.cached), "copiedTokens": round(estimate.copied)} | seconds
    return {
        "replica": member.label,
        "requests": candidate.requests,
        "lent": lent,
        "ejected": candidate.ejected,
        "room": candidate.room,
        "cost": cost,
    }


# --- in words ----------------------------------------------------------------------------------------------


def _why(case: _Case) -> str:
    if case.routed.demand.unranked:
        return f"{_why_replica(case)}; its engine chooses the rank itself for this API: nothing counts as cached"
    return _why_replica(case)


def _why_replica(case: _Case) -> str:
    if case.chosen is None:
        seconds = WAIT_SECONDS if case.routed.demand.history else NEW_SECONDS
        return f"no replica has room for the session: it waits for {seconds:g} s at most, then it gets 503"
    open_to = [item for item in case.ranked if not item.ejected]
    if len(open_to) == 1:
        return "no other replica can be sent to"
    if case.last_resort:
        return "no replica of its revision or of other groups has room: it is the best of the group's other revisions"
    taken = next(item for item in open_to if item.member is case.chosen)
    candidates = case.routed.candidates
    match candidates.policy:
        case Policy.EXPECTED_TTFT:
            return _cheapest(case, taken)
        case Policy.BOUNDED_LOAD:
            cap = load_cap([item.requests for item in open_to], candidates.load_factor_percent)
            return f"it is the first in the ring's order with fewer than {cap} requests"
        case Policy.LEAST_REQUEST:
            return f"it has the fewest requests, {taken.requests}"
        case Policy.ROUND_ROBIN:
            return "the replicas take turns"
        case Policy.PREFIX_HASH:
            return "it is the home of all requests with this prefix"


def _cheapest(case: _Case, taken: _Candidate) -> str:
    was = case.place.member if case.place is not None else case.home.id
    stay = next((item for item in case.ranked if item.member.id == was), None)
    if stay is taken:
        if case.place is not None:
            return "the session was there last, and no other is cheaper"
        return "this is the session's home. No router has seen the session, and no other replica is cheaper"
    if stay is None:
        return "it is the cheapest, and the replica that served the session last is gone"
    if stay.ejected or stay.cost is None:
        reason = "could not be reached lately"
    else:
        reason = f"costs {stay.cost.total:.4f} s" if stay.room else "has no room"
    return f"it is the cheapest: {stay.member.label} {reason}"


def _label(member: MemberId) -> str:
    """Return the label of a member that may have left the table, as clients and logs see it."""
    return member_parts(member).label
