"""Seals answers, by encryption, for a store that others may read and write. Does no I/O and reads no clock.

    version 1 | salt 32 | AES-256-GCM of: JSON of the head | line feed | the pieces, one behind the other

Each answer has a key of its own, from the secret that routers share and the salt, so that a nonce is never used twice
(NIST SP 800-38D, section 8). The version and the answer's key are authenticated with it. A party with access to the
store, but without the secret, can neither read answers nor forge one that a router would serve. Names are keyed hashes,
so that a guessed prompt cannot be looked up either.
"""

from collections.abc import Callable
from hashlib import blake2b
from itertools import accumulate, pairwise
from math import isfinite

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from promptgroup_router.response_cache.answer import MOST_BYTES, MOST_PIECES, KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.purge import REMEMBERED_SECONDS

MOST_SEALED = 2 * MOST_BYTES
"""Largest value that is read: the pieces, and a line that gives the length of each."""

_VERSION = b"\x01"
_SALT_BYTES = 32
_BEGIN = len(_VERSION) + _SALT_BYTES
_NONCE = bytes(12)
"""A constant nonce, since no key is used twice."""
_NAMES, _SEALS, _INSTALLATIONS = b"pg-answer-names", b"pg-answer-seals", b"pg-answer-owner"


class Seal:
    """Seals answers, with keys that are derived from a secret."""

    def __init__(self, secret: bytes, salt: Callable[[int], bytes]) -> None:
        """Derive keys.

        Args:
            secret: the secret that routers share, of any length.
            salt: returns the given number of random bytes.
        """
        self._names = blake2b(secret, digest_size=32, person=_NAMES).digest()
        self._seals = blake2b(secret, digest_size=32, person=_SEALS).digest()
        self._salt = salt
        self.installation = blake2b(secret, digest_size=8, person=_INSTALLATIONS).hexdigest()
        """Identifies the routers that share the secret, which are those of one namespace in one cluster, without
        revealing it."""

    def hidden(self, key: CacheKey) -> str:
        """Return a name for a key that does not reveal the key."""
        return blake2b(key, key=self._names, digest_size=32).hexdigest()

    def close(self, answer: KeptAnswer) -> bytes:
        """Return the bytes of an answer for the store."""
        head = {
            "group": answer.group,
            "revision": answer.revision,
            "type": answer.content_type.decode("latin-1"),
            "id": answer.id.decode("latin-1"),
            "born": answer.born,
            "lifetime": answer.lifetime,
            "lengths": [len(piece) for piece in answer.pieces],
        }
        contents = b"".join((orjson.dumps(head), b"\n", *answer.pieces))
        salt = self._salt(_SALT_BYTES)
        sealed = self._cipher(salt).encrypt(_NONCE, contents, _VERSION + answer.key)
        return b"".join((_VERSION, salt, sealed))

    def open(self, data: bytes, key: CacheKey) -> KeptAnswer | None:
        """Return the answer in bytes from a store; None if no router with this secret wrote them for this key."""
        if not _BEGIN < len(data) <= MOST_SEALED or data[:1] != _VERSION:
            return None
        try:
            contents = self._cipher(data[1:_BEGIN]).decrypt(_NONCE, data[_BEGIN:], _VERSION + key)
        except InvalidTag:
            return None
        # from here on the bytes were written by a router, perhaps one of another version
        line, _, content = contents.partition(b"\n")
        try:
            return _answer(orjson.loads(line), content, key)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _cipher(self, salt: bytes) -> AESGCM:
        return AESGCM(blake2b(salt, key=self._seals, digest_size=32).digest())


def _answer(head: dict[str, object], content: bytes, key: CacheKey) -> KeptAnswer | None:
    lengths, born, lifetime = head["lengths"], head["born"], head["lifetime"]
    texts = [head[name] for name in ("group", "revision", "type", "id")]
    if not (
        isinstance(lengths, list) and len(lengths) <= MOST_PIECES and all(type(length) is int for length in lengths)
    ):
        return None
    if not (isinstance(born, int | float) and isinstance(lifetime, int | float) and isfinite(born)):
        return None
    ends = [0, *accumulate(lengths)]
    if ends[-1] != len(content) or min(lengths, default=0) < 0 or not 0 < lifetime <= REMEMBERED_SECONDS:
        return None
    group, revision, content_type, id_ = (text for text in texts if isinstance(text, str))
    return KeptAnswer(
        key=key,
        group=group,
        revision=revision,
        content_type=content_type.encode("latin-1"),
        pieces=tuple(content[begin:end] for begin, end in pairwise(ends)),
        id=id_.encode("latin-1"),
        born=float(born),
        lifetime=float(lifetime),
    )
