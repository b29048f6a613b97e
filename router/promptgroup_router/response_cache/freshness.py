"""Decides how long an answer is cached, and whether a cached one may be served."""

from dataclasses import replace

from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.directives import Directives

JITTER = 0.1
"""Largest share by which a lifetime is shortened. Answers that were computed at the same time, for example for a batch,
would otherwise expire, and be recomputed, at the same time."""


def lifetime(ttl: int, desired: int | None, key: CacheKey) -> float:
    """Return the seconds for which an answer is cached.

    Args:
        ttl: longest lifetime by the group's rules, in seconds.
        desired: longest lifetime that the client allows, in seconds; None for the group's.
        key: of the answer. It decides the jitter, so that an answer expires in all routers at the same time.
    """
    longest = ttl if desired is None else min(ttl, desired)
    return longest * (1 - JITTER * int.from_bytes(key[:4], "big") / 2**32)


def held_to(kept_answer: KeptAnswer, ttl: int) -> KeptAnswer:
    """Return a cached answer with its lifetime under the group's current rules, which may have changed since.

    Args:
        kept_answer: the answer, as it was cached.
        ttl: longest lifetime by the group's rules, in seconds. A longer one than before does not extend a lifetime,
            since the answer's own client may have requested a shorter one.
    """
    longest = lifetime(ttl, None, kept_answer.key)
    return kept_answer if kept_answer.lifetime <= longest else replace(kept_answer, lifetime=longest)


def may_be_given_stale(kept_answer: KeptAnswer, directives: Directives, now: float, *, ttl: int, stale: int) -> bool:
    """Return True if a client may be served a stale answer while a new one is computed (RFC 5861).

    Args:
        kept_answer: the answer, with its lifetime under the group's current rules.
        directives: the client's directives.
        now: seconds since the epoch.
        ttl: longest lifetime by the group's rules, in seconds. An answer whose own client requested a shorter one is
            not served stale.
        stale: seconds beyond its lifetime for which the group allows a stale answer.
    """
    if (
        not stale
        or directives.no_cache
        or directives.no_store
        or directives.max_age is not None
        or directives.ttl is not None
    ):
        return False
    return kept_answer.lifetime >= ttl * (1 - JITTER) and kept_answer.age(now) < kept_answer.lifetime + stale


def may_be_given(kept_answer: KeptAnswer, directives: Directives, now: float) -> bool:
    """Return True if a client may be served a cached answer.

    Args:
        kept_answer: the answer, with its lifetime under the group's current rules.
        directives: the client's directives.
        now: seconds since the epoch.
    """
    age = kept_answer.age(now)
    if directives.no_cache or directives.no_store or age >= kept_answer.lifetime:
        return False
    return directives.max_age is None or age <= directives.max_age
