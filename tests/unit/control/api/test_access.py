import pytest
from pydantic import ValidationError

from promptgroup_contract.access import Access
from promptgroup_contract.encoding import decode_access, encode_access
from promptgroup_operator.api.access import to_contract
from promptgroup_operator.api.route_schema import schema_of
from support.builders import spec
from support.schemas import misfits

JWT = {"issuer": "https://issuer.example", "audiences": ["llm"], "jwksURI": "https://issuer.example/keys"}
GOOD = {
    "Anonymous": {"type": "Anonymous", "passCredentials": True},
    "APIKey": {"type": "APIKey", "apiKey": {"secrets": ["keys"]}, "callers": ["team-a", "a@example.com"]},
    "Header": {"type": "Header", "header": {"name": "X-Forwarded-User", "sources": ["10.0.0.0/8", "fd00::/8"]}},
    "JWT": {"type": "JWT", "jwt": JWT},
}


@pytest.mark.parametrize("kind", GOOD)
def test_routers_read_what_users_write(kind):
    access = to_contract(spec(access=GOOD[kind]).access)
    assert access.type == kind
    encoded = encode_access(access)
    assert decode_access(encoded, "here") == access
    assert misfits(schema_of(Access), encoded) == []


def test_without_an_access_the_routers_default_holds():
    assert to_contract(spec().access) is None


def test_tokens_have_defaults():
    access = to_contract(spec(access=GOOD["JWT"]).access)
    assert (access.algorithms, access.name_claim) == (("RS256", "ES256"), "sub")
    assert to_contract(spec(access=GOOD["Header"]).access).header == "x-forwarded-user"


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "Password"},
        {"type": "APIKey", "apiKey": {"secrets": []}},
        {"type": "APIKey", "apiKey": {"secrets": ["Keys"]}},
        {"type": "APIKey", "apiKey": {"secrets": ["a/b"]}},
        {"type": "Header", "header": {"name": "x user", "sources": ["10.0.0.0/8"]}},
        {"type": "Header", "header": {"name": "x-user", "sources": []}},
        {"type": "Header", "header": {"name": "x-user", "sources": ["10.0.0.1"]}},
        {"type": "JWT", "jwt": JWT | {"jwksURI": "http://issuer.example/keys"}},
        {"type": "JWT", "jwt": JWT | {"jwksURI": "https://user@issuer.example/keys"}},
        {"type": "JWT", "jwt": JWT | {"audiences": []}},
        {"type": "JWT", "jwt": JWT | {"algorithms": ["none"]}},
        {"type": "JWT", "jwt": JWT | {"algorithms": ["HS256"]}},
        {"type": "APIKey", "apiKey": {"secrets": ["keys"]}, "callers": ["a b"]},
    ],
)
def test_what_the_schema_refuses(bad):
    with pytest.raises(ValidationError):
        spec(access=bad)
