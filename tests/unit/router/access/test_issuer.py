import base64
import contextlib
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from promptgroup_contract.access import Caller
from promptgroup_router.access import issuer as module
from promptgroup_router.access.issuer import (
    LEEWAY_SECONDS,
    MAX_TOKEN_BYTES,
    REMEMBERED_SECONDS,
    Issuer,
    TokenError,
    UnknownKeyError,
    parse_jwks,
)
from support.tokens import CLAIMS, NOW, by_token, jwk, jwks, private_key, token


def issuer(*names: str, kind: str = "RSA", asked_at: float = 1.0) -> Issuer:
    """Return an issuer that was asked for its keys after the tokens of most tests had come."""
    known = Issuer()
    known.learn(jwks(*(names or ("one",)), kind=kind), asked_at)
    return known


def caller(known: Issuer, given: bytes, *, now: float = 0.0, time: float = NOW, **access: object) -> str:
    return known.caller(given, by_token(**access), now, time).name


@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_a_token_that_its_issuer_has_signed_names_its_caller(kind):
    assert caller(issuer(kind=kind), token(kind=kind)) == "team-a"
    assert caller(issuer(kind=kind), token(kind=kind, email="a@example.com"), name_claim="email") == "a@example.com"
    assert caller(issuer(kind=kind), token(kind=kind, aud=["other", "llm"])) == "team-a"


BAD = {
    "another issuer": token(iss="https://another.example"),
    "another audience": token(aud="other"),
    "no audience": token(aud=None),
    "no issuer": token(iss=None),
    "no end": token(exp=None),
    "expired": token(exp=NOW - LEEWAY_SECONDS),
    "not valid yet": token(nbf=NOW + LEEWAY_SECONDS + 1),
    "an end that is none": token(exp=float("nan")),
    "an end beyond all time": token(exp=float("inf")),
    "a huge end": token(exp=10**40),
    "an end that is true": token(exp=True),
    "an end in words": token(exp="tomorrow"),
    "no name": token(sub=None),
    "a name that is a list": token(sub=["team-a"]),
    "a name with a quote": token(sub='a"b'),
    "a name that is too long": token(sub="a" * 129),
    "the name of all others": token(sub="-others"),
    "signed by somebody else": token("two", headers={"kid": "one"}),
    "too long": token(more="x" * MAX_TOKEN_BYTES),
    "no token": b"sk-0123456789",
    "nothing": b"..",
    "bytes": b"\xff.\xff.\xff",
}


def rewritten(changes: dict[str, object], key: object = "", algorithm: str | None = "none") -> bytes:
    """A token with a header that its issuer never wrote."""
    return jwt.encode(CLAIMS, key, algorithm, changes).encode()


def public_bytes() -> bytes:
    """The public key as text, which a confused verifier takes for a shared secret."""
    return json.dumps(jwk("one")).encode()


BAD |= {
    "an extension that nobody knows": token(headers={"crit": ["x"], "x": 1}),
    "a key by its path": token(headers={"kid": "../../../dev/null"}),
    "an audience that is an object": token(aud={"llm": True}),
    "an audience within a list": token(aud=["other", ["llm"]]),
    "an audience with a blank": token(aud="llm "),
    "an issuer with a slash": token(iss="https://issuer.example/"),
    "an end before all time": token(exp=-1),
    "a beginning in words": token(nbf="0"),
    "a name with a line feed": token(sub="team-a\n"),
    "a name in other letters": token(sub="team-\N{CYRILLIC SMALL LETTER A}"),
    "unsigned": rewritten({"kid": "one"}, None),
    "signed with the public key as a secret": jwt.encode(
        CLAIMS, base64.b64encode(public_bytes()), "HS256", {"kid": "one"}
    ).encode(),
    "without its signature": token().rpartition(b".")[0] + b".",
    "a header that names its own key": jwt.encode(
        CLAIMS, private_key("evil"), "RS256", {"jwk": jwk("evil"), "kid": "one"}
    ).encode(),
    "an extension that must be understood": token(headers={"crit": ["exp"], "exp": 1}),
    "a key of another name": token("two"),
}


@pytest.mark.parametrize("given", BAD.values(), ids=BAD)
def test_a_token_that_is_not_good_is_refused_and_not_repeated(given):
    known = issuer()
    with pytest.raises(TokenError) as caught:
        caller(known, given)
    assert given.decode("latin-1") not in str(caught.value) or len(given) < 4
    assert not known._good


