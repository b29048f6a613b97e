"""Chooses the home router of a key, so that equal requests to several routers are answered by one of them.

Each router ranks all routers for a key (rendezvous hashing, Thaler and Ravishankar 1996) without coordination: while
two routers have different lists of peers, the only effect is that both may compute an answer.
"""

from collections.abc import Iterable
from typing import TypeVar

import xxhash

from promptgroup_router.response_cache.canonical import CacheKey

_A = TypeVar("_A")


def home_of(key: CacheKey, own: int, others: Iterable[tuple[int, _A]]) -> _A | None:
    """Return the address of a key's home router; None if it is this one.

    Args:
        key: of the answer.
        own: this router's number among its peers (64 bits).
        others: numbers and addresses of the other routers.
    """
    best, home = _rank(key, own), None
    for number, address in others:
        rank = _rank(key, number)
        if rank > best:
            best, home = rank, address
    return home


def _rank(key: CacheKey, number: int) -> tuple[int, int]:
    return xxhash.xxh3_64_intdigest(key + number.to_bytes(8, "big")), number
