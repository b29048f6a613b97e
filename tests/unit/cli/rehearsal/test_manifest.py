"""Files as `kubectl apply -f` takes them."""

import base64
import json

import pytest
import yaml

from promptgroup_cli.rehearsal import manifest
from promptgroup_cli.rehearsal.manifest import ManifestError
from support import builders

SPEC = {"model": "llama", "prompt": {"system": builders.TEXT}, "engine": {"image": "vllm"}}
FROM_SECRET = {"systemFrom": {"secretKeyRef": {"name": "p", "key": "system"}}}
FROM_MAP = {"systemFrom": {"configMapKeyRef": {"name": "p", "key": "system"}}}


def group(spec=None, **metadata):
    metadata = {"name": "support"} | metadata
    return {
        "apiVersion": manifest.API_VERSION,
        "kind": "PromptGroup",
        "metadata": metadata,
        "spec": SPEC | (spec or {}),
    }


def holder(kind="ConfigMap", **fields):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "p"}} | fields


def read(*objects, old=None):
    return manifest.read_group(yaml.safe_dump_all(objects), "chat", builders.NOW, old)


def refused(*objects, old=None):
    with pytest.raises(ManifestError) as error:
        read(*objects, old=old)
    return str(error.value)


def test_an_inline_prompt():
    wanted = read(group())
    assert (wanted.group.key.namespace, wanted.group.key.name) == ("chat", "support")
    assert wanted.text == builders.text()
    assert wanted.warnings == ()


def test_the_files_own_namespace_stands():
    assert read(group(namespace="other")).group.key.namespace == "other"


def test_json_is_read_too():
    assert manifest.read_group(json.dumps(group()), "chat", builders.NOW).text == builders.text()


def test_what_looks_like_a_date_is_a_text():
    content = yaml.safe_dump(group()).replace("model: llama", "model: 2026-01-01")
    assert manifest.read_group(content, "chat", builders.NOW).group.spec.model == "2026-01-01"


@pytest.mark.parametrize(
    "secret",
    [
        holder("Secret", data={"system": base64.b64encode(builders.TEXT.encode()).decode()}),
        holder("Secret", data={"system": "b2xk"}, stringData={"system": builders.TEXT}),
    ],
    ids=["base64", "clear"],
)
def test_the_secret_may_come_before_or_after(secret):
    for objects in ((group({"prompt": FROM_SECRET}), secret), (secret, group({"prompt": FROM_SECRET}))):
        assert read(*objects).text == builders.text(secret=True)


def test_a_config_map():
    assert read(holder(data={"system": builders.TEXT}), group({"prompt": FROM_MAP})).text == builders.text()


def test_the_items_of_a_list():
    items = [holder(data={"system": builders.TEXT}), group({"prompt": FROM_MAP})]
    assert read({"apiVersion": "v1", "kind": "List", "items": items}).text == builders.text()


def test_empty_documents_are_none():
    assert read(None, group(), None).text == builders.text()


def test_unknown_fields_are_warned_of():
    spec = {"replica": 3, "engine": {"image": "vllm", "template": {"spec": {"priority": 1}}, "imagee": "x"}}
    warned = " ".join(read(group(spec | {"rollout": {"steps": [{"weight": 5, "wait": "1m"}]}})).unknown)
    assert [path in warned for path in ("spec.replica ", "spec.engine.imagee ", "spec.rollout.steps[0].wait ")] == [
        True
    ] * 3
    assert "template" not in warned


def templated(**spec):
    return group({"engine": {"image": "vllm", "template": {"spec": spec}}})


