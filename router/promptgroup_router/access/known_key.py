"""Caches the caller of a connection's last request, since most connections send the same API key again.

Comparing two keys costs a tenth of hashing one. A cached key lives no longer than its connection, and is valid only for
the access rules, the namespace and the keyring version with which it was looked up: once any key is replaced or
withdrawn, all cached ones are invalid.
"""

from hmac import compare_digest

from promptgroup_contract.access import Access, Caller


class KnownKey:
    """The credential that a connection has sent, and whose it is."""

    __slots__ = ("_access", "_caller", "_name", "_namespace", "_value", "_version")

    def __init__(
        self, name: bytes, value: bytes, caller: Caller, *, access: Access, namespace: str, version: int
    ) -> None:
        """Store a credential.

        Args:
            name: the header that held it.
            value: that header's value.
            caller: whose it is.
            access: the rules by which the caller was identified.
            namespace: the namespace of the Secrets with its keys.
            version: the version of the keyring.
        """
        self._name = name
        self._value = value
        self._caller = caller
        self._access = access
        self._namespace = namespace
        self._version = version

    def caller(self, name: bytes, value: bytes, access: Access, namespace: str, version: int) -> Caller | None:
        """Return the caller of this credential; None if it or any of the constructor's values differs."""
        if (
            version == self._version
            and access is self._access
            and name == self._name
            and namespace == self._namespace
            and compare_digest(value, self._value)
        ):
            return self._caller
        return None
