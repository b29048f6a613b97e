from dataclasses import replace

import pytest

from promptgroup_contract.access import ANONYMOUS, ANYBODY, Access, AccessType, Caller
from promptgroup_router.access.authenticator import Authenticator, NoSender, Visit
from promptgroup_router.access.issuer import Issuer, IssuerId
from promptgroup_router.access.keyring import Keyring, SecretRef
from promptgroup_router.base.errors import ApiError, KeysAwaitedError
from support.keys import BY_KEY, KEY_A, KEY_B
from support.tokens import NOW, by_token, jwks, token

SECRET_KEY = "sk-" + "s" * 20


def authenticator(default=ANYBODY):
    ring = Keyring(b"salt")
    ring.learn_keys(SecretRef("chat", "keys"), {"team-a": KEY_A.encode(), "team-b": KEY_B.encode()})
    return Authenticator(ring, default)


def sent(key):
    return {b"authorization": f"Bearer {key}".encode()}


def refusal(access, fields, namespace="chat", known=None):
    with pytest.raises(ApiError) as caught:
        (known or authenticator()).identify(access, namespace, fields, NoSender(), 0.0)
    assert SECRET_KEY not in str(caught.value)
    return caught.value.status, caught.value.code


def test_whoever_has_a_key_is_known_by_name():
    assert authenticator().identify(BY_KEY, "chat", sent(KEY_B), NoSender(), 0.0) == Caller("team-b")
    assert authenticator().identify(BY_KEY, "chat", {b"x-api-key": KEY_A.encode()}, NoSender(), 0.0) == Caller("team-a")
    assert authenticator().identify(ANYBODY, "chat", {}, NoSender(), 0.0) == ANONYMOUS


def test_a_second_credential_counts_where_the_first_is_unknown():
    assert (
        authenticator().identify(BY_KEY, "chat", sent("other") | {b"x-api-key": KEY_A.encode()}, NoSender(), 0.0).name
        == "team-a"
    )


def test_refusals():
    assert refusal(BY_KEY, {}) == (401, "missing_credential")
    assert refusal(BY_KEY, sent(SECRET_KEY)) == (401, "invalid_api_key")
    assert refusal(BY_KEY, sent("\udcff".encode(errors="surrogateescape").decode("latin-1"))) == (
        401,
        "invalid_api_key",
    )
    assert refusal(replace(BY_KEY, secrets=("more",)), sent(KEY_A)) == (503, "access_not_available")
    assert refusal(replace(BY_KEY, callers=("team-b",)), sent(KEY_A)) == (403, "not_allowed")


def test_a_key_that_another_group_of_the_namespace_knows_is_refused_as_such():
    known = authenticator()
    known.keyring.learn_keys(SecretRef("chat", "more"), {})
    known.keyring.learn_keys(SecretRef("other", "more"), {})
    elsewhere = replace(BY_KEY, secrets=("more",))
    assert refusal(elsewhere, sent(KEY_A), known=known) == (403, "not_allowed")
    assert refusal(elsewhere, sent(KEY_A), "other", known=known) == (401, "invalid_api_key")


def test_the_default_holds_for_groups_without_an_access():
    known = authenticator(BY_KEY)
    visit = Visit(known, sent(KEY_A), NoSender(), 0.0)
    assert visit.identify(None, "chat") == Caller("team-a")
    assert visit.identify(ANYBODY, "chat") == ANONYMOUS
    assert visit.identify(None, "chat") == Caller("team-a")


@pytest.mark.interpreted
def test_a_visit_looks_a_key_up_once(monkeypatch):
    known, asked = authenticator(), []
    monkeypatch.setattr(Keyring, "whose", lambda _self, key, *_: asked.append(key) or Caller("team-a"), raising=True)
    visit = Visit(known, sent(KEY_A), NoSender(), 0.0)
    assert [visit.identify(BY_KEY, "chat").name for _ in range(3)] == ["team-a"] * 3
    assert len(asked) == 1
    with pytest.raises(ApiError):
        Visit(known, {}, NoSender(), 0.0).identify(BY_KEY, "chat")


GATEWAY = Access(AccessType.HEADER, header="x-user", sources=("10.0.0.0/8", "fd00::/8"))


class At:
    def __init__(self, address="10.1.2.3", *, twice=False):
        self.address, self.twice = address, twice

    def peer_address(self):
        return self.address

    def repeats(self, _name):
        return self.twice


def by_header(fields, sender):
    try:
        return authenticator().identify(GATEWAY, "chat", fields, sender, 0.0).name
    except ApiError as error:
        return error.status, error.code


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "fd00::1%eth0"])
def test_a_gateways_header_names_the_caller(address):
    assert by_header({b"x-user": b"team-a"}, At(address)) == "team-a"


@pytest.mark.parametrize("address", ["11.1.2.3", "::1", "", "nonsense", "::ffff:11.1.2.3", "64:ff9b::a01:203"])
def test_nobody_else_may_set_the_gateways_header(address):
    assert by_header({b"x-user": b"team-a"}, At(address)) == (401, "untrusted_sender")


def test_a_gateways_header_that_cannot_be_a_name():
    assert by_header({}, At()) == (401, "missing_credential")
    assert by_header({b"x-user": b"team-a"}, At(twice=True)) == (401, "untrusted_sender")
    for value in (b"a b", b'a"', b"\xff", b"a" * 129, b"-others", b"a,b"):
        assert by_header({b"x-user": value}, At()) == (401, "untrusted_sender")


def test_a_token_needs_an_issuer_whose_keys_were_read():
    known = authenticator()
    access = by_token()
    assert refusal(access, {}, known=known) == (401, "missing_credential")
    assert refusal(access, sent(token().decode()), known=known) == (503, "access_not_available")
    issuer = known.issuers[IssuerId(access.jwks_uri, access.algorithms)] = Issuer()
    issuer.learn(jwks("one"), 0.0)
    known.epoch = NOW
    assert known.identify(access, "chat", sent(token().decode()), NoSender(), 0.0).name == "team-a"
    assert refusal(access, sent(SECRET_KEY), known=known) == (401, "invalid_token")
    assert refusal(replace(access, callers=("team-b",)), sent(token().decode()), known=known) == (403, "not_allowed")
    with pytest.raises(KeysAwaitedError):  # a key that the issuer may have published since
        known.identify(access, "chat", sent(token("two").decode()), NoSender(), 1.0)
    issuer.away = True
    assert refusal(access, sent(token("two").decode()), known=known) == (503, "access_not_available")
