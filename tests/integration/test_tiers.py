"""KV tiers behind stand-in engines: counted to the token, told apart from the GPU, and missed by nobody."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.ports import free_ports
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.world.snapshot import ContainerId
from support.groups import PROMPTS, group
from support.operators import operator_process, stopped
from support.pools import pool_at

pytestmark = pytest.mark.integration

http = urllib3.PoolManager(retries=False, timeout=20)
MEMORY = {"offload": {"memory": "1Gi"}}
SMALL = {"vLLM": ("--num-gpu-blocks-override=80",), "SGLang": ("--page-size=16", "--max-total-tokens=1280")}
"""GPUs that hold one prompt and little else."""


@pytest.fixture(autouse=True)
def _no_open_connections() -> Iterator[None]:
    yield
    http.clear()


def used(pod: dict[str, Any], prompt: str, question: str) -> tuple[int, int]:
    """Prompt tokens of a request to an engine, and those of them that were cached."""
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": question}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 1}
    usage = http.request("POST", f"{lab.engine_url(pod)}/v1/chat/completions", json=body).json()["usage"]
    return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def proof(kube: Kubectl, name: str) -> dict[str, Any]:
    conditions = kube.get("pod", name)["status"]["conditions"]
    return next(each for each in conditions if each["type"] == names.CONDITION_PREFIX_WARM)


@pytest.mark.parametrize("engine", SMALL)
def test_what_a_tier_brought_is_counted_and_told_to_the_token(
    engine: str, cluster: LocalCluster, kube: Kubectl, no_operator: None
) -> None:
    wanted = group("tiered", replicas=1, args=SMALL[engine], cache=MEMORY)
    wanted["spec"]["engine"]["type"] = engine
    with operator_process(cluster, kube.namespace) as (operator, _):
        kube.apply(wanted)
        kube.wait_warm("tiered", "1/1")
        (pod,) = lab.engine_pods(kube, "tiered")
        assert "KV tier" not in proof(kube, pod["metadata"]["name"])["message"]
        with stopped(operator):  # it would look after a prefix that others press, and the engine would count that
            asked_to_the_token(pod, engine)

        def shares() -> dict[str, Any] | None:
            found: dict[str, Any] = kube.get("promptgroup", "tiered")["status"]["cache"]
            return found if "tierHitRate" in found else None

        found = wait_for(shares, "hit rates by tier")
    assert [each["tier"] for each in found["tiers"]] == ["GPU", "Memory"]
    assert found["tiers"][1]["capacity"] == "1Gi"
    assert int(found["tierHitRate"][:-1]) > 0
    assert found["tiers"][1]["hitRate"] == found["tierHitRate"]  # by the engine's word, which is its memory


def asked_to_the_token(pod: dict[str, Any], engine: str) -> None:
    """Ask an engine for more than its GPU holds; what it counts is what the answers say."""
    engines, rates, container = EngineClient(), EngineHistory(), ContainerId("c")
    dialect = next(each for kind, each in DIALECTS.items() if kind.value == engine)
    address = lab.engine_url(pod).removeprefix("http://")
    # what the operator asked for before may still run
    before = wait_for(lambda: None if (found := engines.read(address, dialect)).busy else found, "the engine to rest")
    rates.add(container, before, datetime.now(UTC))
    asked = [used(pod, PROMPTS[letter], f"what is rule {turn}?") for turn in range(3) for letter in "ab"]
    after = engines.read(address, dialect)
    rates.add(container, after, datetime.now(UTC))
    engines.close()
    prompt, cached = (sum(column) for column in zip(*asked, strict=True))
    assert (after.queries - before.queries, after.hits - before.hits) == (prompt, cached)
    brought = after.tiered - before.tiered
    assert brought > 0
    assert rates.rates([container]) == (cached / prompt, brought / prompt)


def test_a_prefix_that_only_the_tier_has_left_is_told_as_lost_by_the_gpu(
    cluster: LocalCluster, kube: Kubectl, crds: None, no_operator: None
) -> None:
    with operator_process(cluster, kube.namespace, "--refresh-seconds=1"):
        kube.apply(group("copied", replicas=1, cache=MEMORY, env={"VLLM_SERVER_DEV_MODE": "1"}))
        kube.wait_warm("copied", "1/1")
        (pod,) = lab.engine_pods(kube, "copied")
        reset = f"{lab.engine_url(pod)}/reset_prefix_cache"
        wait_for(
            lambda: http.request("POST", reset).json()["success"] or None,
            "the cache to be reset: an engine refuses while a request runs",
        )

        def lost() -> dict[str, Any] | None:
            found = proof(kube, pod["metadata"]["name"])
            return found if found["reason"] == "PrefixEvicted" else None

        found = wait_for(lost, "the loss", lambda: proof(kube, pod["metadata"]["name"]))
        assert "0 of" in found["message"]
        assert "copied from a KV tier" in found["message"]
        assert found["status"] == "True"


def test_engines_wait_for_their_pool_and_serve_on_without_it(kube: Kubectl, operator: None) -> None:
    (port,) = free_ports(1)  # that it has again afterwards: the kernel gives none of these to a connection meanwhile
    with pool_at(port):
        address = f"127.0.0.1:{port}"
        kube.apply(
            group("pooled", replicas=1, cache={"pool": {"type": "LMCache", "address": address, "monitor": address}})
        )
        kube.wait_warm("pooled", "1/1")
        kube.wait_condition("pooled", "CachePoolReady", "True", "PoolReady")
        (pod,) = lab.engine_pods(kube, "pooled")
        assert pod["status"]["initContainerStatuses"][0]["name"] == "await-pool"
    found = kube.wait_condition("pooled", "CachePoolReady", "False", "PoolUnreachable")
    assert "engines continue to serve" in found["message"]
    assert used(pod, PROMPTS["a"], "are you there?")[1] > 0
    kube.wait_condition("pooled", "Ready", "True", "Warm")
    kube.scale("promptgroup", "pooled", 2)

    def waits() -> str | None:
        pods = lab.engine_pods(kube, "pooled")
        logs = [kube.run("logs", each["metadata"]["name"], "-c", "await-pool", check=False).stdout for each in pods]
        return next((each for each in logs if "is away" in each), None)

    assert address in wait_for(waits, "the gate to say for what it waits")
    with pool_at(port):
        kube.wait_warm("pooled", "2/2")
        kube.wait_condition("pooled", "CachePoolReady", "True", "PoolReady")
