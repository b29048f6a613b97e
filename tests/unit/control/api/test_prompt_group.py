import pytest
from pydantic import ValidationError

from promptgroup_contract.names import HEADER_SESSION
from promptgroup_contract.table import Policy, Sharing
from promptgroup_operator.api.prompt_group import FailurePolicy, PromptGroup, parse_spec
from support.builders import FINGERPRINT

LEAST = {"model": "llama", "prompt": {"system": "x"}, "engine": {"image": "i"}}


def test_what_is_not_written_has_a_default():
    spec = parse_spec(LEAST)
    assert (spec.replicas, spec.sizing, spec.engine.port, spec.engine.args) == (None, None, 8000, [])
    assert (spec.routing.policy, spec.routing.sharing) == (Policy.EXPECTED_TTFT, Sharing.POOL)
    assert spec.routing.load_factor_percent == 125
    assert spec.routing.session_header == HEADER_SESSION
    assert spec.rollout.retire_after == "30m"
    assert (spec.warmup.failure_policy, spec.warmup.timeout) == (FailurePolicy.BLOCK, "5m")


def test_the_size_changes_as_fast_as_engines_start_and_sessions_move():
    behavior = parse_spec(LEAST | {"sizing": {"maxReplicas": 4}}).sizing.behavior
    up, down = behavior.scale_up, behavior.scale_down
    assert (up.stabilization_window_seconds, down.stabilization_window_seconds) == (0, 300)
    assert [(each.type, each.value, each.period_seconds) for each in up.policies] == [
        ("Percent", 100, 60),
        ("Pods", 4, 60),
    ]
    assert [(each.type, each.value, each.period_seconds) for each in down.policies] == [
        ("Pods", 1, 60),
        ("Percent", 10, 60),
    ]


def test_fields_of_a_newer_schema_are_passed_over():
    assert parse_spec(LEAST | {"kvPool": {"size": 1}}) == parse_spec(LEAST)


def test_a_group_without_a_prompt_and_a_guest_are_told_from_others():
    assert not parse_spec(LEAST).is_guest
    assert parse_spec(LEAST).has_prompt
    assert not parse_spec({key: value for key, value in LEAST.items() if key != "prompt"}).has_prompt
    assert parse_spec({"engineFrom": {"promptGroup": "pool"}, "prompt": {"system": "x"}}).is_guest


