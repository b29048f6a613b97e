"""The callers who may use a group: a value that the operator writes into the group's PromptRoute and routers obey.

It names the Secrets that hold keys, and never holds a key itself.
"""

import enum
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import NamedTuple

from promptgroup_contract.wire import (
    FLAG,
    OBJECT_NAME_SCHEMA,
    TEXT,
    EnumMember,
    LowerCase,
    TextList,
    UnfitError,
    shown,
    wire,
)


class AccessType(enum.StrEnum):
    """The ways in which a router learns who sends a request."""

    ANONYMOUS = "Anonymous"
    """No: any client that reaches the router may use the group."""
    API_KEY = "APIKey"
    """By a key in the request, which is one of those in Secrets of the group's namespace."""
    HEADER = "Header"
    """By a header that a gateway has set, on requests from the gateway's addresses only."""
    JWT = "JWT"
    """By a token (RFC 7519) that an issuer has signed."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a group. Fields that the type does not use are empty."""

    type: AccessType = field(default=AccessType.ANONYMOUS, metadata=wire("type", EnumMember(AccessType), needed=True))
    callers: tuple[str, ...] = field(default=(), metadata=wire("callers", TextList()))
    """Names of the callers who may use the group; empty for every authenticated caller."""
    secrets: tuple[str, ...] = field(default=(), metadata=wire("secrets", TextList(), items=OBJECT_NAME_SCHEMA))
    """Names of Secrets in the group's namespace: each of their keys is a caller's name, and its value has API keys."""
    header: str = field(default="", metadata=wire("header", LowerCase()))
    """Header that has the caller's name, in lower case."""
    sources: tuple[str, ...] = field(default=(), metadata=wire("sources", TextList()))
    """Networks in CIDR notation whose addresses may set the header."""
    issuer: str = field(default="", metadata=wire("issuer", TEXT))
    """The `iss` of tokens."""
    audiences: tuple[str, ...] = field(default=(), metadata=wire("audiences", TextList()))
    """One of them must be in the `aud` of a token."""
    algorithms: tuple[str, ...] = field(default=(), metadata=wire("algorithms", TextList()))
    """Algorithms of signatures (RFC 7518 section 3.1) that are taken."""
    jwks_uri: str = field(default="", metadata=wire("jwksURI", TEXT))
    """URL of the issuer's keys (RFC 7517)."""
    name_claim: str = field(default="", metadata=wire("nameClaim", TEXT))
    """The claim that has the caller's name."""
    passes_credentials: bool = field(default=False, metadata=wire("passCredentials", FLAG))
    """True if credentials of clients are passed on to engines."""

    def check(self) -> None:
        """Raise UnfitError if the type needs a field that is empty: who may use a group is never guessed."""
        for key in NEEDED[self.type]:
            if not getattr(self, key):
                names = {"jwks_uri": "jwksURI", "name_claim": "nameClaim"}
                raise UnfitError(f"is missing, which type {self.type.value} needs", names.get(key, key))
        for source in self.sources:
            try:
                ip_network(source)
            except ValueError:
                raise UnfitError(f"has {shown(source)}, expected a network such as 10.0.0.0/8", "sources") from None


NEEDED: dict[AccessType, tuple[str, ...]] = {
    AccessType.ANONYMOUS: (),
    AccessType.API_KEY: ("secrets",),
    AccessType.HEADER: ("header", "sources"),
    AccessType.JWT: ("issuer", "audiences", "algorithms", "jwks_uri", "name_claim"),
}
"""Type → fields that it needs."""


ANYBODY = Access()
"""The access of a group that authenticates no caller."""


MAX_NAME = 128
"""Most characters of a caller's name."""


class Caller(NamedTuple):
    """The sender of a request, identified by the access rules of its group."""

    name: str
    """A name of 1 to MAX_NAME printable ASCII characters, the same on each request; empty for an anonymous caller.
    Within a namespace one name is one caller, by whatever credential it was identified. Unlike the credential it is not
    secret."""


ANONYMOUS = Caller("")
"""The caller of every request to a group that does not authenticate its callers."""
