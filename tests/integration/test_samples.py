"""Each sample of `manifests/samples` that an engine alone can show comes up as it is written, and does what it says.

The engines are stand-ins under the names of the engines' images. Some samples are not brought up here, for what they
need is not on one machine: `keda` needs KEDA's operator and a Prometheus in the cluster; `mooncake` a store over RDMA
(its flags and environment are tested as rendered); `weights-volume` a storage class (kind only). How numbers of
replicas follow a load is in `test_sizing` and `test_autoscaler`, with windows of seconds instead of the samples' own.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_local import lab
from promptgroup_local.kubectl import Kubectl, wait_for
from support.externalmetric import external_metric
from support.load import sessions_by_name
from support.pools import pool_at

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
    objects = _as_written(file)
    for each in objects:
        if each["kind"] == "PromptGroup":
            each["spec"]["replicas"] = REPLICAS
    return objects


def _as_written(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((SAMPLES / f"{file}.yaml").read_text()))


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


def test_the_sample_of_claims_and_a_queue_gets_devices_by_claims(kube: Kubectl, operator: None) -> None:
    """The scheduler allocates what a driver would have announced. Kueue is not here: its label is on the pods."""
    made = sample("queue-and-claims")
    name = group_of(made)["metadata"]["name"]
    [node, *_] = [item["metadata"]["name"] for item in kube.list("nodes")]
    driver = "gpu.nvidia.com"
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    everywhere = kube.within("")
    announced: list[dict[str, Any]] = [
        _device_object("DeviceClass", driver, {"selectors": selectors}),
        _device_object("ResourceSlice", f"{node}-gpus", {
            "driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}],
        }),
    ]  # fmt: skip
    kube.apply(*made)
    try:
        everywhere.apply(*announced)
        kube.wait_warm(name, f"{REPLICAS}/{REPLICAS}")
        [pod] = lab.engine_pods(kube, name)
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
        [claim] = kube.list("resourceclaims.resource.k8s.io")
        [result] = claim["status"]["allocation"]["devices"]["results"]
        assert (result["driver"], result["device"]) == (driver, "gpu-0")
        assert [user["name"] for user in claim["status"]["reservedFor"]] == [pod["metadata"]["name"]]
    finally:
        for item in announced:
            everywhere.run("delete", item["kind"].lower(), item["metadata"]["name"], "--ignore-not-found")


def _device_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_the_sample_of_a_release_goes_through_its_steps_to_the_end(kube: Kubectl, operator: None) -> None:
    """The sample as it is, but for its times, and for how many requests its judge wants to see."""
    wanted = group_of(sample("release"))
    name, rollout = wanted["metadata"]["name"], wanted["spec"]["rollout"]
    steps = [each["weight"] for each in rollout["steps"]]
    for each in rollout["steps"]:
        each["pause"] = "5s"  # long enough to be seen by who polls
    rollout |= {"retireAfter": "5s", "judge": rollout["judge"] | {"minRequests": 10, "maxTtftRisePercent": 1000}}
    lab.install_router(kube)
    kube.apply(wanted)
    kube.wait_warm(name, f"{REPLICAS}/{REPLICAS}")
    wait_for(lambda: _routed(kube, name), "routers to know it")
    wait_for(lambda: _readable(kube, name), "routers to read its prompt")
    seen: list[list[int]] = []

    def promoted() -> bool | None:
        weights = _weights(kube, name)
        if weights not in seen:
            seen.append(weights)
        return True if weights == [100] else None

    with sessions_by_name(lab.router_url(kube), name, batch=12, turns=2, concurrency=4) as outcomes:
        wanted["spec"]["prompt"]["system"] += "You answer in the customer's language.\n"
        kube.apply(wanted)
        wait_for(lambda: _weights(kube, name) != [100] or None, "the release to begin")
        wait_for(promoted, "the new text to take over, and the old one to retire", lambda: seen, 180)
    assert all(sorted([weight, 100 - weight]) in seen for weight in steps), seen
    assert [each.error for each in outcomes if each.failed] == []


def test_the_samples_of_a_pool_of_sizing_and_of_an_autoscaler_show_what_they_are_for(
    kube: Kubectl, operator: None, tmp_path: Path
) -> None:
    sizing, (travel, autoscaler) = group_of(list(_as_written("sizing"))), _as_written("hpa")
    pooled = group_of(sample("pool"))
    with pool_at(0) as port, external_metric(kube, tmp_path, value=20):
        address = f"127.0.0.1:{port}"  # services have no data plane here
        pooled["spec"]["cache"]["pool"] |= {"address": address, "monitor": address}
        own = pooled["spec"]["engine"]["template"]["spec"]["containers"][0]
        own["env"] = [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]  # so that the GPU can be emptied
        kube.apply(sizing, travel, autoscaler, pooled)

        # pool: what the GPU has lost comes from the pool, and not from computing it again
        name = pooled["metadata"]["name"]
        kube.wait_warm(name, f"{REPLICAS}/{REPLICAS}")
        kube.wait_condition(name, "CachePoolReady", "True", "PoolReady")
        [pod] = lab.engine_pods(kube, name)
        engine, found = lab.engine_url(pod), []
        with urllib3.PoolManager(retries=False, timeout=20) as http:
            reset = f"{engine}/reset_prefix_cache"
            wait_for(lambda: http.request("POST", reset).json()["success"] or None, "the GPU to be emptied")
            messages = [{"role": "system", "content": pooled["spec"]["prompt"]["system"]}]
            body = {"model": pooled["spec"]["model"], "messages": [*messages, {"role": "user", "content": "hi"}]}
            answer = http.request("POST", f"{engine}/v1/chat/completions", json=body | {"max_tokens": 1}).json()
            page = http.request("GET", f"{engine}/metrics").data.decode()
            found = [line for line in page.splitlines() if "external_prefix_cache_hits" in line and line[0] != "#"]
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert any(float(line.rpartition(" ")[2]) > 0 for line in found), found

        # hpa: 20 requests in flight at 8 each are three replicas
        scaled = travel["metadata"]["name"]
        wait_for(
            lambda: True if _warm(kube, scaled) == "3/3" else None,
            "three replicas",
            lambda: (kube.get("horizontalpodautoscaler", scaled) or {}).get("status"),
        )
        # sizing: at least two, whatever the load
        kube.wait_warm(sizing["metadata"]["name"], "2/2")


def _warm(kube: Kubectl, name: str) -> str:
    return str((kube.get("promptgroup", name) or {}).get("status", {}).get("warm", ""))


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