BAD = {
    "an empty alias": {"modelAliases": [""]},
    "a long alias": {"modelAliases": ["x" * 254]},
    "too many aliases": {"modelAliases": [f"a{number}" for number in range(17)]},
    "a reference that leads elsewhere": {
        "prompt": {"systemFrom": {"secretKeyRef": {"name": "../../victim/secrets/db", "key": "password"}}}
    },
    "a reference with a key that no object has": {
        "prompt": {"systemFrom": {"configMapKeyRef": {"name": "prompts", "key": "a/b"}}}
    },
    "a credential that leads elsewhere": {"engine": {"image": "i", "credentialFrom": {"name": "a/b", "key": "key"}}},
    "a certificate that leads elsewhere": {
        "engine": {"image": "i", "tls": {"secretName": "..", "caFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}}
    },
    "keys that lead elsewhere": {"access": {"type": "APIKey", "apiKey": {"secrets": ["a..b"]}}},
    "a claim that leads elsewhere": {"cache": {"offload": {"memory": "1Gi", "claimName": "../a"}}},
    "an empty model": {"model": ""},
    "negative replicas": {"replicas": -1},
    "an unknown sharing": {"routing": {"sharing": "pool"}},
    "a duration without a unit": {"warmup": {"timeout": "5"}},
    "a duration that no calendar holds": {"rollout": {"retireAfter": "9999999h"}},
    "a pin that is no fingerprint": {"prompt": {"system": "x", "fingerprint": FINGERPRINT[:8]}},
    "a pin in upper case": {"prompt": {"system": "x", "fingerprint": FINGERPRINT.upper()}},
    "a header with a colon": {"routing": {"sessionHeader": "x-session:"}},
    "a load factor below one": {"routing": {"loadFactorPercent": 99}},
    "an unknown policy": {"routing": {"policy": "Random"}},
    "an unknown engine": {"engine": {"image": "i", "type": "llama.cpp"}},
    "a port that is none": {"engine": {"image": "i", "port": 70000}},
}


@pytest.mark.parametrize("case", BAD)
def test_what_the_schema_refuses(case):
    with pytest.raises(ValidationError):
        parse_spec(LEAST | BAD[case])


@pytest.mark.parametrize("limit", [1, "1", "0.5", "500m", "64Gi", "1e3", "1E-3", ".5", "+1.", "9" * 19])
def test_a_quantity_is_written_as_kubernetes_takes_it(limit):
    assert parse_spec(LEAST | resources(limit)).engine.resources.limits == {"memory": limit}


@pytest.mark.parametrize("limit", ["", "x", "1.2.3", "1 Gi", "1gi", "9e999999", "9" * 33, "1e1.5", 2**63, 1.5, None])
def test_what_is_no_quantity_or_none_that_can_be_is_refused(limit):
    with pytest.raises(ValidationError, match=r"limits\.memory(.|\n)*(no quantity|should be a valid)"):
        parse_spec(LEAST | resources(limit))


def resources(limit):
    return {"engine": {"image": "i", "resources": {"limits": {"memory": limit}}}}


def test_a_model_cannot_be_changed_after_it_was_read():
    with pytest.raises(ValidationError):
        parse_spec(LEAST).replicas = 3


def test_a_template_is_kept_as_written():
    template = {"spec": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": None}]}}
    assert parse_spec(LEAST | {"engine": {"image": "i", "template": template}}).engine.template == template


@pytest.mark.parametrize("levels", [64, 65, 200, 5_000])
@pytest.mark.parametrize("field", ["template", "tools"])
def test_a_free_form_field_nests_as_deeply_as_every_reader_reads(field, levels):
    value = {"a": 1}
    for _ in range(levels - 1):
        value = {"a": value}
    spec = {"engine": {"image": "i", "template": value}} if field == "template" else {}
    spec = spec or {"prompt": {"system": "x", "tools": [{}, value]}}
    if levels == 64:
        assert parse_spec(LEAST | spec)
    else:
        with pytest.raises(ValidationError, match=rf"{field}(.|\n)*more than 64 levels deep"):
            parse_spec(LEAST | spec)


def test_a_status_of_before_is_read():
    assert (
        PromptGroup.model_validate({"spec": LEAST, "status": {"observedGeneration": 3}}).status.observed_generation == 3
    )


SHOWN = {
    "model": lambda name: LEAST | {"model": name},
    "alias": lambda name: LEAST | {"modelAliases": [name]},
    "image": lambda name: LEAST | {"engine": {"image": name}},
    "caller": lambda name: LEAST | {"access": {"type": "APIKey", "apiKey": {"secrets": ["s"]}, "callers": [name]}},
}
"""Name that status, tables or logs show → a spec with it."""


@pytest.mark.parametrize("spec", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize(
    "control",
    ["\x1b[2J", "\x07", "\r\n", "\n", "\t", " ", "\x00", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\u200b"],
)
@pytest.mark.parametrize("form", ["{}x", "x{}", "x{}x"])
def test_no_name_that_is_shown_has_a_character_that_a_terminal_obeys(spec, control, form):
    with pytest.raises(ValidationError):
        parse_spec(spec(form.format(control)))


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.1-8B-Instruct", "org/model:tag@sha256~1", "/models/a_b+c", "x" * 253]
)
def test_names_of_models_are_taken(name):
    spec = parse_spec(LEAST | {"model": name, "modelAliases": ["gpt-4o"]})
    assert spec.model == name
