"""Decides what an engine gets of a client's request: which header fields, and the body. Does no I/O."""

from promptgroup_router.access import credentials
from promptgroup_router.access.authenticator import Authenticator
from promptgroup_router.apis.responses import with_id
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.callers.salts import SHARED, CacheDomain
from promptgroup_router.contract import names
from promptgroup_router.contract.access import ANYBODY, Access
from promptgroup_router.contract.caller_rules import CachedTokens, CallerRules
from promptgroup_router.rings.ids import member_hash
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.response_id import ResponseId, encode, encode_for, process_hash
from promptgroup_router.routing.route import Route

NOT_FORWARDED = frozenset(
    each.encode()
    for each in (
        names.HEADER_GROUP,
        names.HEADER_NAMESPACE,
        names.HEADER_WARMUP,
        names.HEADER_DIAGNOSTICS,
        names.HEADER_USAGE,
    )
)
"""Fields that concern routing, or that only the operator may set."""
NEITHER_CREDENTIALS = NOT_FORWARDED | credentials.HEADERS
"""The same, and clients' credentials."""
_TO_REWRITE = frozenset((b"accept-encoding",))
NOT_FORWARDED_TO_REWRITE = NOT_FORWARDED | _TO_REWRITE
"""Those of requests whose answers are rewritten, which nobody can do that are compressed."""
NEITHER_CREDENTIALS_TO_REWRITE = NEITHER_CREDENTIALS | _TO_REWRITE
"""The same, and clients' credentials."""
HEADER_SETS = (NOT_FORWARDED, NEITHER_CREDENTIALS, NOT_FORWARDED_TO_REWRITE, NEITHER_CREDENTIALS_TO_REWRITE)
"""All sets that `not_forwarded` returns."""


def not_forwarded(access: Access, rules: CallerRules, *, rewritten: bool = False) -> frozenset[bytes]:
    """Return the header fields that engines do not get, by the access and the rules of the request's group.

    The answer is rewritten where the rules say so, and where `rewritten` does.
    """
    if rules.cached_tokens is CachedTokens.EXACT and not rewritten:
        return NOT_FORWARDED if access.passes_credentials else NEITHER_CREDENTIALS
    return NOT_FORWARDED_TO_REWRITE if access.passes_credentials else NEITHER_CREDENTIALS_TO_REWRITE


def engine_fields(
    authenticator: Authenticator, found: Route, member: Member
) -> tuple[frozenset[bytes], tuple[tuple[bytes, bytes], ...]]:
    """Return the header fields of the client that a member does not get, and those that it gets beside them.

    An engine that asks for a credential of its own gets none of the client's.
    """
    rules, rewritten = found.candidates.rules, found.rewrite.metered
    if not member.credential:
        return not_forwarded(authenticator.access(found.access), rules, rewritten=rewritten), ()
    credential = authenticator.keyring.credential(member.group.partition("/")[0], member.credential)
    return not_forwarded(ANYBODY, rules, rewritten=rewritten), ((b"authorization", b"Bearer " + credential),)


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
