"""Routes requests that name a stored response in their path: to read it, to cancel it, to delete it."""

import enum
from dataclasses import dataclass, replace

from promptgroup_contract.table import Policy
from promptgroup_router.apis.responses import RESPONSES_PATH
from promptgroup_router.apis.session_key import RequestSession
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.features.isolation.salts import Salts
from promptgroup_router.features.stored_responses.holder import find_holder, holds, lost
from promptgroup_router.features.stored_responses.response_id import decode, is_open_to, is_plain
from promptgroup_router.placement.members import MemberRecords
from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.ids import member_parts
from promptgroup_router.rings.index import RoutingIndex
from promptgroup_router.routing.match import MatchedBy
from promptgroup_router.routing.route import Identify, Rewrite, Route, identify_nobody

_PREFIX = RESPONSES_PATH + b"/"
_NOT_IDS = frozenset(("compact", "input_tokens"))
"""Paths of OpenAI's API at the place of an id."""
_NO_RESPONSE = "response_not_found"


class ResponseAction(enum.Enum):
    """The operations on a stored response, by method and suffix of the path."""

    READ = (b"GET", "")
    DELETE = (b"DELETE", "")
    CANCEL = (b"POST", "cancel")
    INPUT_ITEMS = (b"GET", "input_items")


@dataclass(frozen=True, slots=True)
class StoredResponsePath:
    """A path that names a stored response."""

    response_id: str
    methods: tuple[bytes, ...]
    """The methods that the path has."""


def parse_path(path: bytes) -> StoredResponsePath | None:
    """Return the response that a path names; None for any other path."""
    if not path.startswith(_PREFIX):
        return None
    response_id, _, suffix = path[len(_PREFIX) :].decode("latin-1").partition("/")
    methods = tuple(action.value[0] for action in ResponseAction if action.value[1] == suffix)
    if not methods or response_id in _NOT_IDS or not is_plain(response_id):
        return None
    return StoredResponsePath(response_id, methods)


def route_by_response(
    index: RoutingIndex,
    members: MemberRecords,
    response_id: str,
    body: bytes | bytearray,
    namespace: str = "",
    *,
    identify: Identify = identify_nobody,
    salts: Salts | None = None,
) -> Route:
    """Decide which replica gets a request about a stored response.

    Args:
        index: the routing table.
        members: maps hashes to replicas.
        response_id: the id of the response.
        body: the body of the request.
        namespace: value of the header that restricts the request to the replicas of a namespace; empty for any.
        identify: identifies the caller.
        salts: the salts of callers, for groups that isolate them.

    Raises:
        ApiError: 401, 403 or 503: the sender may not use the group. 404: a router did not make the id, or no replica
            holds the response any more.
    """
    desired = decode(response_id)
    if desired is None:
        message = f"no replica is known to hold response {shown(response_id)}: its id was not made by this router"
        raise ApiError(404, message, param="response_id", code=_NO_RESPONSE)
    member_id = members.member_id(desired.replica)
    group = index.names.get(member_parts(member_id).group) if member_id is not None else None
    if group is None or namespace not in ("", group.group.namespace):
        raise lost(response_id, "response_id", _NO_RESPONSE, restarted=False)
    caller = identify(group.group.access, group.group.namespace)
    isolated, of = group.group.callers.isolates, group.group.namespace
    if not is_open_to(response_id, caller, of, salts, isolated=isolated):
        raise lost(response_id, "response_id", _NO_RESPONSE, restarted=False)
    for revision in group.revisions:
        member = find_holder(revision.candidates, desired)
        if member is None or member.id != member_id:
            continue
        if not holds(member, desired):
            raise lost(response_id, "response_id", _NO_RESPONSE, restarted=True)
        # the response may be of a request that no group declares, under the rules of all groups of the replica
        alone = replace(revision.candidates.only(member), rules=index.rules_of_replicas(group.group))
        return Route(
            matched_by=MatchedBy.NAME,
            group=revision.label,
            model=revision.group.model,
            candidates=replace(alone, policy=Policy.LEAST_REQUEST),
            demand=Demand(desired.session, revision.prefix, streamed=False, cached=False),
            session=RequestSession(desired.session, desired.session, named=True, source="path"),
            rewrite=Rewrite(body=body),
            caller=caller,
        )
    raise lost(response_id, "response_id", _NO_RESPONSE, restarted=False)
