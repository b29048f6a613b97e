"""Deployments as the projects make them become hosts that the API server takes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.adoption import handover, host, report, workload
from promptgroup_cli.adoption.decision import AdoptionError
from promptgroup_cli.rehearsal import manifest
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import PromptRef
from promptgroup_operator.plan import desired

FOLDER = Path(__file__).parent / "deployments"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
NOW = datetime(2026, 11, 27, tzinfo=UTC)


def adopted(name):
    documents = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    return host.adopt(workload.find(documents)), documents


def pods(name):
    """The engine's container and the pod that the operator makes of the host."""
    found, documents = adopted(name)
    text = report.text(found, list(handover.steps(found, "host.yaml", "chat", handover.services(found, documents))))
    wanted = manifest.read_group(text, "chat", NOW)
    assert all("CredentialNotFound" in each for each in wanted.warnings)
    assert not wanted.group.spec.has_prompt
    prompt = PromptRef("ConfigMap", "x")
    made = desired.deployment(wanted.group, Fingerprint("0" * 32), 1, prompt, records={}, template=None, live=None)
    pod = made["spec"]["template"]["spec"]
    (container,) = [each for each in pod["containers"] if each["name"] == "engine"]
    return container, pod


@pytest.mark.parametrize("name", NAMES)
def test_what_projects_deploy_becomes_a_host_with_one_container(name):
    container, pod = pods(name)
    assert len(pod["containers"]) == 1
    assert container["resources"]["limits"]


def test_vllm_by_a_shell_has_its_arguments_and_its_weights():
    container, pod = pods("vllm")
    words = [*container["command"], *container["args"]]
    assert words[:3] == ["vllm", "serve", "mistralai/Mistral-7B-Instruct-v0.3"]
    assert words[-2:] == ["--max_num_batched_tokens", "1024"]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert mounts["/home/engine/.cache/huggingface"] == "cache-volume"
    assert "HF_TOKEN" in [each["name"] for each in container["env"]]
    assert pod["securityContext"]["runAsUser"] == desired.ENGINE_USER


def test_sglang_serves_its_folder_under_its_name():
    container, pod = pods("sglang")
    assert "command" not in container
    assert container["args"][:3] == ["python3", "-m", "sglang.launch_server"]
    assert container["args"].index("--model-path=/models/qwen3-32b") > container["args"].index("--model-path=qwen3-32b")
    assert adopted("sglang")[0].manifest["spec"]["rollout"] == {"maxSurge": 0}
    assert pod["nodeSelector"] == {"gpu": "h100"}


def test_a_stack_keeps_its_command_and_asks_for_its_key():
    container, _ = pods("production-stack")
    assert container["command"] == ["/opt/venv/bin/vllm", "serve"]
    assert "--no-enable-prefix-caching" not in container["args"]
    key = next(each for each in container["env"] if each["name"] == "VLLM_API_KEY")
    assert key["valueFrom"]["secretKeyRef"] == {"name": "stack-secrets", "key": "vllmApiKey"}


def test_kserves_model_is_named_where_its_webhook_would_bring_it():
    container, _ = pods("kserve")
    assert container["args"][0] == "Qwen/Qwen3-8B"
    assert "--served-model-name=qwen" in container["args"]
    assert handover.owner(adopted("kserve")[0]) == "InferenceService qwen"


def test_llm_ds_engine_has_its_own_port_and_no_proxy():
    container, pod = pods("llm-d")
    assert "initContainers" not in pod
    assert "--port=8200" in container["args"]
    assert adopted("llm-d")[0].manifest["spec"]["modelAliases"] == ["qwen3"]
    assert handover.owner(adopted("llm-d")[0]) == "Helm release ms"


def test_a_name_that_no_group_may_have_is_refused():
    found = {"kind": "Deployment", "metadata": {"name": "a" * 60}, "spec": {"template": {"spec": {"containers": [{}]}}}}
    with pytest.raises(AdoptionError, match="--name"):
        host.adopt(workload.find([found]))


def test_a_volume_that_kserves_webhook_brings_is_told():
    container = {"name": "k", "command": ["vllm", "serve", "/mnt/models"]}
    template = {"metadata": {"annotations": {host._SOURCE: "pvc://weights/x"}}, "spec": {"containers": [container]}}
    found = host.adopt(
        workload.find([{"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": template}}])
    )
    assert any("mount the volume" in decision.why for decision in found.decisions)


FIELDS = frozenset(
    {
        *("spec", "template", "metadata", "containers", "name", "env", "volumeMounts", "resources", "limits", "args"),
        *("command", "ports", "initContainers", "annotations", "labels", "securityContext", "volumes", "valueFrom"),
    }
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(FIELDS)), inner, max_size=4),
    max_leaves=20,
)


@given(pod=VALUES, container=VALUES, metadata=VALUES)
def test_whatever_a_file_holds_it_is_adopted_or_refused(pod, container, metadata):
    whole = {**(container if isinstance(container, dict) else {}), "command": ["vllm", "serve", "m"]}
    spec = {**(pod if isinstance(pod, dict) else {}), "containers": [whole]}
    document = {
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"template": {"metadata": metadata, "spec": spec}},
    }
    try:
        found = host.adopt(workload.find([document]))
    except AdoptionError:
        return
    report.document(found, list(handover.steps(found, "f", "", handover.services(found, [document]))))
