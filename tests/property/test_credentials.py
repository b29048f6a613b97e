"""Whatever a client sends as a credential is a caller or a refusal, and is never repeated."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.access import Access, AccessType
from promptgroup_router.access.authenticator import Authenticator, NoSender
from promptgroup_router.access.issuer import Issuer, IssuerId, TokenError, UnknownKeyError, parse_jwks
from promptgroup_router.access.keyring import Keyring, SecretRef, is_name
from promptgroup_router.base.errors import ApiError
from support.keys import BY_KEY, KEY_A
from support.tokens import NOW, by_token, jwk, jwks, token

HEADER = Access(AccessType.HEADER, header="x-user", sources=("0.0.0.0/0", "::/0"))
GOOD = token()
PARTS = GOOD.split(b".")


class Anywhere(NoSender):
    def peer_address(self):
        return "192.0.2.1"


def known() -> Authenticator:
    ring = Keyring(b"salt")
    ring.learn_keys(SecretRef("chat", "keys"), {"team-a": KEY_A.encode()})
    found = Authenticator(ring)
    found.epoch = NOW
    issuer = found.issuers[IssuerId(by_token().jwks_uri, by_token().algorithms)] = Issuer()
    issuer.learn(jwks("one"), 0.0)
    return found


KNOWN = known()


def encoded(value: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=8), each, max_size=4),
)
CLAIMS = st.dictionaries(st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat", "jti"]), JSON)
HEADERS = st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "jwk", "jku", "b64", "zip"]), JSON)
TOKENS = st.one_of(
    st.builds(
        lambda head, claims, end: b".".join([encoded(head), encoded(claims), end]),
        HEADERS,
        CLAIMS,
        st.binary(max_size=40),
    ),
    st.builds(lambda claims: b".".join([PARTS[0], encoded(claims), PARTS[2]]), CLAIMS),
    st.builds(lambda head: b".".join([encoded({"alg": "RS256", "kid": "one"} | head), PARTS[1], PARTS[2]]), HEADERS),
    st.builds(
        lambda at, byte: GOOD[:at] + bytes([byte]) + GOOD[at + 1 :], st.integers(0, len(GOOD) - 1), st.integers(0, 255)
    ),
    st.binary(max_size=200),
)
VALUES = st.one_of(st.binary(max_size=100), TOKENS, st.just(KEY_A.encode()))


@pytest.mark.heavy
@pytest.mark.interpreted
@given(VALUES, st.sampled_from([b"Bearer ", b"bearer  ", b"Basic ", b""]), VALUES, VALUES)
def test_hostile_credentials_are_a_caller_or_a_refusal(value, scheme, key, name):
    fields = {b"authorization": scheme + value, b"x-api-key": key, b"x-user": name}
    for access in (BY_KEY, by_token(), HEADER):
        try:
            caller = KNOWN.identify(access, "chat", fields, Anywhere(), 0.0)
        except ApiError as error:
            refusal = error
        else:
            assert is_name(caller.name)
            if access is BY_KEY:
                assert KEY_A.encode() in (key, value.strip(b" "))
            elif access is not HEADER:
                assert caller.name == "team-a"
            continue
        assert refusal.status in (401, 503)
        for sent in (value, key, name):
            assert len(sent) < 12 or sent.decode("latin-1") not in str(refusal)


@pytest.mark.heavy
@given(TOKENS)
def test_no_token_but_the_issuers_own_is_good(given_token):
    issuer = KNOWN.issuers[IssuerId(by_token().jwks_uri, by_token().algorithms)]
    if given_token.split(b".")[:2] == PARTS[:2]:
        return  # the last characters of a signature may be spelled in several ways
    try:
        issuer.caller(given_token, by_token(), 0.0, NOW)
    except (TokenError, UnknownKeyError):  # the latter asks the issuer, and a request of such a token waits
        return
    raise AssertionError(given_token)


@pytest.mark.heavy
@given(st.lists(st.one_of(JSON, st.builds(lambda change: jwk("one") | change, HEADERS), CLAIMS), max_size=5))
def test_any_set_of_keys_is_keys_or_a_refusal(keys):
    try:
        found = parse_jwks(json.dumps({"keys": keys}, default=str).encode())
    except TokenError:
        return
    assert found
