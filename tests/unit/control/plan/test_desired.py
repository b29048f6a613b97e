import base64

import pytest

from promptgroup_contract import names, table
from promptgroup_contract.encoding import encode_group
from promptgroup_contract.fingerprint import fingerprint
from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.plan import desired
from promptgroup_operator.plan.diff import must_write
from support.builders import FINGERPRINT, TEXT, group

SHORT = FINGERPRINT[:8]
SELECTOR = {names.LABEL_GROUP: "support", names.LABEL_REVISION: SHORT}


def deployment(*, replicas=2, kind="ConfigMap", noted=None, template=None, live=None, **fields):
    return desired.deployment(
        group(**fields), FINGERPRINT, replicas, PromptRef(kind, "x"), records=noted or {}, template=template, live=live
    )


def pod_of(**engine):
    return deployment(engine=engine)["spec"]["template"]


def test_a_deployment_is_named_after_group_and_fingerprint_and_owned_by_the_group():
    metadata = deployment()["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (f"support-{SHORT}", "chat")
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("PromptGroup", "uid-support", True)


def test_its_selector_its_labels_and_its_pods_agree():
    made = deployment()
    assert made["spec"]["selector"]["matchLabels"] == SELECTOR
    assert SELECTOR.items() <= made["metadata"]["labels"].items()
    assert made["spec"]["template"]["metadata"]["labels"] == SELECTOR


def test_of_the_replicas_of_a_revision_one_may_be_evicted_at_a_time():
    made = desired.budget(group(), FINGERPRINT)
    assert made["metadata"]["name"] == f"support-{SHORT}"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-support"
    assert made["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": SELECTOR},
    }


@pytest.mark.parametrize(
    ("surge", "rolling"),
    [(1, (1, 0)), (3, (1, 0)), ("25%", (1, 0)), (0, (0, 1)), ("0%", (0, 1))],
)
def test_an_update_takes_no_replica_away_where_one_is_spare(surge, rolling):
    made = deployment(rollout={"maxSurge": surge})["spec"]["strategy"]["rollingUpdate"]
    assert (made["maxSurge"], made["maxUnavailable"]) == rolling


