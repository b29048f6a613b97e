"""Makes the salts that isolate callers' caches from each other: keyed hashes of callers' names.

A salt must be hard to guess: a client that knows it and reaches engines without a router can read its caller's cache.
So it is a keyed BLAKE2b (RFC 7693 section 2.9) of namespace and name. Routers that share the key make the same salts.
"""

from hashlib import blake2b

from promptgroup_contract.access import Caller
from promptgroup_router.prefixes.cache_domain import PURPOSE, CacheDomain

SALT_BYTES = 24
"""192 bits, 48 characters as hex digits: vLLM takes up to 128 characters, and not all of base64's."""
REMEMBERED = 10_000
"""Most callers whose salts are cached; the salts of others are computed again."""

_MASK_BYTES = 8


class Salts:
    """The salts of all callers, under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key[: blake2b.MAX_KEY_SIZE]
        self._domains: dict[tuple[str, str], CacheDomain] = {}

    def rekey(self, secret: bytes) -> None:
        """Make all salts anew, from a secret of any length; every caller's caches are cold then."""
        self._key = blake2b(secret, person=PURPOSE).digest()
        self._domains.clear()

    def of(self, namespace: str, caller: Caller) -> CacheDomain:
        """Return the domain of a caller."""
        domain = self._domains.get((namespace, caller.name))
        if domain is None:
            domain = self._make(namespace, caller.name)
        return domain

    def _make(self, namespace: str, name: str) -> CacheDomain:
        # a namespace has no NUL, so that no two pairs are one text
        text = f"{namespace}\0{name}".encode()
        made = blake2b(text, key=self._key, digest_size=SALT_BYTES + _MASK_BYTES, person=PURPOSE).digest()
        domain = CacheDomain(made[:SALT_BYTES].hex(), int.from_bytes(made[SALT_BYTES:], "little"))
        if len(self._domains) >= REMEMBERED:
            self._domains.clear()
        self._domains[namespace, name] = domain
        return domain
