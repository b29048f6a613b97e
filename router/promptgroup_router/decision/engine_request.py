"""Decides what an engine gets of a client's request, and writes it: target, header fields and body.

Requests of the supported APIs have their parameters in the body. vLLM 0.32 and 0.33 and SGLang 0.5.23 read parameters
of the query for stored responses alone, besides those at paths for their operators. What SDKs add elsewhere
(`beta=true` of Anthropic's, `api-version` of Azure's) is read by none, and the next release may read more.
"""

from promptgroup_contract.access import ANYBODY
from promptgroup_contract.names import HEADER_RANK
from promptgroup_router.apis.endpoints import PASSED, Endpoint
from promptgroup_router.apis.responses import RESPONSES_PATH
from promptgroup_router.decision.engine_headers import to_engine
from promptgroup_router.http11 import http1
from promptgroup_router.http11.http1 import RequestHead
from promptgroup_router.http11.trace_context import HEADER as TRACEPARENT
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.points import RandomBytes, Rest
from promptgroup_router.routing.process_points import ProcessFeatures
from promptgroup_router.routing.route import Route

OF_STORED_RESPONSES = frozenset((b"stream", b"starting_after", b"include", b"after", b"limit", b"order"))
"""The parameters by which OpenAI's API reads a response and the items of its input."""
NO_FIELDS: tuple[tuple[bytes, bytes], ...] = ()

_STORED = RESPONSES_PATH + b"/"
_RANK = HEADER_RANK.encode()
_VIA_AND_HOST = (b"via: 1.0 promptgroup\r\nhost: ", b"via: 1.1 promptgroup\r\nhost: ")
"""By the minor version of the client's HTTP (RFC 9110 section 7.6.3)."""
_TRACEPARENT = TRACEPARENT + b": "


def engine_request(
    features: ProcessFeatures,
    route: Route,
    member: Member,
    traceparent: bytes,
    *,
    endpoint: Endpoint,
    head: RequestHead,
    rest: Rest | None,
    random: RandomBytes,
    further_line: bytes,
) -> tuple[bytes, bytes | bytearray]:
    """Return head and body of the request for a member.

    Args:
        features: have the access rules and the credentials.
        route: the route of the request.
        member: the replica that gets it.
        traceparent: of the router's span; empty to pass on the client's.
        endpoint: the endpoint of the request.
        head: the client's.
        rest: of the answer, if another replica has begun it; None for a request from its beginning.
        random: returns the given number of unpredictable bytes.
        further_line: a field of the head, as a line.
    """
    method = head.method
    if rest is None:
        target = engine_target(endpoint, head.path, head.query)
        body = engine_body(route, member, random)
    else:
        target, body = rest.request()
        method = b"POST" if body else b"GET"
    allowed, further = engine_fields(features, route, member, traced=traceparent != b"")
    lines = http1.forwarded(head, allowed)
    if further:
        lines += http1.lines_of(further)
    if traceparent:
        lines.append(_TRACEPARENT + traceparent)
    lines.append(_VIA_AND_HOST[head.minor] + member.address.encode())
    if body or method == b"POST":
        lines.append(b"content-length: " + str(len(body)).encode())
    lines.append(further_line)
    return http1.encode(method + b" " + target + b" HTTP/1.1", lines), body


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


def engine_query(endpoint: Endpoint, path: bytes, query: bytes) -> bytes:
    """Return the query that an engine gets.

    Args:
        endpoint: the endpoint of the request; the one for paths that only the settings of the router allow gets all.
        path: of the request.
        query: behind the question mark.
    """
    if not query or endpoint is PASSED:
        return query
    if not path.startswith(_STORED):
        return b""
    return b"&".join(part for part in query.split(b"&") if part.partition(b"=")[0] in OF_STORED_RESPONSES)


def engine_target(endpoint: Endpoint, path: bytes, query: bytes) -> bytes:
    """Return the path and the query that an engine gets, as one text; the arguments are those of `engine_query`."""
    passed = engine_query(endpoint, path, query)
    return path + b"?" + passed if passed else path
