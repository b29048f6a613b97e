"""Encodes the replica that holds a response in the response's id.

An engine keeps the responses that it stores in its own memory, so that a request which continues one, reads it or
cancels it must reach the same process. vLLM, SGLang and TensorRT-LLM take a response's id from the `request_id` of the
request. The router sets such an id in each request, which encodes the replica, its process and the session, and decodes
it later. Routers store and exchange nothing for this: every router of the namespace, even a restarted one, finds the
replica.

    resp_pg_ ‖ base64url(replica: 8 bytes ‖ process: 4 bytes ‖ session: 8 bytes ‖ random: 10 bytes)

An id is no proof of anything: one that a client invents chooses a replica of the group that the request matches, as
any session id does.

Where callers are isolated an id begins with `resp_pg_c_`, and the last 6 of its random bytes are a tag of the others
under the caller's salt. So an id alone proves that it is one caller's, and no other caller continues, reads or cancels
the response, through any group: an engine looks its responses up by the whole text, so that an id without these letters
names no response.
"""

import base64
import binascii
import hmac
import re
import struct
from typing import NamedTuple

import xxhash

from promptgroup_contract.access import Caller
from promptgroup_router.apis.responses import with_id
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.features.isolation.salts import Salts
from promptgroup_router.prefixes.cache_domain import SHARED, TAG_BYTES, CacheDomain
from promptgroup_router.rings.ids import MemberHash, member_hash
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.points import RandomBytes, RequestFeature

MARK = "resp_pg_"
OWNED = MARK + "c_"
"""The beginning of an id that is one caller's."""
RANDOM_BYTES = 10
"""80 bits: two responses of one session on one replica have different ids."""
MOST_CHARACTERS = 256
"""Longest id that is parsed; those of hosted APIs have about 60."""

_LAYOUT = struct.Struct("<QIQ")
_CHARACTERS = 4 * (_LAYOUT.size + RANDOM_BYTES) // 3
_PLAIN = re.compile(rf"[A-Za-z0-9_\-.]{{1,{MOST_CHARACTERS}}}")


class ChosenResponseId(RequestFeature):
    """The id of the response to a request, chosen by the router, which encodes the replica that holds the response."""

    __slots__ = ("_domain", "_session")

    binds = True

    def __init__(self, session: SessionKey, domain: CacheDomain) -> None:
        self._session = session
        self._domain = domain

    def engine_body(self, body: bytes | bytearray, member: Member, random: RandomBytes) -> bytes | bytearray:
        """Return the body with an id that names the replica."""
        return with_id(body, response_id(member, self._session, random(RANDOM_BYTES), self._domain))


class ResponseId(NamedTuple):
    """The contents of an id."""

    replica: MemberHash
    process: int
    """Hash of the engine's process (32 bits)."""
    session: SessionKey


def process_hash(incarnation: str) -> int:
    """Return the hash of an engine's process (32 bits)."""
    return xxhash.xxh32_intdigest(incarnation.encode())


def response_id(member: Member, session: SessionKey, random: bytes, domain: CacheDomain = SHARED) -> str:
    """Return an id for a response that is requested from a member."""
    contents = ResponseId(member_hash(member.id), process_hash(member.incarnation), session)
    return encode_for(contents, random, domain) if domain.salt else encode(contents, random)


def encode(contents: ResponseId, random: bytes) -> str:
    """Return the id with these contents and RANDOM_BYTES random bytes."""
    return MARK + _text(_LAYOUT.pack(*contents) + random)


def encode_for(contents: ResponseId, random: bytes, domain: CacheDomain) -> str:
    """Return an id that `is_of` a caller, from at least RANDOM_BYTES random bytes."""
    result = _LAYOUT.pack(*contents) + random[: RANDOM_BYTES - TAG_BYTES]
    return OWNED + _text(result + domain.tag(result))


def is_of(text: str, domain: CacheDomain) -> bool:
    """Return True if an id was made for the caller of a domain."""
    packed = _packed(text)
    return packed is not None and hmac.compare_digest(domain.tag(packed[:-TAG_BYTES]), packed[-TAG_BYTES:])


def is_open_to(text: str, caller: Caller, namespace: str, salts: Salts | None, *, isolated: bool) -> bool:
    """Return True if a caller may use the response of an id.

    Args:
        text: the id.
        caller: who sends the request.
        namespace: the namespace of the replica that holds the response.
        salts: the salts of callers; None where there are none.
        isolated: whether the request's group isolates its callers, so that each id has to be the caller's.
    """
    if not isolated and not (text.startswith(OWNED) and len(text) == len(OWNED) + _CHARACTERS):
        return True
    return salts is not None and caller.name != "" and is_of(text, salts.of(namespace, caller))


def decode(text: str) -> ResponseId | None:
    """Return the contents of an id; None if a router did not make it."""
    packed = _packed(text)
    return ResponseId(*_LAYOUT.unpack_from(packed)) if packed is not None else None


def _text(packed: bytes) -> str:
    return base64.urlsafe_b64encode(packed).decode()


def _packed(text: str) -> bytes | None:
    """Return the bytes of an id; None if a router did not make it."""
    # what follows the shorter beginning may begin as the longer one does: their lengths differ
    mark = OWNED if len(text) == len(OWNED) + _CHARACTERS else MARK
    if not text.startswith(mark) or len(text) != len(mark) + _CHARACTERS:
        return None
    try:
        return base64.b64decode(text[len(mark) :], altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def is_plain(text: str) -> bool:
    """Return True if a text may be the id of a response: in a path it cannot name anything else."""
    return _PLAIN.fullmatch(text) is not None and ".." not in text
