"""Decides how long an answer is kept, and whether a kept one may be given."""

from dataclasses import replace

from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.directives import Directives

JITTER = 0.1
"""Largest share by which a lifetime is shortened. Answers that were made in one moment, as by a batch, would otherwise
expire in one moment, and be computed again in one."""


def lifetime(ttl: int, desired: int | None, key: CacheKey) -> float:
    """Return the seconds for which an answer is kept.

    Args:
        ttl: the longest, by the group.
        desired: the longest, by the client; None for the group's.
        key: of the answer. It decides the jitter, so that all routers forget an answer at one time.
    """
    longest = ttl if desired is None else min(ttl, desired)
    return longest * (1 - JITTER * int.from_bytes(key[:4], "big") / 2**32)


def held_to(kept_answer: KeptAnswer, ttl: int) -> KeptAnswer:
    """Return a kept answer with the lifetime that it has under its group's present rules, which may have changed since.

    Args:
        kept_answer: the answer, as it was kept.
        ttl: longest lifetime by the group, in seconds. A longer one than before makes no answer live longer, since its
            own client may have asked for less.
    """
    longest = lifetime(ttl, None, kept_answer.key)
    return kept_answer if kept_answer.lifetime <= longest else replace(kept_answer, lifetime=longest)


def may_be_given_stale(kept_answer: KeptAnswer, directives: Directives, now: float, *, ttl: int, stale: int) -> bool:
    """Return True if a client may be given a kept answer that is too old, while another is computed (RFC 5861).

    Args:
        kept_answer: the answer, held to the group's rules.
        directives: what the client allows.
        now: seconds since the epoch.
        ttl: longest lifetime, by the group. An answer that its own client wanted to be kept for less is not given.
        stale: seconds beyond its lifetime, by the group.
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
    """Return True if a client may be given a kept answer.

    Args:
        kept_answer: the answer, held to the group's rules.
        directives: what the client allows.
        now: seconds since the epoch.
    """
    age = kept_answer.age(now)
    if directives.no_cache or directives.no_store or age >= kept_answer.lifetime:
        return False
    return directives.max_age is None or age <= directives.max_age