def test_an_algorithm_that_is_not_taken_is_refused():
    with pytest.raises(TokenError, match="algorithm"):
        caller(issuer(), token(), algorithms=("ES256",))


RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")


def signed(algorithm: str, kind: str = "RSA") -> bytes:
    return jwt.encode(CLAIMS, private_key("one", kind), algorithm, {"kid": "one"}).encode()


@pytest.mark.parametrize("algorithm", RSA_ALGORITHMS)
def test_a_key_that_names_no_algorithm_goes_with_those_of_its_kind_that_are_taken(algorithm):
    assert caller(issuer(), signed(algorithm), algorithms=RSA_ALGORITHMS) == "team-a"
    with pytest.raises(TokenError, match="algorithm"):
        caller(issuer(), signed(algorithm), algorithms=tuple(set(RSA_ALGORITHMS) - {algorithm}))


def test_a_key_that_names_an_algorithm_goes_with_it_alone():
    known = Issuer()
    known.learn(json.dumps({"keys": [jwk("one") | {"alg": "PS256"}]}).encode(), 1.0)
    assert caller(known, signed("PS256"), algorithms=RSA_ALGORITHMS) == "team-a"
    for algorithm in ("RS256", "PS384"):
        with pytest.raises(TokenError):
            caller(known, signed(algorithm), algorithms=RSA_ALGORITHMS)


@pytest.mark.parametrize("named", ["RS256", "PS256", "ES384", "EdDSA", "HS256", "none"])
def test_a_key_of_another_kind_than_the_algorithm_verifies_nothing(named):
    """The header is the token's: it may name what it likes."""
    known, everything = issuer(kind="EC"), (*RSA_ALGORITHMS, "ES256", "ES384", "EdDSA", "HS256", "none")
    _, claims, signature = signed("ES256", "EC").split(b".")
    header = base64.urlsafe_b64encode(json.dumps({"alg": named, "kid": "one"}).encode()).rstrip(b"=")
    with pytest.raises(TokenError):
        caller(known, b".".join((header, claims, signature)), algorithms=everything)


def test_time_is_what_the_caller_says_and_clocks_may_differ_by_a_minute():
    known = issuer()
    assert caller(known, token(exp=NOW), time=NOW + LEEWAY_SECONDS - 1) == "team-a"
    assert caller(known, token(nbf=NOW), time=NOW - LEEWAY_SECONDS + 1) == "team-a"


@pytest.mark.interpreted
def test_a_token_is_verified_once_and_ends_when_it_says(monkeypatch):
    known, verified = issuer(), []
    original = Issuer._verified
    monkeypatch.setattr(Issuer, "_verified", lambda *given: verified.append(1) or original(*given))
    one = token(exp=NOW + 600)
    assert [caller(known, one, now=float(at), time=NOW + at) for at in range(5)] == ["team-a"] * 5
    assert len(verified) == 1
    assert caller(known, one, now=REMEMBERED_SECONDS, time=NOW + REMEMBERED_SECONDS) == "team-a"
    assert len(verified) == 2
    with pytest.raises(TokenError, match="expired"):
        caller(known, one, now=20.0, time=NOW + 600 + LEEWAY_SECONDS)


def test_what_is_asked_of_a_remembered_token_counts():
    known = issuer()
    assert caller(known, token()) == "team-a"
    for other in ({"audiences": ("other",)}, {"issuer": "https://another.example"}, {"algorithms": ("ES256",)}):
        with pytest.raises(TokenError):
            caller(known, token(), **other)


def test_tokens_of_a_key_that_the_issuer_withdrew_are_no_longer_good():
    known = issuer("one", "two")
    given = token("two")
    assert caller(known, given) == "team-a"
    known.learn(jwks("one"), 1.0)
    with pytest.raises(TokenError, match="does not publish"):
        caller(known, given, now=0.5)


def test_a_token_with_a_new_key_is_judged_by_keys_that_were_asked_for_after_it_came():
    known = issuer("one", asked_at=5.0)
    with pytest.raises(TokenError, match="does not publish"):
        caller(known, token("two"), now=4.9)
    assert not known.wanted
    with pytest.raises(UnknownKeyError):
        caller(known, token("two"), now=5.0)
    assert known.wanted
    known.learn(jwks("one", "two"), 6.0)
    assert caller(known, token("two"), now=5.0) == "team-a"
    assert not known.wanted


