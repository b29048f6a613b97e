"""Ids of responses that say which replica holds them.

An engine keeps the responses that it stores in its own memory, so that a request which continues one, reads it or
cancels it must reach the same process. vLLM, SGLang and TensorRT-LLM take a response's id from the `request_id` of the
request. The router gives each request such an id, made of the replica, its process and the session, and reads it back.
No router has to remember or tell anything: every router of the namespace, a restarted one too, finds the replica.

    resp_pg_ ‖ base64url(replica: 8 bytes ‖ process: 4 bytes ‖ session: 8 bytes ‖ random: 10 bytes)

An id is no proof of anything: one that a client invents chooses a replica of the group that the request matches, as
any session id does. Where callers are kept apart, the last 6 of the random bytes are a tag of the others under the
caller's salt, so that nobody continues or reads what another caller has stored. Does no I/O and reads no clock.
"""

import base64
import binascii
import hmac
import re
import struct
from typing import NamedTuple

import xxhash

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.callers.salts import TAG_BYTES, CacheDomain
from promptgroup_router.rings.ids import MemberHash

MARK = "resp_pg_"
RANDOM_BYTES = 10
"""80 bits: two responses of one session on one replica have different ids."""
MOST_CHARACTERS = 256
"""Longest id that is looked at; those of hosted APIs have about 60."""

_LAYOUT = struct.Struct("<QIQ")
_PLAIN = re.compile(rf"[A-Za-z0-9_\-.]{{1,{MOST_CHARACTERS}}}")


class ResponseId(NamedTuple):
    """The contents of an id."""

    replica: MemberHash
    process: int
    """Hash of the engine's process (32 bits)."""
    session: SessionKey


def process_hash(incarnation: str) -> int:
    """Return the hash of an engine's process (32 bits)."""
    return xxhash.xxh32_intdigest(incarnation.encode())


def encode(contents: ResponseId, random: bytes) -> str:
    """Return the id with these contents and RANDOM_BYTES random bytes."""
    return MARK + base64.urlsafe_b64encode(_LAYOUT.pack(*contents) + random).decode()


def encode_for(contents: ResponseId, random: bytes, domain: CacheDomain) -> str:
    """Return an id that `is_of` a caller, from at least RANDOM_BYTES random bytes."""
    nonce = random[: RANDOM_BYTES - TAG_BYTES]
    return encode(contents, nonce + domain.tag(_LAYOUT.pack(*contents) + nonce))


def is_of(text: str, domain: CacheDomain) -> bool:
    """Return True if an id was made for the caller of a domain."""
    if decode(text) is None:
        return False
    packed = base64.urlsafe_b64decode(text[len(MARK) :])
    return hmac.compare_digest(domain.tag(packed[:-TAG_BYTES]), packed[-TAG_BYTES:])


def decode(text: str) -> ResponseId | None:
    """Return the contents of an id; None if a router did not make it."""
    if not text.startswith(MARK) or len(text) != len(MARK) + 4 * (_LAYOUT.size + RANDOM_BYTES) // 3:
        return None
    try:
        packed = base64.b64decode(text[len(MARK) :], altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return ResponseId(*_LAYOUT.unpack_from(packed))


def is_plain(text: str) -> bool:
    """Return True if a text may be the id of a response: in a path it cannot name anything else."""
    return _PLAIN.fullmatch(text) is not None and ".." not in text
