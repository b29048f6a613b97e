"""Stores data of Secrets and issuers on disk, for a restart while the API server or an issuer is not available.

| of                           | the file has                                                                   |
|------------------------------|--------------------------------------------------------------------------------|
| API keys                     | hashes, with the salt that stands beside them; never a key                     |
| issuers of tokens            | their public keys                                                              |
| authorities of engines       | their certificates, which are no secret                                        |
| credentials for engines      | them, sealed with the key that routers share, which is not on this disk;       |
|                              | nothing without such a key                                                     |

The file is not trusted when it is read: its size is limited, and it is used as a whole or not at all.
"""

import logging
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from promptgroup_contract.access import Caller
from promptgroup_router.access.authenticator import Authenticator
from promptgroup_router.access.issuer import MAX_JWKS_BYTES, Issuer, IssuerId, TokenError, parse_jwks, public_part
from promptgroup_router.access.keyring import HASH_BYTES, SecretRef, is_name
from promptgroup_router.base.authorities import Authorities, BundleRef
from promptgroup_router.base.logs import fields
from promptgroup_router.feed.table_file import replace_file
from promptgroup_router.peers.peer_key import BadKeyError, read_key

log = logging.getLogger("promptgroup.access")

FORMAT = 1
MAX_BYTES = 64 << 20
"""Most bytes of the file: a hundred Secrets of ten thousand API keys each."""
MAX_ISSUERS = 256
"""Most issuers whose keys are taken from it."""
SALT_BYTES = 32

_NONCE = bytes(12)
_PURPOSE = b"pg-engine-keys"


class KeyCopyError(ValueError):
    """The file is no copy. The message does not repeat what is in it."""


class KeyCopy:
    """The file, and when it has to be written."""

    def __init__(
        self, path: Path, authenticator: Authenticator, authorities: Authorities, key_file: Path | None = None
    ) -> None:
        """Begin with nothing written.

        Args:
            path: the file; only its owner may read it.
            authenticator: its keyring and its issuers have the data to store.
            authorities: the bundles to store.
            key_file: the key that routers share; None if there is none.
        """
        self._path = path
        self._keyring = authenticator.keyring
        self._issuers = authenticator.issuers
        self._authorities = authorities
        self._key_file = key_file
        self._written = _Versions()
        """The versions of all when the file was written or read."""

    def restore(self) -> None:
        """Take over what the file has; one that cannot be used is logged, and leaves everything to be read."""
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            self._take(content)
        except FileNotFoundError:
            return
        except (OSError, KeyCopyError) as error:
            log.warning("copy of the keys not read", extra=fields(file=self._path, problem=error))
            return
        self._written = self._versions()

    def save(self) -> None:
        """Write the file if anything has changed since."""
        versions = self._versions()
        if versions == self._written:
            return
        try:
            replace_file(self._path, [orjson.dumps(self._content())])
        except OSError as error:
            log.warning("copy of the keys not written", extra=fields(file=self._path, problem=error))
            return
        self._written = versions

    def _versions(self) -> "_Versions":
        issuers = {issuer_id: issuer.content for issuer_id, issuer in self._issuers.items() if issuer.content}
        shared = self._shared_key() if self._keyring.credentials() else None
        return _Versions(self._keyring.version, self._authorities.version, issuers, shared)

    def _content(self) -> dict[str, Any]:
        secrets = [
            {**ref._asdict(), "hashes": {hashed.hex(): caller.name for hashed, caller in hashes.items()}}
            for ref, hashes in self._keyring.hashes().items()
        ]
        bundles = [{**ref._asdict(), "pem": pem.decode("ascii")} for ref, pem in self._authorities.bundles().items()]
        issuers = [
            {"uri": issuer_id.jwks_uri, "algorithms": issuer_id.algorithms, "keys": public_part(issuer.content)}
            for issuer_id, issuer in self._issuers.items()
            if issuer.content
        ]
        content = {"format": FORMAT, "salt": self._keyring.salt.hex(), "secrets": secrets, "bundles": bundles}
        return content | {"issuers": issuers, "sealed": self._sealed()}

    def _sealed(self) -> str:
        """Return the credentials for engines encrypted with the shared key; empty without one."""
        credentials = [
            {**ref._asdict(), "data": {name: value.decode("ascii") for name, value in values.items()}}
            for ref, values in self._keyring.credentials().items()
        ]
        if not credentials or (secret := self._shared_key()) is None:
            return ""
        return seal(orjson.dumps(credentials), secret, os.urandom(SALT_BYTES)).hex()

    def _shared_key(self) -> bytes | None:
        if self._key_file is None:
            return None
        try:
            return read_key(self._key_file)
        except BadKeyError:  # the feed of the file reports it
            return None

    def _take(self, content: bytes) -> None:
        try:
            data = orjson.loads(content)
            if data["format"] != FORMAT:
                raise KeyCopyError("it has another format")
            salt = bytes.fromhex(data["salt"])
            hashes = {SecretRef(item["namespace"], item["name"]): _hashes(item["hashes"]) for item in data["secrets"]}
            bundles = {
                BundleRef(item["namespace"], item["kind"], item["name"], item["key"]): item["pem"].encode()
                for item in data["bundles"]
            }
            issuers = dict(_issuer(issuer) for issuer in data.get("issuers", ())[:MAX_ISSUERS])
            credentials = self._opened(bytes.fromhex(data.get("sealed", "")))
            self._keyring.restore(salt, hashes)
        except (KeyError, TypeError, AttributeError, ValueError, TokenError) as error:
            raise error if isinstance(error, KeyCopyError) else KeyCopyError("it is no copy of keys") from None
        for ref, bundle in bundles.items():
            self._authorities.learn(ref, bundle)
        for issuer_id, keys in issuers.items():
            self._issuers.setdefault(issuer_id, Issuer()).restore(keys)
        for secret, values in credentials.items():
            self._keyring.learn_credentials(secret, values)

    def _opened(self, sealed: bytes) -> dict[SecretRef, dict[str, bytes]]:
        """Return the credentials for engines; none that another key has sealed."""
        secret = self._shared_key()
        content = opened(sealed, secret) if sealed and secret is not None else None
        return {
            SecretRef(load["namespace"], load["name"]): {name: value.encode() for name, value in load["data"].items()}
            for load in (orjson.loads(content) if content is not None else ())
        }


