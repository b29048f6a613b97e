"""Tells the caller of a connection that sends the API key of its last request again, as most do.

To compare two keys costs a tenth of what it costs to hash one. A key is kept as long as its connection at most, and
holds for the access, the namespace and the state of all keys for which it was found: once a key is replaced or
withdrawn, none of those that connections remember counts.
"""

from hmac import compare_digest

from promptgroup_contract.access import Access
from promptgroup_router.access.caller import Caller


class KnownKey:
    """The credential that a connection has sent, and whose it is."""

    __slots__ = ("_access", "_caller", "_name", "_namespace", "_value", "_version")

    def __init__(
        self, name: bytes, value: bytes, caller: Caller, *, access: Access, namespace: str, version: int
    ) -> None:
        """Keep a credential.

        Args:
            name: the header that held it.
            value: that header's value.
            caller: whose it is.
            access: that by which the caller was told.
            namespace: where its keys are.
            version: the state of all keys.
        """
        self._name = name
        self._value = value
        self._caller = caller
        self._access = access
        self._namespace = namespace
        self._version = version

    def caller(self, name: bytes, value: bytes, access: Access, namespace: str, version: int) -> Caller | None:
        """Return whose credential this is; None if this one does not tell, see the constructor."""
        if (
            version == self._version
            and access is self._access
            and name == self._name
            and namespace == self._namespace
            and compare_digest(value, self._value)
        ):
            return self._caller
        return None
