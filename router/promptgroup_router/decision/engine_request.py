"""Decides what an engine gets of a client's request: which header fields, and the body."""

from promptgroup_contract.access import ANYBODY
from promptgroup_contract.names import HEADER_RANK
from promptgroup_router.decision.engine_headers import to_engine
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.points import ProcessFeatures, RandomBytes
from promptgroup_router.routing.route import Route

_RANK = HEADER_RANK.encode()
NO_FIELDS: tuple[tuple[bytes, bytes], ...] = ()


def engine_fields(
    features: ProcessFeatures, route: Route, member: Member, *, traced: bool
) -> tuple[frozenset[bytes], tuple[tuple[bytes, bytes], ...]]:
    """Return the names of the client's header fields that a member gets, and further fields that it gets.

    An engine that requires a credential of its own gets none of the client's. One with data-parallel ranks gets the
    rank in a field; a client's value for it is never passed on, whatever fields its group allows.

    Args:
        features: have the access rules and the credentials.
        route: the route of the request.
        member: the replica that gets it.
        traced: whether the engine gets the `traceparent` of a span of the router.
    """
    access, further = ANYBODY, NO_FIELDS
    if not member.credential:
        access = features.access(route.candidates.access)
    else:
        credential = features.credential(member.group.partition("/")[0], member.credential)
        further = ((b"authorization", b"Bearer " + credential),)
    allowed = to_engine(access, route.candidates.rules, traced=traced)
    for feature in route.features:
        allowed = feature.engine_fields(allowed)
    if member.rank is not None:
        allowed -= {_RANK}
        further += ((_RANK, b"%d" % member.rank),)
    return allowed, further


def lacks_credential(features: ProcessFeatures, member: Member) -> bool:
    """Return True if a member's engine requires a credential that has not been read."""
    if not member.credential:
        return False
    namespace = member.group.partition("/")[0]
    return not features.credential(namespace, member.credential)


def engine_body(route: Route, member: Member, random: RandomBytes) -> bytes | bytearray:
    """Return the body for a member.

    Args:
        route: the route of the request.
        member: the replica that gets it.
        random: returns the given number of unpredictable bytes.
    """
    body = route.rewrite.body
    for feature in route.features:
        body = feature.engine_body(body, member, random)
    return body
