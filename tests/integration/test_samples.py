"""Each sample of `manifests/samples` that an engine alone can show comes up as it is written, and does what it says.

The engines are stand-ins under the names of the engines' images. What needs more has tests of its own: sizing
(`test_sizing`), an autoscaler (`test_autoscaler`), a pool (`test_tiers`, `test_real_pool`), volumes (kind only).
"""

import json
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_local import lab
from promptgroup_local.kubectl import Kubectl, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
ENGINES = (
    "first",
    "support",
    "gated-model",
    "prompt-from-secret",
    "response-cache",
    "offload",
    "sglang",
    "tensorrt-llm",
)
"""Files with groups that come up on stand-ins."""
TOKEN = "hf_of_nobody"
REPLICAS = 1
"""Replicas of a sample here: processes of one machine."""


def sample(file: str) -> list[dict[str, Any]]:
    """Objects of a sample, with as many replicas as this machine bears."""
    objects = list(yaml.safe_load_all((SAMPLES / f"{file}.yaml").read_text()))
    for each in objects:
        if each["kind"] == "PromptGroup":
            each["spec"]["replicas"] = REPLICAS
    return objects


def group_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = [each for each in objects if each["kind"] == "PromptGroup"]
    return found


def ask(kube: Kubectl, group: str, question: str) -> urllib3.BaseHTTPResponse:
    """Ask a group by its name, through the router."""
    answer = _send(kube, group, question)
    assert answer.status == 200, answer.data
    return answer


def test_samples_come_up_as_they_are_written_and_show_their_features(kube: Kubectl, operator: None) -> None:
    kube.run("create", "secret", "generic", "hugging-face", f"--from-literal=token={TOKEN}")
    samples = {file: sample(file) for file in ENGINES}
    for objects in samples.values():
        kube.apply(*objects)
    lab.install_router(kube)
    names = {file: group_of(objects)["metadata"]["name"] for file, objects in samples.items()}
    for name in names.values():
        kube.wait_warm(name, f"{REPLICAS}/{REPLICAS}")
    for name in names.values():
        wait_for(lambda name=name: _routed(kube, name), f"routers to know {name}")
        # a router learns of a group before it has read the group's prompt, and asks clients to retry until then
        first = wait_for(lambda name=name: _readable(kube, name), f"routers to read the prompt of {name}")
        assert first.status == 200, first.data

    # response-cache: what was asked before is not computed again
    cached = names["response-cache"]
    assert ask(kube, cached, "Who pays?").headers["cache-status"] == "promptgroup; fwd=miss"
    assert ask(kube, cached, "Who pays?").headers["cache-status"].startswith("promptgroup; hit")

    # prompt-from-secret: its text is in Secrets and nowhere else
    hidden = names["prompt-from-secret"]
    route = kube.get("promptroute", hidden) or {}
    assert {each["promptFrom"]["kind"] for each in route["spec"]["revisions"]} == {"Secret"}
    shown = kube.run("get", "promptgroups,promptroutes,configmaps,deployments,events", "-o", "json").stdout
    assert "underwriting assistant" not in shown

    # offload, sglang: the tier behind the GPU is on, and named with its size
    for file in ("offload", "sglang"):
        status = (kube.get("promptgroup", names[file]) or {})["status"]["cache"]
        assert {each["tier"]: each.get("capacity") for each in status["tiers"]}["Memory"] == "32Gi", status

    # gated-model: the engine has the token, by reference
    [pod] = lab.engine_pods(kube, names["gated-model"])
    [variable] = [each for each in pod["spec"]["containers"][0]["env"] if each["name"] == "HF_TOKEN"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "hugging-face", "key": "token"}
    assert TOKEN not in json.dumps(pod)


def test_the_sample_of_a_release_gives_a_new_text_its_first_share(kube: Kubectl, operator: None) -> None:
    wanted = group_of(sample("release"))
    name = wanted["metadata"]["name"]
    kube.apply(wanted)
    kube.wait_warm(name, f"{REPLICAS}/{REPLICAS}")
    first = wanted["spec"]["rollout"]["steps"][0]["weight"]
    wanted["spec"]["prompt"]["system"] += "You answer in the customer's language.\n"
    kube.apply(wanted)
    found = wait_for(
        lambda: True if _weights(kube, name) == sorted([first, 100 - first]) else None,
        "the first step",
        lambda: _weights(kube, name),
    )
    assert found


def _routed(kube: Kubectl, name: str) -> bool | None:
    found = kube.condition(name, "RouterProgrammed")
    return True if found.get("status") == "True" else None


def _readable(kube: Kubectl, name: str) -> urllib3.BaseHTTPResponse | None:
    """Return the answer of a group, or None while the router has not read its prompt."""
    answer = _send(kube, name, "What do you do?")
    unread = answer.status == 503 and answer.json()["error"]["code"] == "prompt_not_available"
    return None if unread else answer


def _send(kube: Kubectl, group: str, question: str) -> urllib3.BaseHTTPResponse:
    body = {"model": group, "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 4}
    with urllib3.PoolManager(retries=False, timeout=20) as http:
        return http.request("POST", f"{lab.router_url(kube)}/v1/chat/completions", json=body)


def _weights(kube: Kubectl, name: str) -> list[int]:
    route = kube.get("promptroute", name) or {"spec": {"revisions": []}}
    return sorted(each["weight"] for each in route["spec"]["revisions"])
