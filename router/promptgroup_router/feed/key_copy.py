"""Keeps what a router knows of Secrets on disk, for a restart while the API server is away.

Of API keys the file has hashes with the salt that stands beside them, never a key. Credentials for engines cannot be
hashed, so they are not in it. Bundles of authorities are, which are no secret.
"""

import logging
from pathlib import Path
from typing import Any

import orjson

from promptgroup_router.access.caller import Caller
from promptgroup_router.access.keyring import HASH_BYTES, Keyring, SecretRef, is_name
from promptgroup_router.base.authorities import Authorities, BundleRef
from promptgroup_router.base.logs import fields
from promptgroup_router.feed.table_file import replace_file

log = logging.getLogger("promptgroup.access")

FORMAT = 1
MAX_BYTES = 64 << 20
"""Most bytes of the file: a hundred Secrets of ten thousand API keys each."""


class KeyCopyError(ValueError):
    """The file is no copy. The message does not repeat what is in it."""


class KeyCopy:
    """The file, and when it has to be written."""

    def __init__(self, path: Path, keyring: Keyring, authorities: Authorities) -> None:
        """Begin with nothing written.

        Args:
            path: the file; only its owner may read it.
            keyring: the hashes to keep.
            authorities: the bundles to keep.
        """
        self._path = path
        self._keyring = keyring
        self._authorities = authorities
        self._written = (0, 0)
        """The versions of both when the file was written or read."""

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
            replace_file(self._path, orjson.dumps(self._content()))
        except OSError as error:
            log.warning("copy of the keys not written", extra=fields(file=self._path, problem=error))
            return
        self._written = versions

    def _versions(self) -> tuple[int, int]:
        return self._keyring.version, self._authorities.version

    def _content(self) -> dict[str, Any]:
        secrets = [
            {**ref._asdict(), "hashes": {hashed.hex(): caller.name for hashed, caller in hashes.items()}}
            for ref, hashes in self._keyring.hashes().items()
        ]
        bundles = [{**ref._asdict(), "pem": pem.decode("ascii")} for ref, pem in self._authorities.bundles().items()]
        return {"format": FORMAT, "salt": self._keyring.salt.hex(), "secrets": secrets, "bundles": bundles}

    def _take(self, content: bytes) -> None:
        try:
            data = orjson.loads(content)
            if data["format"] != FORMAT:
                raise KeyCopyError("it has another format")
            salt = bytes.fromhex(data["salt"])
            hashes = {SecretRef(each["namespace"], each["name"]): _hashes(each["hashes"]) for each in data["secrets"]}
            bundles = {
                BundleRef(each["namespace"], each["kind"], each["name"], each["key"]): each["pem"].encode()
                for each in data["bundles"]
            }
            self._keyring.restore(salt, hashes)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise error if isinstance(error, KeyCopyError) else KeyCopyError("it is no copy of keys") from None
        for ref, bundle in bundles.items():
            self._authorities.learn(ref, bundle)


def _hashes(data: dict[str, str]) -> dict[bytes, Caller]:
    found = {bytes.fromhex(hashed): Caller(name) for hashed, name in data.items()}
    if not all(len(hashed) == HASH_BYTES and is_name(caller.name) for hashed, caller in found.items()):
        raise KeyCopyError("it has a hash or a caller that cannot be one")
    return found