class _Versions(NamedTuple):
    """The versions of all stored data."""

    keyring: int = 0
    authorities: int = 0
    issuers: Mapping[IssuerId, bytes] = MappingProxyType({})
    shared_key: bytes | None = None
    """The key that credentials are sealed with, if there are any."""


def _issuer(data: dict[str, Any]) -> tuple[IssuerId, bytes]:
    keys = orjson.dumps({"keys": data["keys"]})
    algorithms = tuple(data["algorithms"])
    if len(keys) > MAX_JWKS_BYTES or not all(isinstance(item, str) for item in (data["uri"], *algorithms)):
        raise KeyCopyError("it has an issuer that cannot be one")
    parse_jwks(keys)
    return IssuerId(data["uri"], algorithms), keys


def seal(content: bytes, secret: bytes, salt: bytes) -> bytes:
    """Return a content as only those read or make it who have a secret: salt, then AES-256-GCM of it.

    Each salt has a key of its own, so that a nonce is never used twice (NIST SP 800-38D section 8).
    """
    return salt + _cipher(secret, salt).encrypt(_NONCE, content, _PURPOSE)


def opened(sealed: bytes, secret: bytes) -> bytes | None:
    """Return the decrypted bytes; None if they were not sealed with this secret."""
    try:
        return _cipher(secret, sealed[:SALT_BYTES]).decrypt(_NONCE, sealed[SALT_BYTES:], _PURPOSE)
    except (InvalidTag, ValueError):
        return None


def _cipher(secret: bytes, salt: bytes) -> AESGCM:
    derived = blake2b(secret, digest_size=32, person=_PURPOSE).digest()
    return AESGCM(blake2b(salt, key=derived, digest_size=32).digest())


def _hashes(data: dict[str, str]) -> dict[bytes, Caller]:
    callers = {bytes.fromhex(hashed): Caller(name) for hashed, name in data.items()}
    if not all(len(hashed) == HASH_BYTES and is_name(caller.name) for hashed, caller in callers.items()):
        raise KeyCopyError("it has a hash or a caller that cannot be one")
    return callers