ENGINE = {"name": "engine"}
MISTYPED = {
    "a number as a value": (
        {"containers": [ENGINE | {"env": [{"name": "OMP_NUM_THREADS", "value": 8}]}]},
        '.env[OMP_NUM_THREADS].value is 8 without quotes, and must be a text: write "8"',
    ),
    "a map as a list": ({"tolerations": {"operator": "Exists"}}, "spec.tolerations is a map, and must be a list"),
    "a misspelt name": ({"nodeSelectr": {"a": "b"}}, "did you mean nodeSelector?"),
    "a word of no kind": (
        {"containers": [ENGINE | {"imagePullPolicy": "Sometimes"}]},
        "must be one of Always, IfNotPresent, Never",
    ),
    "in a list that is replaced whole": ({"tolerations": [{"key": 1}]}, "spec.tolerations[0].key is 1 without quotes"),
}


@pytest.mark.parametrize("case", MISTYPED)
def test_a_template_that_an_api_server_would_not_take_is_refused(case):
    spec, expected = MISTYPED[case]
    assert expected in refused(templated(**spec))
    declared = manifest.declared_prompts(yaml.safe_dump(templated(**spec)), "chat")[0]
    assert expected in manifest.template_faults(declared.template)[0]


def test_a_null_in_a_template_is_warned_of_since_clients_differ_and_a_directive_is_none():
    found = templated(securityContext={"runAsUser": None}, containers=[ENGINE | {"livenessProbe": None}])
    assert {each.partition(" is null")[0] for each in read(found).warnings} == {
        "spec.engine.template.spec.securityContext.runAsUser",
        "spec.engine.template.spec.containers[engine].livenessProbe",
    }
    replaced = templated(securityContext={"$patch": "replace", "runAsNonRoot": True})
    assert read(replaced).warnings == ()


