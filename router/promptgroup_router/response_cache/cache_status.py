"""Writes the header fields that report the result of the cache: `Cache-Status` (RFC 9211), `Age`, and the key."""

from promptgroup_contract.names import HEADER_CACHE_KEY
from promptgroup_router.http11.http1 import Headers
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey

_NAME = b"promptgroup"
_KEY = HEADER_CACHE_KEY.encode()


def of_hit(kept_answer: KeptAnswer, now: float) -> Headers:
    """Return the fields of a cached answer.

    Args:
        kept_answer: the answer.
        now: seconds since the epoch.
    """
    age = kept_answer.age(now)
    status = b"%b; hit; ttl=%d" % (_NAME, kept_answer.lifetime - age)
    return [(b"age", b"%d" % age), (b"cache-status", status), (_KEY, kept_answer.key.hex().encode())]


def of_miss(key: CacheKey, *, reload: bool) -> Headers:
    """Return the fields of an answer that an engine computes; `reload` if the client accepts no cached one."""
    return [(b"cache-status", b"%b; fwd=%b" % (_NAME, b"request" if reload else b"miss")), _key(key)]


def of_collapsed(key: CacheKey) -> Headers:
    """Return the fields of an answer that an engine computes for another client, too."""
    return [(b"cache-status", _NAME + b"; fwd=miss; collapsed"), _key(key)]


def of_bypass(reason: str) -> Headers:
    """Return the fields of an answer to a request that bypasses the cache."""
    return [(b"cache-status", b"%b; fwd=bypass; detail=%b" % (_NAME, reason.encode()))]


def _key(key: CacheKey) -> tuple[bytes, bytes]:
    return _KEY, key.hex().encode()