def test_it_records_its_revision_where_its_prompt_is_and_what_becomes_of_it():
    annotations = deployment(kind="Secret", noted={"promptgroup.dev/size": "3"})["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_FINGERPRINT] == FINGERPRINT
    assert annotations[names.ANNOTATION_PROMPT] == "Secret"
    assert annotations["promptgroup.dev/size"] == "3"


def test_being_superseded_or_resized_is_no_new_pod_template():
    assert deployment()["spec"]["template"] == deployment(noted={"x": "y"}, replicas=9)["spec"]["template"]


def test_a_template_that_is_kept_is_the_one_that_stands_whatever_the_spec_says():
    before = deployment()
    before["spec"]["template"]["metadata"]["creationTimestamp"] = None  # as the API server writes it
    before["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    kept = desired.standing_template(before)
    made = deployment(template=kept, engine={"image": "another"})
    assert made["spec"]["template"]["spec"] == before["spec"]["template"]["spec"]
    assert "creationTimestamp" not in made["spec"]["template"]["metadata"]
    assert desired.settings_of(made) == desired.engine_settings(group()) != ""
    assert desired.settings_of(None) == ""


def test_pods_are_gated_by_warmth_and_run_without_rights():
    spec = pod_of(image="i")["spec"]
    assert spec["readinessGates"] == [{"conditionType": names.CONDITION_PREFIX_WARM}]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize("engine", ["vLLM", "SGLang", "TensorRTLLM"])
def test_services_of_the_namespace_set_no_variables_in_an_engine(engine):
    assert pod_of(image="i", type=engine)["spec"]["enableServiceLinks"] is False


def test_a_template_can_ask_for_the_variables_of_services():
    made = pod_of(image="i", template={"spec": {"enableServiceLinks": True}})
    assert made["spec"]["enableServiceLinks"] is True


def test_the_engine_serves_the_model_on_the_port_with_the_users_arguments_last():
    (engine,) = pod_of(image="i", port=9000, args=["--a"])["spec"]["containers"]
    assert engine["args"] == ["llama", "--port=9000", "--enable-prompt-tokens-details", "--shutdown-timeout=25", "--a"]
    assert engine["ports"] == [{"name": "http", "containerPort": 9000, "protocol": "TCP"}]
    assert engine["readinessProbe"]["httpGet"]["port"] == "http"


def test_an_engine_and_its_hooks_are_told_the_pods_address():
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    assert address in pod_of(type="SGLang", image="x")["spec"]["containers"][0]["env"]
    assert address in pod_of(image="x")["spec"]["containers"][0]["env"]


def test_probes_of_sglang_generate_nothing():
    variables = pod_of(type="SGLang", image="x")["spec"]["containers"][0]["env"]
    assert {"name": "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "value": "false"} in variables


def test_an_engine_reads_settings_that_have_no_flag_from_an_annotation_of_its_pod():
    made = deployment(engine={"type": "TensorRTLLM", "image": "x"})["spec"]["template"]
    assert "return_perf_metrics: true" in made["metadata"]["annotations"][desired.ANNOTATION_CONFIG]
    (item,) = next(each for each in made["spec"]["volumes"] if each["name"] == "config")["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{desired.ANNOTATION_CONFIG}']"
    (container,) = made["spec"]["containers"]
    (mount,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "config")
    assert f"--extra_llm_api_options={mount}/{item['path']}" in container["args"]


def test_a_template_gives_the_engine_other_settings():
    template = {"metadata": {"annotations": {desired.ANNOTATION_CONFIG: "enable_chunked_prefill: true"}}}
    made = deployment(engine={"type": "TensorRTLLM", "image": "x", "template": template})["spec"]["template"]
    assert made["metadata"]["annotations"][desired.ANNOTATION_CONFIG] == "enable_chunked_prefill: true"


def test_resources_are_the_engines():
    (engine,) = pod_of(image="i", resources={"limits": {"nvidia.com/gpu": 1}})["spec"]["containers"]
    assert engine["resources"] == {"limits": {"nvidia.com/gpu": 1}}


def test_a_template_is_merged_over_the_operators():
    template = {
        "metadata": {"annotations": {"team": "a"}, "labels": {"tier": "gpu"}},
        "spec": {
            "nodeSelector": {"gpu": "h100"},
            "containers": [{"name": "engine", "env": [{"name": "HF_HOME", "value": "/models"}]}, {"name": "side"}],
        },
    }
    made = pod_of(image="i", template=template)
    annotations = made["metadata"]["annotations"]
    assert annotations.keys() == {names.ANNOTATION_FINGERPRINT, names.ANNOTATION_SETTINGS, "team"}
    assert (annotations[names.ANNOTATION_FINGERPRINT], annotations["team"]) == (FINGERPRINT, "a")
    assert made["metadata"]["labels"] == SELECTOR | {"tier": "gpu"}
    assert [each["name"] for each in made["spec"]["containers"]] == ["engine", "side"]
    assert [each["name"] for each in made["spec"]["containers"][0]["env"]] == ["HOME", "USER", "POD_IP", "HF_HOME"]
    assert made["spec"]["nodeSelector"] == {"gpu": "h100"}


def settings(**fields):
    return desired.engine_settings(group(**fields))


UNLIKE = {
    "another model": {"model": "qwen"},
    "another image": {"engine": {"image": "i"}},
    "other arguments": {"engine": {"args": ["--max-model-len=1"]}},
    "the same arguments in another order": {"engine": {"args": ["--b", "--a"]}},
    "another port": {"engine": {"port": 9000}},
    "other resources": {"engine": {"resources": {"limits": {"nvidia.com/gpu": 2}}}},
    "another node": {"engine": {"template": {"spec": {"nodeSelector": {"gpu": "h100"}}}}},
    "a label that something on the node may act on": {"engine": {"template": {"metadata": {"labels": {"a": "b"}}}}},
}


@pytest.mark.parametrize("case", UNLIKE)
def test_engines_that_are_not_interchangeable_have_other_settings(case):
    found = [settings(), settings(engine={"args": ["--a", "--b"]}), settings(**UNLIKE[case])]
    assert len(set(found)) == 3


ALIKE = {
    "another name": {"name": "other"},
    "another prompt": {"prompt": {"system": "another"}},
    "another number": {"replicas": 9},
    "another policy": {"routing": {"policy": "RoundRobin", "sharing": "Dedicated"}},
    "a default that is spelled out": {"engine": {"port": 8000, "type": "vLLM", "args": [], "template": {}}},
    "a template that says what the operator says": {"engine": {"template": {"spec": {"enableServiceLinks": False}}}},
    "another drain time": {"rollout": {"drainTimeout": "1h"}},
}


@pytest.mark.parametrize("case", ALIKE)
def test_what_does_not_change_an_engine_does_not_change_its_settings(case):
    assert settings(**ALIKE[case]) == settings() == "564af36cc2850c56"


def test_the_order_of_a_templates_keys_does_not_matter():
    one = {"spec": {"nodeSelector": {"a": "1", "b": "2"}, "hostNetwork": True}}
    other = {"spec": {"hostNetwork": True, "nodeSelector": {"b": "2", "a": "1"}}}
    assert settings(engine={"template": one}) == settings(engine={"template": other})


def test_pods_carry_the_settings_that_they_were_made_with():
    annotations = pod_of(image="i")["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_SETTINGS] == settings(engine={"image": "i"})


def test_a_template_cannot_pass_for_other_settings():
    template = {"metadata": {"annotations": {names.ANNOTATION_SETTINGS: "0" * 16}}}
    annotations = pod_of(image="i", template=template)["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_SETTINGS] == settings(engine={"image": "i", "template": template})


def container(**fields):
    return {"template": {"spec": {"containers": [{"name": "engine", **fields}]}}}


STEPS = {
    "not said": ({}, 0),
    "in the arguments": ({"args": ["--max-num-batched-tokens=4096"]}, 4096),
    "in a template's, which replace them": (
        {"args": ["--max-num-batched-tokens=4096"], **container(args=["--max-num-batched-tokens=2048"])},
        2048,
    ),
    "in another container's": (
        {"template": {"spec": {"containers": [{"name": "side", "args": ["--max-num-batched-tokens=1"]}]}}},
        0,
    ),
    "arguments that are none": (container(args="--max-num-batched-tokens=1"), 0),
    "an argument that is no text": (container(args=[7, "--max-num-batched-tokens=1"]), 1),
    "no arguments": (container(args=None), 0),
    "containers that are none": ({"template": {"spec": {"containers": "engine"}}}, 0),
    "no containers": ({"template": {"spec": {"containers": None}}}, 0),
    "no engine": (container(**{"$patch": "delete"}), 0),
    "no spec": ({"template": {"spec": None}}, 0),
    "a template that cannot be merged": ({"template": {"spec": {"containers": [{"image": "x"}]}}}, 0),
}


def test_the_requests_that_run_at_once_are_those_of_the_running_engine():
    assert desired.max_sequences(group(), standing(container(args=["--max-num-seqs=64"]))) == 64
    assert desired.max_sequences(group(), None) == 0


@pytest.mark.parametrize("case", STEPS)
def test_the_tokens_of_a_step(case):
    engine, expected = STEPS[case]
    assert desired.step_tokens(group(), standing(engine)) == expected


def standing(engine):
    """The Deployment; None while there is none."""
    of = group(engine=engine)
    if desired.template_problem(of) is not None:
        return None
    return desired.deployment(of, FINGERPRINT, 1, PromptRef("ConfigMap", "x"), records={})


def test_a_template_that_cannot_be_merged_has_no_settings():
    assert settings(engine={"template": {"spec": {"containers": [{"image": "x"}]}}}) == ""


def test_the_key_of_a_namespaces_routers_belongs_to_the_namespace():
    made = desired.peers_secret("chat", bytes(range(32)))
    assert (made["kind"], made["metadata"]["namespace"], made["metadata"]["name"]) == (
        "Secret",
        "chat",
        names.SECRET_PEERS,
    )
    assert "ownerReferences" not in made["metadata"]
    assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "promptgroup-operator"
    assert base64.b64decode(made["data"][names.KEY_PEERS]) == bytes(range(32))


FOREIGN = [
    {"metadata": {"labels": {names.LABEL_GROUP: "other"}}},
    {"metadata": {"labels": None, "annotations": None}},
    {"metadata": {"annotations": {names.ANNOTATION_FINGERPRINT: "0" * 32}}},
    {"metadata": None},
]


@pytest.mark.parametrize("template", FOREIGN)
def test_a_template_cannot_make_a_pod_another_revisions(template):
    metadata = pod_of(image="i", template=template)["metadata"]
    assert SELECTOR.items() <= metadata["labels"].items()
    assert metadata["annotations"][names.ANNOTATION_FINGERPRINT] == FINGERPRINT


def test_a_template_that_can_be_merged_is_no_problem():
    assert desired.template_problem(group(engine={"template": {"spec": {"containers": [{"name": "x"}]}}})) is None


def test_a_template_that_cannot_be_merged_is_a_problem_with_its_field():
    problem = desired.template_problem(group(engine={"template": {"spec": {"volumes": [{"emptyDir": {}}]}}}))
    assert problem.reason == "InvalidTemplate"
    assert problem.message.startswith("spec.engine.template: an item of volumes has no name")


def test_a_route_is_the_groups_and_says_what_the_contract_encodes():
    route = table.Group("chat", "support", "llama", "2026-11-03T11:00:00Z", ())
    made = desired.prompt_route(group(), route)
    assert (made["kind"], made["metadata"]["name"]) == ("PromptRoute", "support")
    assert made["metadata"]["labels"][names.LABEL_GROUP] == "support"
    assert made["spec"] == encode_group(route)


def test_the_prompt_is_kept_as_it_is():
    made = desired.prompt_object(group(), FINGERPRINT, Prompt(TEXT, "[1]"), "ConfigMap")
    assert made["data"] == {"system": TEXT, "tools": "[1]"}
    assert made["immutable"] is True
    assert "tools" not in desired.prompt_object(group(), FINGERPRINT, Prompt(TEXT), "ConfigMap")["data"]


def test_a_secret_prompt_is_encoded_and_nowhere_in_the_clear():
    text = "geheim: äöü"
    made = desired.prompt_object(group(), fingerprint(text), Prompt(text), "Secret")
    assert base64.b64decode(made["data"]["system"]).decode() == text
    assert text not in repr(made)


def drained(made):
    """The grace period of a Deployment's pods, and the hook's longest time."""
    spec = made["spec"]["template"]["spec"]
    return spec["terminationGracePeriodSeconds"], spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][9]


def test_the_grace_period_follows_from_the_drain_time():
    assert drained(deployment()) == (330, "300")
    assert drained(deployment(rollout={"drainTimeout": "1h"})) == (3630, "3600")
    assert drained(deployment(rollout={"drainTimeout": "300ms"})) == (35, "5")


def test_a_drain_time_that_alone_changes_replaces_no_engine():
    before = deployment()
    of = {"rollout": {"drainTimeout": "1h"}}
    assert deployment(live=before, **of)["spec"]["template"] == before["spec"]["template"]
    assert drained(deployment(live=before, engine={"args": ["--seed=1"]}, **of)) == (3630, "3600")
    before["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1  # somebody else's edit does not stand
    assert drained(deployment(live=before)) == (330, "300")


def test_a_deployment_that_says_nothing_of_its_drain_time_gets_the_groups():
    before = deployment()
    before["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 5}}}
    assert drained(deployment(live=before)) == (330, "300")


def test_a_template_decides_how_its_engine_leaves():
    own = {"lifecycle": {"preStop": {"sleep": {"seconds": 20}}}}
    made = pod_of(**container(**own))["spec"]
    assert made["containers"][0]["lifecycle"] == own["lifecycle"]
    assert made["terminationGracePeriodSeconds"] == 330
    short = {"template": {"spec": {"terminationGracePeriodSeconds": 60}}}
    assert drained(deployment(engine=short)) == (60, "55")


def test_an_engine_that_a_probe_has_given_up_on_is_not_waited_for():
    (made,) = pod_of()["spec"]["containers"]
    assert {made[probe]["terminationGracePeriodSeconds"] for probe in ("startupProbe", "livenessProbe")} == {30}
    assert "terminationGracePeriodSeconds" not in made["readinessProbe"]  # the API server refuses it there


def test_what_is_applied_stands_as_wanted():
    for made in (deployment(), desired.prompt_object(group(), FINGERPRINT, Prompt(TEXT), "ConfigMap")):
        assert not must_write(made, made)


def test_names_of_the_longest_group_fit_a_label():
    assert len(desired.name(group(name="x" * 50), FINGERPRINT)) <= 63


CREDENTIAL = {"name": "engine-key", "key": "key"}


def engine_container(template):
    return template["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("kind", "variable", "args"),
    [("vLLM", "VLLM_API_KEY", []), ("SGLang", "ENGINE_API_KEY", ["--api-key=$(ENGINE_API_KEY)"])],
)
def test_an_engine_is_started_with_the_key_that_it_asks_for_and_its_pods_say_where_it_is(kind, variable, args):
    template = pod_of(credentialFrom=CREDENTIAL, type=kind, args=["--mine"])
    reference = {"secretKeyRef": {"name": "engine-key", "key": "key"}}
    assert {"name": variable, "valueFrom": reference} in engine_container(template)["env"]
    assert [each for each in engine_container(template)["args"] if "api-key" in each] == args
    assert engine_container(template)["args"][-1] == "--mine"
    assert template["metadata"]["annotations"][names.ANNOTATION_CREDENTIAL] == "engine-key/key"
    assert names.ANNOTATION_CREDENTIAL not in pod_of(type=kind)["metadata"]["annotations"]


def test_an_engine_that_asks_for_no_key_is_given_none_and_others_are_told_where_it_is():
    template = pod_of(credentialFrom=CREDENTIAL, type="TensorRTLLM")
    assert all(each["name"] for each in engine_container(template).get("env", []))
    assert "engine-key" not in str(template["spec"])
    assert template["metadata"]["annotations"][names.ANNOTATION_CREDENTIAL] == "engine-key/key"


def test_engines_that_ask_for_different_keys_are_not_interchangeable():
    one, other = ({"credentialFrom": CREDENTIAL | {"name": name}} for name in ("one", "other"))
    assert len({desired.engine_settings(group(engine=engine)) for engine in (one, other, {})}) == 3


# --- KV tiers ----------------------------------------------------------------------------------------------

POOL = {"pool": {"type": "LMCache", "address": "kv:5555"}}
VOLUME = {"offload": {"memory": "8Gi", "claimName": "kv"}}


def test_tiers_come_after_the_operators_arguments_and_before_the_users():
    args = engine_container(deployment(engine={"args": ["--seed=1"]}, cache=POOL)["spec"]["template"])["args"]
    assert args[2:4] == ["--enable-prompt-tokens-details", "--shutdown-timeout=25"]
    assert args[4].startswith("--kv-transfer-config=")
    assert args[-1] == "--seed=1"


def test_an_engine_waits_for_its_pool_in_the_image_that_is_there_anyway():
    pod = deployment(cache=POOL)["spec"]["template"]["spec"]
    (gate,) = pod["initContainers"]
    (engine,) = pod["containers"]
    assert gate["image"] == engine["image"]
    assert gate["securityContext"] == engine["securityContext"]
    assert gate["command"][-2:] == ["kv", "5555"]


def test_a_volume_of_kv_is_mounted():
    pod = deployment(cache=VOLUME)["spec"]["template"]["spec"]
    assert {"name": "kv", "mountPath": "/var/cache/promptgroup"} in pod["containers"][0]["volumeMounts"]
    assert {"name": "kv", "persistentVolumeClaim": {"claimName": "kv"}} in pod["volumes"]


def test_memory_of_vllm_has_its_room_in_dev_shm_unless_the_template_mounts_another():
    pod = deployment(cache={"offload": {"memory": "8Gi"}})["spec"]["template"]["spec"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "9Gi"}} in pod["volumes"]
    hooks = pod["containers"][0]["lifecycle"]  # a container that starts again finds the volume as it was left
    assert hooks["postStart"]["exec"]["command"] == ["sh", "-c", "rm -f /dev/shm/vllm_offload_*"]
    assert "preStop" in hooks
    own = {"name": "mine", "mountPath": "/dev/shm"}
    pod = deployment(engine=container(volumeMounts=[own]), cache=VOLUME)["spec"]["template"]["spec"]
    assert [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == "/dev/shm"] == [own]
    assert "postStart" not in pod["containers"][0]["lifecycle"]  # others may keep theirs there
    assert "shm" not in {each["name"] for each in pod["volumes"]}
    plain = deployment(cache=POOL)["spec"]["template"]["spec"]
    assert "shm" not in {each["name"] for each in plain["volumes"]}


SHARED = {
    "by an argument": {"args": ["--tensor-parallel-size=2"]},
    "by the template's arguments": container(args=["-tp", "2"]),
    "by GPUs": {"resources": {"limits": {"nvidia.com/gpu": 2}}},
    "by the template's GPUs": container(resources={"limits": {"amd.com/gpu": "4"}}),
}


@pytest.mark.parametrize("case", SHARED)
def test_processes_on_several_gpus_have_shared_memory_unless_the_template_mounts_another(case):
    pod = deployment(engine=SHARED[case])["spec"]["template"]["spec"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    assert "postStart" not in pod["containers"][0]["lifecycle"]
    own = container(volumeMounts=[{"name": "mine", "mountPath": "/dev/shm"}])
    engine = {key: value for key, value in SHARED[case].items() if key != "template"} | own
    pod = deployment(engine=engine)["spec"]["template"]["spec"]
    assert "shm" not in {each["name"] for each in pod["volumes"]}


def test_an_engine_on_one_gpu_has_none():
    pod = deployment(engine={"resources": {"limits": {"nvidia.com/gpu": 1}}})["spec"]["template"]["spec"]
    assert "shm" not in {each["name"] for each in pod["volumes"]}


@pytest.mark.parametrize(
    "template",
    [
        {"spec": None},
        {"spec": "text"},
        {"spec": {"containers": None}},
        {"spec": {"containers": ["engine", {"name": "engine", "volumeMounts": None}]}},
        {"spec": {"containers": [{"name": "engine", "volumeMounts": ["/dev/shm"]}]}},
    ],
)
def test_a_template_of_another_form_mounts_nothing(template):
    assert not desired._mounts(template, "/dev/shm")


def test_variables_that_name_the_pods_address_come_after_it():
    cache = {"offload": {"memory": "8Gi"}, "pool": {"type": "Mooncake", "address": "kv:1"}}
    env = engine_container(deployment(engine={"type": "SGLang"}, cache=cache)["spec"]["template"])["env"]
    found = [each["name"] for each in env]
    assert found.index("POD_IP") < found.index("MOONCAKE_LOCAL_HOSTNAME")


def test_settings_of_tiers_are_added_to_the_engines_file():
    made = deployment(engine={"type": "TensorRTLLM"}, cache={"offload": {"memory": "1Gi"}})
    config = made["spec"]["template"]["metadata"]["annotations"][desired.ANNOTATION_CONFIG]
    assert config.splitlines() == [
        "return_perf_metrics: true",
        "enable_iter_perf_stats: true",
        "kv_cache_config: {host_cache_size: 1073741824}",
    ]


def test_a_template_that_takes_the_tiers_away_is_a_problem():
    replaced = group(cache=POOL, engine=container(args=["llama"]))
    assert "replaces the engine's arguments" in desired.cache_problem(replaced).message
    annotated = {"template": {"metadata": {"annotations": {desired.ANNOTATION_CONFIG: "x: 1"}}}}
    told = group(cache={"offload": {"memory": "1Gi"}}, engine={"type": "TensorRTLLM", **annotated})
    assert desired.ANNOTATION_CONFIG in desired.cache_problem(told).message
    assert desired.cache_problem(group(engine=container(args=["llama"]))) is None


def test_tiers_need_room_in_memory():
    limits = {"resources": {"limits": {"memory": "8Gi"}}}
    assert desired.cache_problem(group(cache=VOLUME, engine=limits)).reason == "InvalidCache"
    limits = {"resources": {"limits": {"memory": "9000Mi"}}}
    assert desired.cache_problem(group(cache=VOLUME, engine=limits)) is None


TLS = {"caFrom": {"configMapKeyRef": {"name": "engine-ca", "key": "ca.crt"}}, "serverName": "engines.chat.svc"}


@pytest.mark.parametrize("kind", ["vLLM", "SGLang"])
def test_an_engine_with_a_certificate_serves_tls_and_its_pods_say_how_it_is_verified(kind):
    template = pod_of(type=kind, tls=TLS | {"secretName": "engine-tls"}, args=["--mine"])
    container = engine_container(template)
    assert [each for each in container["args"] if "ssl" in each] == [
        "--ssl-certfile=/etc/promptgroup/tls/tls.crt",
        "--ssl-keyfile=/etc/promptgroup/tls/tls.key",
        "--enable-ssl-refresh",
    ]
    assert container["args"][-1] == "--mine"
    mount = {"name": "tls", "mountPath": "/etc/promptgroup/tls", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert {"name": "tls", "secret": {"secretName": "engine-tls", "defaultMode": 0o440}} in template["spec"]["volumes"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    told = template["metadata"]["annotations"][names.ANNOTATION_ENGINE_TLS]
    assert told == "ConfigMap/engine-ca/ca.crt/engines.chat.svc"


def test_an_engine_behind_something_else_that_serves_tls_gets_no_certificate():
    template = pod_of(type="TensorRTLLM", tls=TLS)
    container = engine_container(template)
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert not [each for each in container["args"] if "ssl" in each]
    assert "tls" not in [each["name"] for each in template["spec"]["volumes"]]


def test_an_engine_without_tls_has_none_of_it():
    template = pod_of()
    assert names.ANNOTATION_ENGINE_TLS not in template["metadata"]["annotations"]
    assert "scheme" not in engine_container(template)["readinessProbe"]["httpGet"]