REFUSED = {
    "nothing": ((), "the file is empty: it needs a PromptGroup"),
    "another kind": ((holder(),), "no PromptGroup in the file, but ConfigMap"),
    "two groups": ((group(), group(name="b")), "2 PromptGroups in the file"),
    "a list": (([1],), "it has no kind"),
    "another version": (
        (group() | {"apiVersion": "promptgroup.dev/v9"},),
        'apiVersion: "promptgroup.dev/v9" is unknown',
    ),
    "no metadata": ((group() | {"metadata": None},), "metadata.name: null is not a name"),
    "a bad name": ((group(name="Support"),), 'metadata.name: "Support" is not a name'),
    "no spec": ((group() | {"spec": None},), "spec: Input should be an object"),
    "no image": ((group({"engine": {}}),), "spec.engine.image: Field required"),
    "too many": ((group({"replicas": 4000}),), "spec.replicas: Input should be less than or equal to 1000, not 4000"),
    "a number as text": ((group({"replicas": "3"}),), 'spec.replicas: Input should be a valid integer, not "3"'),
    "another engine": ((group({"engine": {"image": "x", "type": "TGI"}}),), 'not "TGI"'),
    "a rule": ((group({"rollout": {"maxSurge": -1}}),), "spec.rollout.maxSurge: "),
    "a pin": ((group({"prompt": {"system": "x", "fingerprint": "0" * 32}}),), "restore the text or change the pin"),
    "a template": (
        (group({"engine": {"image": "x", "template": {"spec": {"containers": [{"image": "y"}]}}}}),),
        "spec.engine.template",
    ),
    "no object": (
        (group({"prompt": FROM_MAP}),),
        "ConfigMap p (spec.prompt.systemFrom) does not exist: add it to the",
    ),
    "no key": ((group({"prompt": FROM_MAP}), holder(data={"other": "x"})), "does not exist in that object"),
    "a key that is no text": (
        (group({"prompt": FROM_MAP}), holder(binaryData={"system": "/w=="})),
        "key system of ConfigMap p (spec.prompt.systemFrom) is in binaryData",
    ),
    "no map": ((group({"prompt": FROM_MAP}), holder(data=["x"])), "ConfigMap p: data is not a map"),
    "no base64": ((group({"prompt": FROM_SECRET}), holder("Secret", data={"system": "#"})), "not a text in base64"),
    "not its namespace": (
        (group({"prompt": FROM_MAP}), holder(data={"system": "x"}, metadata={"name": "p", "namespace": "b"})),
        "does not exist",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_planned_is_said(case):
    objects, expected = REFUSED[case]
    assert expected in refused(*objects)


def test_another_model_than_the_one_that_stands():
    assert "spec.model cannot be changed" in refused(group({"model": "b"}), old=builders.spec())


@pytest.mark.parametrize(
    "content",
    ["a: [", "a:\n\t- b", "\x00", "{{ .Values }}", "a: &a [*a]\nkind: x", "[" * 5000],
    ids=["unclosed", "tab", "control", "template", "cycle", "deep"],
)
def test_what_is_not_yaml_is_said_in_a_line(content):
    with pytest.raises(ManifestError) as error:
        manifest.read_group(content, "chat", builders.NOW)
    assert "\n" not in str(error.value)


def test_messages_never_quote_a_prompt():
    secret = "the recovery phrase"
    for prompt in (
        {"system": [secret]},
        {"system": secret, "fingerprint": secret},
        {"system": secret, "tools": secret},
    ):
        assert secret not in refused(group({"prompt": prompt}))
    with pytest.raises(ManifestError) as error:
        manifest.read_group(f"system: {secret}: {secret}", "chat", builders.NOW)
    assert secret not in str(error.value)


def test_a_spec_that_contains_itself():
    content = yaml.safe_dump(group()).replace("image: vllm", "image: vllm\n    template: &a {b: *a}")
    with pytest.raises(ManifestError, match=r"the alias at line [0-9]+ stands inside of what it names"):
        manifest.read_group(content, "chat", builders.NOW)


def test_half_a_character_is_refused():
    content = json.dumps(group({"prompt": {"system": "\ud800"}}))
    with pytest.raises(ManifestError):
        manifest.read_group(content, "chat", builders.NOW)


KEYS = {"access": {"type": "APIKey", "apiKey": {"secrets": ["keys", "more"]}}}
KEYS_SECRET = "Secret keys (spec.access.apiKey.secrets)"
KEY = {"team-a": "sk-0123456789abcdef"}


def keys(name, **data):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def test_secrets_with_keys_that_are_not_in_the_file_are_named_each():
    assert read(group(KEYS), keys("keys", **KEY), keys("more", **KEY)).warnings == ()
    assert read(group(KEYS), keys("more", **KEY)).warnings == (
        f"{KEYS_SECRET} is not in the file: the group waits until the cluster has it (KeysNotFound)",
    )
    assert len(read(group(KEYS)).warnings) == 2
    elsewhere = keys("keys", **KEY)
    elsewhere["metadata"]["namespace"] = "other"
    assert len(read(group(KEYS), elsewhere, keys("more", **KEY)).warnings) == 1


def test_a_secret_of_the_file_without_a_key_is_refused():
    said = refused(group(KEYS), keys("keys"), keys("more", **KEY))
    assert said == f"{KEYS_SECRET} holds no API key"


def test_what_engines_ask_for_and_are_verified_by_is_looked_for_too():
    tls = {"caFrom": {"configMapKeyRef": {"name": "p", "key": "ca.crt"}}}
    engine = SPEC["engine"] | {"credentialFrom": {"name": "engine-key", "key": "key"}, "tls": tls}
    assert [each.rpartition("(")[2] for each in read(group({"engine": engine})).warnings] == [
        "CredentialNotFound)",
        "AuthorityNotFound)",
    ]
    said = refused(group({"engine": engine}), holder(data={"ca.crt": "none"}))
    assert said == "key ca.crt of ConfigMap p (spec.engine.tls.caFrom) holds no certificate in PEM"


def test_networks_of_an_access_are_checked():
    header = {"type": "Header", "header": {"name": "x-user", "sources": ["10.0.0.1/8"]}}
    assert "10.0.0.1/8" in refused(group({"access": header}))
