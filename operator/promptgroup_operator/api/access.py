"""`spec.access` of a PromptGroup: who may use it, and how routers tell callers apart."""

from typing import Annotated, Any

from pydantic import Field

from promptgroup_contract.access import Access, AccessType
from promptgroup_operator.api.model import ApiModel, ObjectName, rule, rules

CallerName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._@][A-Za-z0-9._@:/+|-]*$")]
Text = Annotated[str, Field(min_length=1, max_length=512)]


class ApiKeyAccess(ApiModel):
    """Callers by API keys."""

    secrets: Annotated[list[ObjectName], Field(min_length=1, max_length=16)]
    """Secrets of the group's namespace. Each of their keys is a caller's name, and its value that caller's keys, one
    a line: at least 16 printable characters each. Routers notice a change within 15 seconds."""


class HeaderAccess(ApiModel):
    """Callers by a header that a gateway or mesh sets, which has authenticated them."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9-]{1,64}$")]
    """Header that has the caller's name. The gateway must remove what clients send in it."""
    sources: Annotated[
        list[Annotated[str, Field(max_length=49, pattern="^[0-9a-fA-F.:]+/[0-9]{1,3}$")]],
        Field(min_length=1, max_length=32),
    ]
    """Networks in CIDR notation from whose addresses the header counts, such as those of the gateway's pods."""


class JWTAccess(ApiModel):
    """Callers by tokens (RFC 7519) that an issuer signs, such as those of OpenID Connect."""

    issuer: Text
    """Issuer: `iss` of a token must be equal to it."""
    audiences: Annotated[list[Text], Field(min_length=1, max_length=16)]
    """Audiences: `aud` of a token must name one of them."""
    jwks_uri: Annotated[
        str, Field(alias="jwksURI", min_length=9, max_length=1024, pattern=r"^https://[^\s/?#@]+([/?][^\s#]*)?$")
    ]
    """URL of the issuer's keys (RFC 7517), by https. Routers read it beside the requests, and use the last keys through
    an outage."""
    algorithms: Annotated[
        list[Annotated[str, Field(pattern="^((RS|PS|ES)(256|384|512)|EdDSA)$")]], Field(min_length=1, max_length=10)
    ] = ["RS256", "ES256"]
    """Algorithms of signatures that are taken."""
    name_claim: Annotated[str, Field(min_length=1, max_length=64)] = "sub"
    """Claim that has the caller's name."""


def _only(kind: AccessType, field: str, of: str) -> Any:
    return rule(
        f"(self.type == '{kind.value}') == has(self.{field})",
        f"access.type {kind.value} and access.{field} belong together: give both or none",
        f".{field}",
        holds=lambda access: (access.type is kind) == (getattr(access, of) is not None),
    )


class AccessSpec(ApiModel):
    """Rule by which routers tell who sends a request, and whether they may."""

    model_config = rules(
        _only(AccessType.API_KEY, "apiKey", "api_key"),
        _only(AccessType.HEADER, "header", "header"),
        _only(AccessType.JWT, "jwt", "jwt"),
        rule(
            "self.type != 'Anonymous' || !has(self.callers) || size(self.callers) == 0",
            "access.callers needs a type by which callers are known: APIKey, Header or JWT",
            ".callers",
            holds=lambda access: access.type is not AccessType.ANONYMOUS or not access.callers,
        ),
    )

    type: AccessType
    """Anonymous lets in whoever reaches a router. APIKey asks for a key of a Secret, Header believes a gateway, JWT
    asks for a token of an issuer."""
    api_key: ApiKeyAccess | None = None
    """Settings of APIKey."""
    header: HeaderAccess | None = None
    """Settings of Header."""
    jwt: JWTAccess | None = None
    """Settings of JWT."""
    callers: Annotated[list[CallerName], Field(max_length=256)] = []
    """Names of the callers who may use the group; others get 403. Empty for everybody who is known."""
    pass_credentials: bool = False
    """With true, engines get clients' credentials (`authorization`, `x-api-key` and others), which routers else
    keep."""


def to_contract(spec: AccessSpec | None) -> Access | None:
    """Return the access as routers read it; None for their default."""
    if spec is None:
        return None
    key, header, jwt = spec.api_key, spec.header, spec.jwt
    return Access(
        type=spec.type,
        callers=tuple(spec.callers),
        secrets=tuple(key.secrets) if key is not None else (),
        header=header.name.lower() if header is not None else "",
        sources=tuple(header.sources) if header is not None else (),
        issuer=jwt.issuer if jwt is not None else "",
        audiences=tuple(jwt.audiences) if jwt is not None else (),
        algorithms=tuple(jwt.algorithms) if jwt is not None else (),
        jwks_uri=jwt.jwks_uri if jwt is not None else "",
        name_claim=jwt.name_claim if jwt is not None else "",
        passes_credentials=spec.pass_credentials,
    )


def asks_callers(access: AccessSpec | None) -> bool:
    """Return True if a group's access asks callers who they are."""
    return access is not None and access.type is not AccessType.ANONYMOUS
