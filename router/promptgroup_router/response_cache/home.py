"""Chooses the router that answers for a key, so that equal requests to several routers meet in one.

Each router ranks all routers for a key (rendezvous hashing, Thaler and Ravishankar 1996) and needs no agreement: while
two of them know different routers, both may compute an answer, and that is all.
"""

from collections.abc import Iterable
from typing import TypeVar

import xxhash

from promptgroup_router.response_cache.canonical import CacheKey

_A = TypeVar("_A")


def home_of(key: CacheKey, own: int, others: Iterable[tuple[int, _A]]) -> _A | None:
    """Return the address of the router that answers for a key; None if it is this one.

    Args:
        key: of the answer.
        own: this router's number among its peers (64 bits).
        others: number and address of each of the others.
    """
    best, home = _rank(key, own), None
    for number, address in others:
        rank = _rank(key, number)
        if rank > best:
            best, home = rank, address
    return home


def _rank(key: CacheKey, number: int) -> tuple[int, int]:
    return xxhash.xxh3_64_intdigest(key + number.to_bytes(8, "big")), number
