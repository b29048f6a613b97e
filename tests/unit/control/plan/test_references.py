import pytest

from promptgroup_operator.plan.prompt import BINARY, NOT_TEXT, Texts
from promptgroup_operator.plan.references import references, resolve
from promptgroup_operator.world.snapshot import Problem, PromptText
from support.builders import FINGERPRINT, spec

KEYS = {"type": "APIKey", "apiKey": {"secrets": ["keys", "more"]}}
BOTH = {("Secret", "keys"): {"team-a": "sk-0123456789abcdef"}, ("Secret", "more"): {"team-b": "sk-0123456789abcdeg"}}
SECRET = {"systemFrom": {"secretKeyRef": {"name": "keys", "key": "system"}}}


def test_every_object_is_named_once():
    assert references(spec()) == []
    assert references(spec(access=KEYS, prompt=SECRET)) == [("Secret", "keys"), ("Secret", "more")]


def test_a_group_whose_keys_exist_is_served():
    assert resolve(spec(access=KEYS), BOTH).fingerprint == FINGERPRINT
    assert isinstance(resolve(spec(), {}), PromptText)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (BOTH | {("Secret", "more"): None}, "Secret more (spec.access.apiKey.secrets) does not exist"),
        ({}, "Secret keys (spec.access.apiKey.secrets) does not exist"),
        (BOTH | {("Secret", "keys"): {}}, "Secret keys (spec.access.apiKey.secrets) holds no API key"),
        (BOTH | {("Secret", "keys"): {"team-a": " "}}, "Secret keys (spec.access.apiKey.secrets) holds no API key"),
    ],
)
def test_keys_that_are_missing_are_waited_for_by_name(values, said):
    assert resolve(spec(access=KEYS), values) == Problem("KeysNotFound", said)


def unreadable(kind, name, key, why):
    return {(kind, name): Texts({}, {key: why})}


UNREADABLE = {
    "a prompt in binaryData": (
        {"prompt": {"systemFrom": {"configMapKeyRef": {"name": "p", "key": "system"}}}},
        unreadable("ConfigMap", "p", "system", BINARY),
        ("PromptNotFound", f"key system of ConfigMap p (spec.prompt.systemFrom) {BINARY}"),
    ),
    "a prompt that is no text": (
        {"prompt": SECRET},
        unreadable("Secret", "keys", "system", NOT_TEXT),
        ("PromptNotFound", "key system of Secret keys (spec.prompt.systemFrom) is not UTF-8 text"),
    ),
    "a credential that is no text": (
        {"engine": {"image": "x", "credentialFrom": {"name": "k", "key": "key"}}},
        unreadable("Secret", "k", "key", NOT_TEXT),
        ("CredentialNotFound", "key key of Secret k (spec.engine.credentialFrom) is not UTF-8 text"),
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_is_there_and_no_text_is_not_told_as_missing(case):
    fields, values, expected = UNREADABLE[case]
    assert resolve(spec(**fields), values) == Problem(*expected)


def test_the_prompt_comes_first():
    assert resolve(spec(access=KEYS, prompt=SECRET), {}).reason == "PromptNotFound"


def test_networks_are_checked():
    header = {"type": "Header", "header": {"name": "x-user", "sources": ["10.0.0.1/8"]}}
    found = resolve(spec(access=header), {})
    assert found.reason == "InvalidAccess"
    assert "10.0.0.1/8" in found.message


def test_the_credential_for_engines_is_waited_for_by_name():
    wanted = spec(engine={"credentialFrom": {"name": "engine-key", "key": "key"}})
    assert references(wanted) == [("Secret", "engine-key")]
    said = "key key of Secret engine-key (spec.engine.credentialFrom) does not exist"
    for data in (None, {}, {"key": " "}):
        assert resolve(wanted, {("Secret", "engine-key"): data}) == Problem("CredentialNotFound", said)
    assert isinstance(resolve(wanted, {("Secret", "engine-key"): {"key": "k"}}), PromptText)


CA = {"serverName": "engines.chat.svc", "secretName": "engine-tls"}
PEM = "-----BEGIN CERTIFICATE-----\n..."


@pytest.mark.parametrize(("kind", "source"), [("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")])
def test_authorities_of_engines_are_waited_for_by_name_and_the_engines_own_key_is_not_read(kind, source):
    wanted = spec(engine={"tls": CA | {"caFrom": {source: {"name": "engine-ca", "key": "ca.crt"}}}})
    assert references(wanted) == [(kind, "engine-ca")]
    at = f"key ca.crt of {kind} engine-ca (spec.engine.tls.caFrom)"
    for data in (None, {}):
        assert resolve(wanted, {(kind, "engine-ca"): data}) == Problem("AuthorityNotFound", f"{at} does not exist")
    said = f"{at} holds no certificate in PEM"
    assert resolve(wanted, {(kind, "engine-ca"): {"ca.crt": "x"}}) == Problem("AuthorityNotFound", said)
    assert isinstance(resolve(wanted, {(kind, "engine-ca"): {"ca.crt": PEM}}), PromptText)
