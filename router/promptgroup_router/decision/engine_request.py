"""Decides what an engine gets of a client's request: which header fields, and the body. Does no I/O."""

from promptgroup_router.access.authenticator import Authenticator
from promptgroup_router.apis.responses import with_id
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.callers.salts import SHARED, CacheDomain
from promptgroup_router.contract.access import ANYBODY
from promptgroup_router.decision.engine_headers import to_engine
from promptgroup_router.rings.ids import member_hash
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.response_id import ResponseId, encode, encode_for, process_hash
from promptgroup_router.routing.route import Route

NO_FIELDS: tuple[tuple[bytes, bytes], ...] = ()


def engine_fields(
    authenticator: Authenticator, found: Route, member: Member, *, traced: bool
) -> tuple[frozenset[bytes], tuple[tuple[bytes, bytes], ...]]:
    """Return the names of the client's header fields that a member gets, and further fields that it gets.

    An engine that asks for a credential of its own gets none of the client's.

    Args:
        authenticator: knows the accesses and the credentials.
        found: the route of the request.
        member: the replica that gets it.
        traced: whether the engine is told of a span of the router's.
    """
    access, further = ANYBODY, NO_FIELDS
    if not member.credential:
        access = authenticator.access(found.access)
    else:
        credential = authenticator.keyring.credential(member.group.partition("/")[0], member.credential)
        further = ((b"authorization", b"Bearer " + credential),)
    rules, rewritten = found.candidates.rules, found.rewrite.metered
    return to_engine(access, rules, rewritten=rewritten, traced=traced, secret=found.secret), further


def lacks_credential(authenticator: Authenticator, member: Member) -> bool:
    """Return True if a member's engine asks for a credential that has not been read."""
    if not member.credential:
        return False
    namespace = member.group.partition("/")[0]
    return not authenticator.keyring.credential(namespace, member.credential)


def engine_body(found: Route, member: Member, random: bytes) -> bytes | bytearray:
    """Return the body for a member.

    Args:
        found: the route of the request.
        member: the replica that gets it.
        random: RANDOM_BYTES of a response's id; not used for requests that ask for no response.
    """
    if not found.stamped:
        return found.body
    return with_id(found.body, response_id(member, found.demand.session, random, found.domain))


def response_id(member: Member, session: SessionKey, random: bytes, domain: CacheDomain = SHARED) -> str:
    """Return an id for a response that a member is asked for."""
    contents = ResponseId(member_hash(member.id), process_hash(member.incarnation), session)
    return encode_for(contents, random, domain) if domain.salt else encode(contents, random)
