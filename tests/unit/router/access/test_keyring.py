import pytest

from promptgroup_contract.access import Caller
from promptgroup_router.access.keyring import MAX_KEY_BYTES, Keyring, SecretRef, is_name

KEYS = SecretRef("chat", "keys")
A, B = b"sk-" + b"a" * 20, b"sk-" + b"b" * 20


def keyring(**data: bytes) -> Keyring:
    ring = Keyring(b"salt")
    assert ring.learn_keys(KEYS, {name.replace("_", "-"): value for name, value in data.items()}) == []
    return ring


def test_a_caller_has_several_keys_and_a_secret_several_callers():
    ring = keyring(team_a=A + b"\n\n  " + A + b"2\r\n", team_b=B)
    assert [ring.whose(key, "chat", ("none", "keys")) for key in (A, A + b"2", B, b"other")] == [
        Caller("team-a"),
        Caller("team-a"),
        Caller("team-b"),
        None,
    ]


def test_keys_count_in_their_namespace_and_in_the_secrets_that_are_named():
    ring = keyring(team_a=A)
    assert ring.whose(A, "other", ("keys",)) is None
    assert ring.whose(A, "chat", ("more",)) is None
    assert ring.is_known(A, "chat")
    assert not ring.is_known(A, "other")
    assert not ring.is_known(B, "chat")


def test_a_secret_that_was_never_read_is_told_from_one_without_keys():
    ring = Keyring(b"salt")
    assert ring.unread("chat", ("keys",)) == "keys"
    ring.learn_keys(KEYS, {})
    assert ring.unread("chat", ("keys",)) == ""


def test_a_key_that_is_withdrawn_is_unknown_at_once():
    ring = keyring(team_a=A + b"\n" + B)
    ring.learn_keys(KEYS, {"team-a": B})
    assert ring.whose(A, "chat", ("keys",)) is None
    assert ring.whose(B, "chat", ("keys",)) == Caller("team-a")
    ring.keep(frozenset())
    assert ring.whose(B, "chat", ("keys",)) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"team a": A}, "'team a' is no name of a caller"),
        ({"a": b"short-secret"}, "a: line 1 is no API key, expected 16 to 512 printable ASCII characters"),
        ({"a": b"x" * (MAX_KEY_BYTES + 1)}, "a: line 1 is no API key"),
        ({"a": b"one secret with spaces"}, "a: line 1 is no API key"),
        ({"a": A, "b": B + b"\n" + A}, "b: line 2 is a key of a already"),
    ],
)
def test_what_cannot_be_used_is_said_without_the_key(data, said):
    ring = Keyring(b"salt")
    problems = ring.learn_keys(KEYS, data)
    assert len(problems) == 1
    assert problems[0].startswith(said)
    for key in b"\n".join(data.values()).split(b"\n"):
        assert key.decode() not in problems[0]
    good = {key for name, value in data.items() for key in value.split(b"\n") if key in (A, B)}
    assert all(ring.whose(key, "chat", ("keys",)) is not None for key in good if " " not in next(iter(data)))


@pytest.mark.interpreted
def test_no_key_stands_in_the_memory_of_the_ring():
    ring = keyring(team_a=A)
    assert A not in repr(vars(ring)).encode()
    assert Keyring(b"another").__dict__ != vars(ring)


def test_the_credential_for_an_engine():
    ring = Keyring(b"salt")
    assert ring.credential("chat", "keys/key") == b""
    ring.learn_credentials(KEYS, {"key": b"engine-key\n"})
    assert ring.credential("chat", "keys/key") == b"engine-key"


@pytest.mark.parametrize(
    "name", ["team-a", "a@example.com", "system:serviceaccount:chat:app", "auth0|5f7c8ec7", "a" * 128]
)
def test_names(name):
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "a" * 129, "a b", 'a"', "a\n", "-others", "é"])
def test_no_names(name):
    assert not is_name(name)