def test_the_only_key_of_an_issuer_whose_tokens_name_none_may_be_replaced():
    known, given = issuer("one", asked_at=5.0), token("two", headers={"kid": ""})
    with pytest.raises(UnknownKeyError):
        caller(known, given, now=5.0)
    known.learn(jwks("two"), 6.0)
    assert caller(known, given, now=5.0) == "team-a"
    with pytest.raises(TokenError, match="InvalidSignature"):
        caller(known, token("one", headers={"kid": ""}), now=5.0)


NEVER_GOOD = ("another issuer", "another audience", "expired", "not valid yet", "no end", "no name", "no token")


@pytest.mark.parametrize("what", NEVER_GOOD)
def test_nobody_is_asked_for_the_sake_of_a_token_that_no_key_makes_good(what):
    known = issuer("two", asked_at=0.0)
    with pytest.raises(TokenError):
        caller(known, BAD[what], now=1.0)
    assert not known.wanted


def test_before_the_keys_were_read_nothing_can_be_said():
    with pytest.raises(UnknownKeyError):
        caller(Issuer(), token())


def test_what_cannot_be_used_leaves_the_keys_as_they_are():
    known = issuer()
    for content in (
        b"",
        b"[]",
        b"null",
        b'{"keys":1}',
        b'{"keys":[]}',
        b'{"keys":[{"kty":"oct","k":"YQ"}]}',
        b"<html>",
    ):
        with pytest.raises(TokenError):
            known.learn(content, 1.0)
    assert caller(known, token()) == "team-a"


def test_keys_for_other_uses_and_of_unknown_kinds_are_passed_over():
    odd = [{"kty": "RSA", "n": "!", "e": "AQAB", "kid": "odd"}, {"kty": "new"}, 7, jwk("enc") | {"use": "enc"}]
    found = parse_jwks(json.dumps({"keys": [*odd, jwk("one")]}).encode())
    assert set(found) == {"one"}


def number(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()


def test_a_private_key_is_taken_for_its_public_part_and_nothing_is_computed_of_it(monkeypatch):
    monkeypatch.setattr(jwt.algorithms, "rsa_recover_prime_factors", None)
    published = jwk("one") | {"d": number(2**2047 + 1)}
    known = Issuer()
    known.learn(json.dumps({"keys": [published]}).encode(), 0.0)
    assert caller(known, token("one")) == "team-a"


@pytest.mark.parametrize(
    "field",
    [
        {"n": number(2**16_384 - 1)},
        {"n": number(2**1_500_000 - 1)},
        {"e": number(2**2_000 + 1)},  # with which each signature would take twenty milliseconds
        {"n": 7},
        {"e": None},
    ],
    ids=["16,384 bits", "1,500,000 bits", "a large exponent", "no text", "null"],
)
def test_a_key_that_costs_more_than_others_is_passed_over(field):
    listed = [jwk("odd") | field, jwk("one")]
    assert set(parse_jwks(json.dumps({"keys": listed}).encode())) == {"one"}


@pytest.mark.filterwarnings("ignore:The RSA key is")  # the one who signs is warned
@pytest.mark.parametrize("bits", [1024, 2047])
def test_an_rsa_key_that_is_too_short_signs_nothing(bits):
    short = rsa.generate_private_key(65537, bits)
    published = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(short.public_key())) | {"kid": "short"}
    for others in ([], [jwk("one")]):
        known = Issuer()
        with contextlib.suppress(TokenError):
            known.learn(json.dumps({"keys": [published, *others]}).encode(), 0.0)
        assert set(known._keys) == {each["kid"] for each in others}
        given = jwt.encode(CLAIMS, short, "RS256", {"kid": "short"}).encode()
        with pytest.raises((TokenError, UnknownKeyError)):
            caller(known, given, now=1.0)


def test_a_token_without_a_keys_id_has_the_only_key():
    assert caller(issuer("one"), token("one", headers={"kid": ""})) == "team-a"
    with pytest.raises(TokenError):
        caller(issuer("one", "two"), token("one", headers={"kid": ""}))


def test_tokens_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED_TOKENS", 3)
    known = issuer()
    for number in range(6):
        assert known.caller(token(sub=f"c{number}"), by_token(), 0.0, NOW) == Caller(f"c{number}")
    assert len(known._good) == 3
