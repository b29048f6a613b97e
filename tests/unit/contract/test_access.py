from dataclasses import replace

import pytest

from promptgroup_contract.access import ANYBODY, Access, AccessType
from promptgroup_contract.encoding import decode_access, decode_group, encode_access, encode_group
from promptgroup_contract.table import TableError
from support.tables import group, revision, slot

WHOLE = {
    AccessType.ANONYMOUS: ANYBODY,
    AccessType.API_KEY: Access(AccessType.API_KEY, callers=("team-a",), secrets=("keys", "more")),
    AccessType.HEADER: Access(AccessType.HEADER, header="x-user", sources=("10.0.0.0/8", "fd00::/8")),
    AccessType.JWT: Access(
        AccessType.JWT,
        issuer="https://issuer.example",
        audiences=("llm",),
        algorithms=("RS256",),
        jwks_uri="https://issuer.example/keys",
        name_claim="sub",
        passes_credentials=True,
    ),
}


@pytest.mark.parametrize("access", WHOLE.values(), ids=WHOLE)
def test_an_access_is_read_as_it_was_written(access):
    assert decode_access(encode_access(access), "here") == access
    routed = group("support", access=access)
    assert decode_group("chat", "support", encode_group(routed)).access == access


def test_a_group_without_access_has_the_routers_default():
    assert "access" not in encode_group(group())
    assert decode_group("chat", "support", encode_group(group())).access is None


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, key) for kind, access in WHOLE.items() for key in encode_access(access) if key not in ("type", "callers")],
)
def test_who_may_use_a_group_is_never_guessed(kind, field):
    encoded = encode_access(WHOLE[kind])
    del encoded[field]
    if field == "passCredentials":
        assert not decode_access(encoded, "here").passes_credentials
        return
    with pytest.raises(TableError, match=f"here: {field} is missing, which type {kind} needs"):
        decode_access(encoded, "here")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "Password"}, "type is 'Password', expected one of Anonymous, APIKey, Header, JWT"),
        ({"secrets": "keys"}, "secrets is a string, expected a list of texts"),
        ({"secrets": ["keys", ""]}, r"secrets\[1\] is '', expected a text that is not empty"),
        ({"sources": ["10.0.0.1/8"]}, "sources has '10.0.0.1/8', expected a network such as 10.0.0.0/8"),
    ],
)
def test_what_cannot_be_used_is_named(change, said):
    with pytest.raises(TableError, match=said):
        decode_access({"type": "APIKey", "secrets": ["keys"]} | change, "here")


def test_a_slot_says_where_the_credential_of_its_engine_is():
    asked = group("support", revision(slots=(replace(slot(0), credential="engine-key/key"), slot(1))))
    assert decode_group("chat", "support", encode_group(asked)).revisions[0].slots == asked.revisions[0].slots
    assert "credential" not in encode_group(asked)["revisions"][0]["slots"][1]
