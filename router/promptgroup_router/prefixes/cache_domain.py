"""The part of engines' caches that a request reads and writes: one that all callers share, or a caller's own."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from promptgroup_router.rings.ids import PrefixKey

TAG_BYTES = 6
"""Bytes of a response's id that prove whose it is: each guess costs a request."""
PURPOSE: Final = b"pg-salts"
"""Distinguishes the hashes of salts from those of other purposes."""


@dataclass(frozen=True, slots=True)
class CacheDomain:
    """The part of engines' caches that a request reads and writes."""

    salt: str
    """The text that engines mix into their keys, hex digits; empty for the part that all share."""
    mask: int
    """64 bits that distinguish the prefixes of one domain from those of others; 0 for the shared one."""

    def prefix(self, shared: PrefixKey) -> PrefixKey:
        """Return the key of a prefix in this domain, by its key in the shared one."""
        return PrefixKey(shared ^ self.mask)

    def tag(self, data: bytes) -> bytes:
        """Return TAG_BYTES bytes that cannot be computed without the salt."""
        return blake2b(data, key=self.salt.encode(), digest_size=TAG_BYTES, person=PURPOSE).digest()


SHARED: Final = CacheDomain("", 0)
"""The domain of all callers whose group does not isolate them."""
