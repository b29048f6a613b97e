"""The callers who may use a group: a value that the operator writes into the group's PromptRoute and routers obey.

It names the Secrets that hold keys, and never holds a key itself.
"""

import enum
from dataclasses import dataclass


class AccessType(enum.StrEnum):
    """The ways in which a router learns who sends a request."""

    ANONYMOUS = "Anonymous"
    """It does not: whoever reaches the router may use the group."""
    API_KEY = "APIKey"
    """By a key in the request, which is one of those in Secrets of the group's namespace."""
    HEADER = "Header"
    """By a header that a gateway has set, on requests from the gateway's addresses only."""
    JWT = "JWT"
    """By a token (RFC 7519) that an issuer has signed."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a group. Fields that the type does not use are empty."""

    type: AccessType = AccessType.ANONYMOUS
    callers: tuple[str, ...] = ()
    """Names of those who may use the group; empty for everybody who is known."""
    secrets: tuple[str, ...] = ()
    """Names of Secrets in the group's namespace: each of their keys is a caller's name, and its value has API keys."""
    header: str = ""
    """Header that has the caller's name, in lower case."""
    sources: tuple[str, ...] = ()
    """Networks in CIDR notation whose addresses may set the header."""
    issuer: str = ""
    """The `iss` of tokens."""
    audiences: tuple[str, ...] = ()
    """One of them must be in the `aud` of a token."""
    algorithms: tuple[str, ...] = ()
    """Algorithms of signatures (RFC 7518 section 3.1) that are taken."""
    jwks_uri: str = ""
    """URL of the issuer's keys (RFC 7517)."""
    name_claim: str = ""
    """The claim that has the caller's name."""
    passes_credentials: bool = False
    """True if credentials of clients are passed on to engines."""


ANYBODY = Access()
"""The access of a group that asks nobody who they are."""
