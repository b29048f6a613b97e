"""Holds the secrets that a router was given: clients' API keys as hashes, and the credentials for engines.

It is replaced key by key while requests are served: what changes holds from the next request on.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from promptgroup_contract.access import MAX_NAME, Caller

MIN_KEY_BYTES = 16
"""Bytes of the shortest API key: a shorter one could be guessed."""
MAX_KEY_BYTES = 512
"""Bytes of the longest API key."""
MAX_KEYS = 10_000
"""Most API keys of one Secret, which has at most 1 MiB."""
HASH_BYTES = 16

_NAME = re.compile(r"[A-Za-z0-9._@][A-Za-z0-9._@:/+|-]{0,127}", re.ASCII)
_KEY = re.compile(rb"[\x21-\x7e]+")


class SecretRef(NamedTuple):
    """A Secret, by its place."""

    namespace: str
    name: str


def is_name(text: str) -> bool:
    """Return True if a text can be a caller's name: a label of metrics that needs no escape, and a field of logs."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


class Keyring:
    """The secrets of one router."""

    def __init__(self, salt: bytes) -> None:
        """Start empty.

        Args:
            salt: up to 64 random bytes of this process: hashes that a dump of its memory shows are of no use elsewhere,
                and the duration of a look-up reveals nothing about keys without it.
        """
        self.salt = salt
        self.version = 0
        """Increases with each change of the API keys and credentials."""
        self._salted = hashlib.blake2b(digest_size=HASH_BYTES, key=salt)
        """A hash state that contains the salt, and is copied for each key: half the cost of a new one."""
        self._keys: dict[tuple[str, str], Mapping[bytes, Caller]] = {}
        """Secret → hash of an API key → whose it is; empty for a Secret that does not exist."""
        self._by_namespace: dict[str, dict[str, Mapping[bytes, Caller]]] = {}
        """The same by namespace, then by name: two look-ups of texts cost less than one of a pair."""
        self._credentials: dict[tuple[str, str], Mapping[str, bytes]] = {}
        """Secret → its key → the credential for engines."""

    def learn_keys(self, ref: SecretRef, data: Mapping[str, bytes]) -> list[str]:
        """Replace the API keys of a Secret; without data the Secret has none.

        Args:
            ref: the Secret.
            data: caller's name → that caller's API keys, one a line.

        Returns:
            One message for each entry that cannot be used; none repeats a key.
        """
        problems: list[str] = []
        callers: dict[bytes, Caller] = {}
        for name in sorted(data):
            if not is_name(name):
                problems.append(f"{name[:MAX_NAME]!r} is no name of a caller")
                continue
            caller = Caller(name)
            for number, line in enumerate(data[name].splitlines(), start=1):
                key = line.strip()
                if not key:
                    continue
                if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES or _KEY.fullmatch(key) is None:
                    expected = f"{MIN_KEY_BYTES} to {MAX_KEY_BYTES} printable ASCII characters without spaces"
                    problems.append(f"{name}: line {number} is no API key, expected {expected}")
                elif len(callers) >= MAX_KEYS:
                    problems.append(f"{name}: line {number} is beyond {MAX_KEYS} API keys")
                elif (holder := callers.setdefault(self._hash(key), caller)).name != name:
                    problems.append(f"{name}: line {number} is a key of {holder.name} already")
        self._set_keys({**self._keys, ref: callers})
        return problems

    def hashes(self) -> dict[SecretRef, Mapping[bytes, Caller]]:
        """Return the hashes of all API keys: Secret → hash → whose it is."""
        return {SecretRef(*ref): known for ref, known in self._keys.items()}

    def restore(self, salt: bytes, hashes: Mapping[SecretRef, Mapping[bytes, Caller]]) -> None:
        """Take over the hashes of an earlier process, with the salt that they were made with.

        Raises:
            ValueError: the salt is longer than any can be.
        """
        self._salted = hashlib.blake2b(digest_size=HASH_BYTES, key=salt)
        self.salt = salt
        self._set_keys({(ref.namespace, ref.name): known for ref, known in hashes.items()})

    def _set_keys(self, keys: dict[tuple[str, str], Mapping[bytes, Caller]]) -> None:
        if keys != self._keys:
            self.version += 1
        self._keys = keys
        self._by_namespace = {}
        for (namespace, name), known in keys.items():
            self._by_namespace.setdefault(namespace, {})[name] = known

    def learn_credentials(self, ref: SecretRef, data: Mapping[str, bytes]) -> None:
        """Replace the credentials for engines that a Secret holds."""
        values = {name: value.strip() for name, value in data.items()}
        known = {name: value for name, value in values.items() if _KEY.fullmatch(value) is not None}
        if known != self._credentials.get(ref):
            self.version += 1
        self._credentials[ref] = known

    def credentials(self) -> dict[SecretRef, Mapping[str, bytes]]:
        """Return all credentials for engines: Secret → its key → the credential."""
        return {SecretRef(*ref): known for ref, known in self._credentials.items()}

    def keep(self, refs: frozenset[SecretRef]) -> None:
        """Drop the Secrets whose keys no group accepts any more."""
        self._set_keys({ref: known for ref, known in self._keys.items() if ref in refs})

    def keep_credentials(self, refs: frozenset[SecretRef]) -> None:
        """Drop the Secrets whose credentials no engine requires any more."""
        before = len(self._credentials)
        self._credentials = {ref: known for ref, known in self._credentials.items() if ref in refs}
        if len(self._credentials) < before:
            self.version += 1

    def whose(self, key: bytes, namespace: str, secrets: tuple[str, ...]) -> Caller | None:
        """Return the caller that an API key belongs to, by these Secrets; None if none of them has the key."""
        of_namespace = self._by_namespace.get(namespace)
        if of_namespace is None:
            return None
        hashed = self._hash(key)
        for name in secrets:
            known = of_namespace.get(name)
            if known is not None and (caller := known.get(hashed)) is not None:
                return caller
        return None

    def unread(self, namespace: str, secrets: tuple[str, ...]) -> str:
        """Return the name of a Secret that has not been read; empty if all were."""
        return next((name for name in secrets if (namespace, name) not in self._keys), "")

    def is_known(self, key: bytes, namespace: str) -> bool:
        """Return True if any Secret of a namespace has an API key."""
        hashed = self._hash(key)
        return any(place == namespace and hashed in known for (place, _), known in self._keys.items())

    def credential(self, namespace: str, place: str) -> bytes:
        """Return the credential for engines at `name/key` in a namespace; empty until its Secret has been read."""
        name, _, key = place.partition("/")
        return self._credentials.get((namespace, name), {}).get(key, b"")

    def _hash(self, key: bytes) -> bytes:
        salted = self._salted.copy()
        salted.update(key)
        return salted.digest()
