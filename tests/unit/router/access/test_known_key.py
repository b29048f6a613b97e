"""What a connection remembers of the key that it sent last."""

from dataclasses import replace

import pytest

from promptgroup_router.access.authenticator import Authenticator, NoSender, Visit
from promptgroup_router.access.keyring import Keyring, SecretRef
from promptgroup_router.base.errors import ApiError
from support.keys import BY_KEY, KEY_A, KEY_A2, KEY_B

KEYS, OTHER_KEYS = SecretRef("chat", "keys"), SecretRef("shop", "keys")


class Connection(NoSender):
    """A connection that remembers."""

    def __init__(self):
        self.known = None

    def known_key(self):
        return self.known

    def remember(self, key):
        self.known = key


class Counting(Keyring):
    """Counts the keys that are hashed to tell whose they are."""

    asked = 0

    def whose(self, *given):
        self.asked += 1
        return super().whose(*given)


@pytest.fixture
def keyring():
    found = Counting(b"salt")
    found.learn_keys(KEYS, {"team-a": KEY_A.encode(), "team-b": KEY_B.encode()})
    return found


@pytest.fixture
def ask(keyring):
    authenticator, connection = Authenticator(keyring), Connection()

    def visit(fields, access=BY_KEY, namespace="chat"):
        try:
            return Visit(authenticator, fields, connection, 0.0).identify(access, namespace).name
        except ApiError as error:
            return error.status

    return visit


def bearer(key):
    return {b"authorization": b"Bearer " + key.encode()}


def anthropic(key):
    return {b"x-api-key": key.encode()}


pytestmark = pytest.mark.interpreted


@pytest.mark.parametrize("sent", [bearer, anthropic])
def test_the_key_of_the_last_request_is_not_hashed_again(ask, keyring, sent):
    assert [ask(sent(KEY_A)) for _ in range(5)] == ["team-a"] * 5
    assert keyring.asked == 1
    assert [ask(sent(KEY_B)) for _ in range(2)] == ["team-b"] * 2
    assert keyring.asked == 2


@pytest.mark.parametrize("sent", [bearer, anthropic])
def test_a_key_that_is_withdrawn_or_given_to_another_counts_no_more(ask, keyring, sent):
    assert ask(sent(KEY_A)) == "team-a"
    keyring.learn_keys(KEYS, {"team-c": KEY_A.encode()})
    assert ask(sent(KEY_A)) == "team-c"
    keyring.learn_keys(KEYS, {"team-a": KEY_A2.encode()})
    assert ask(sent(KEY_A)) == 401
    assert ask(sent(KEY_A2)) == "team-a"
    keyring.keep(frozenset())
    assert ask(sent(KEY_A2)) == 503
    keyring.learn_keys(KEYS, {})
    assert ask(sent(KEY_A2)) == 401


def test_keys_of_an_earlier_process_replace_those_that_connections_remember(ask, keyring):
    assert ask(bearer(KEY_A)) == "team-a"
    earlier = Keyring(b"another")
    earlier.learn_keys(KEYS, {"team-b": KEY_B.encode()})
    keyring.restore(earlier.salt, earlier.hashes())
    assert [ask(bearer(KEY_A)), ask(bearer(KEY_B))] == [401, "team-b"]


def test_a_key_is_remembered_for_one_access_and_one_namespace(ask, keyring):
    keyring.learn_keys(OTHER_KEYS, {"team-b": KEY_B.encode()})
    assert ask(bearer(KEY_A)) == "team-a"
    assert ask(bearer(KEY_A), namespace="shop") == 401
    assert ask(bearer(KEY_A), replace(BY_KEY, secrets=("others",))) == 503
    assert ask(bearer(KEY_A), replace(BY_KEY, callers=("team-b",))) == 403
    assert ask(bearer(KEY_A)) == "team-a"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"authorization": KEY_A.encode()},
        {b"authorization": b"Basic " + KEY_A.encode()},
        {b"authorization": b"Bearer " + KEY_A.encode()[:-1]},
        {b"authorization": b"Bearer " + KEY_A.encode() + b"a"},
        {b"x-api-key": b"Bearer " + KEY_A.encode()},
    ],
)
def test_what_is_no_good_key_is_none_after_one_that_is(ask, fields):
    assert ask(bearer(KEY_A)) == "team-a"
    assert ask(fields) == 401
    assert ask(anthropic(KEY_A)) == "team-a"
    assert ask(fields) == 401


def test_nobody_is_known_by_the_connection_alone():
    assert (NoSender().known_key(), NoSender().remember(None)) == (None, None)
