"""README: explained, and sized by what the caches do. A real Prometheus scrapes it, and its alerts fire."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, pods, prompt
from harness.images import Images
from harness.monitoring import Prometheus, prometheus
from promptgroup_local.kubectl import Kubectl, wait_for
from support.gotools import MissingToolError, program

NAME, DRIFTS = "sized", "drifts"
SMALL = ("--num-gpu-blocks-override=512",)
"""8,192 tokens of KV cache, of which 1,300 are the prompt's."""
QUICK = {"STANDIN_PREFILL_TOKENS_PER_SECOND": "20000", "STANDIN_STEP_MS": "5"}
"""Engines that are never short of time, on a machine that plays four nodes: what is missing is room."""
POOL = {"sharing": "Pool"}
"""A group that serves prompts, too, which no group declares."""
HELD = "5s"
SECONDS = 240.0
"""Longest wait for a number of replicas: readings of a minute, then windows and a drain."""


def sized(images: Images, most: int) -> dict[str, object]:
    sizing = {
        "minReplicas": 1,
        "maxReplicas": most,
        "behavior": {
            "scaleDown": {
                "stabilizationWindowSeconds": 15,
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
            }
        },
    }
    made = group(NAME, images, prompt("a"), args=SMALL, env=QUICK, sizing=sizing)
    del made["spec"]["replicas"]
    return made


@pytest.fixture(scope="module")
def watched(cluster: Cluster, images: Images, kubectl: Kubectl) -> Iterator[Prometheus]:
    try:
        path = program("prometheus")
    except MissingToolError as missing:
        pytest.skip(f"NO PROMETHEUS HERE: {missing}")
    with prometheus(cluster, images, path, HELD) as server:
        yield server


def wanted(kubectl: Kubectl) -> int:
    status = (kubectl.get("promptgroup", NAME) or {}).get("status", {})
    return int(status.get("warm", "0/0").partition("/")[2])


def effective(kubectl: Kubectl, name: str) -> str:
    return str(kubectl.condition(name, "CacheEffective").get("reason", ""))


def told(kubectl: Kubectl) -> object:
    return [(kubectl.get("promptgroup", name) or {}).get("status") for name in (NAME, DRIFTS)]


def test_a_small_cache_is_told_grows_and_shrinks_and_drift_is_told_and_alerts_fire(
    cluster: Cluster, kubectl: Kubectl, images: Images, watched: Prometheus
) -> None:
    def until(probe: object, subject: str) -> None:
        assert callable(probe)
        wait_for(lambda: True if probe() else None, subject, lambda: told(kubectl), seconds=SECONDS)

    kubectl.apply(sized(images, 1), group(DRIFTS, images, prompt("b"), replicas=1, env=QUICK, routing=POOL))
    kubectl.wait_warm(NAME, "1/1")
    kubectl.wait_warm(DRIFTS, "1/1")
    watched.aim()
    url = service(kubectl.namespace)
    plans = {
        "many": Plan((url,), NAME, at_once=24, last=8, pause=6.0, tokens=16, seed=1),
        "declared": Plan((url,), DRIFTS, at_once=1, last=2, pause=1.0, tokens=8, seed=2),
        "departing": Plan((url,), system=prompt("b"), dated=True, at_once=4, last=2, pause=1.0, tokens=8, seed=3),
    }
    with ExitStack() as stack:
        for name, plan in plans.items():
            stack.enter_context(clients(cluster, images, kubectl, DRIFTS if name != "many" else NAME, plan))
        until(lambda: effective(kubectl, NAME) == "Thrashing", "the thrash to be told")
        until(lambda: effective(kubectl, DRIFTS) == "PromptDrift", "the drift to be told")
        assert "differ from the declared prompt from byte 0" in kubectl.condition(DRIFTS, "CacheEffective")["message"]
        expected = {("PromptGroupThrashing", NAME), ("PromptGroupPromptDrift", DRIFTS)}
        until(lambda: expected <= watched.firing(), "both alerts to fire")
        running = watched.ask(f'vllm:num_requests_running{{namespace="{kubectl.namespace}"}}')
        assert {series["metric"]["pod"] for series in running} == {
            pod["metadata"]["name"] for name in (NAME, DRIFTS) for pod in pods(kubectl, name)
        }
        assert wanted(kubectl) == 1
        kubectl.apply(sized(images, 3))
        until(lambda: len(pods(kubectl, NAME)) == wanted(kubectl) > 1, "more replicas")
    until(lambda: len(pods(kubectl, NAME)) == wanted(kubectl) == 1, "one replica again")
