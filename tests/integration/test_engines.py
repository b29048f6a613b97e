"""Groups of the other engines, on stand-ins that are started with their arguments and speak their words."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.engine import EngineClient
from support.groups import PROMPTS, group
from support.operators import operator_process
from support.routed import routers_know

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True)
class Engine:
    """How a group of one engine is made, and how one whose prefix caching is off."""

    step: int
    """Granularity of its hits."""
    off: str
    """What the group is told to remove."""
    args: tuple[str, ...] = ()
    off_args: tuple[str, ...] = ()
    off_config: dict[str, str] = field(default_factory=dict)
    """Annotations of its pods."""


ENGINES = {
    "SGLang": Engine(16, "--disable-radix-cache", ("--page-size=16",), ("--disable-radix-cache",)),
    "TensorRTLLM": Engine(
        32,
        "kv_cache_config.enable_block_reuse: false",
        off_config={
            "promptgroup.dev/engine-config": "return_perf_metrics: true\nenable_iter_perf_stats: true\n"
            "kv_cache_config: {enable_block_reuse: false}\n"
        },
    ),
}


def made(name: str, kind: str, args: tuple[str, ...], **fields: Any) -> dict[str, Any]:
    found = group(name, args=args, **fields)
    found["spec"]["engine"]["type"] = kind
    return found


def warm_condition(pod: dict[str, Any]) -> dict[str, str]:
    conditions = pod["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == names.CONDITION_PREFIX_WARM), {})


@pytest.mark.parametrize("kind", ENGINES)
def test_a_group_comes_up_warm_with_proof_its_hit_rate_is_seen_and_sizing_has_its_inputs(
    kube: Kubectl, operator: None, kind: str
) -> None:
    lab.install_router(kube)
    wanted = made("other", kind, ENGINES[kind].args)
    del wanted["spec"]["replicas"]
    wanted["spec"]["sizing"] = {"minReplicas": 2, "maxReplicas": 3}
    kube.apply(wanted)
    kube.wait_warm("other", "2/2")
    routers_know(kube, "other")
    for pod in lab.engine_pods(kube, "other"):
        found = warm_condition(pod)
        assert found["reason"] == "PrefixCached", found
        cached = int(found["message"].split()[0])
        assert cached % ENGINES[kind].step == 0
        assert cached >= 0.9 * len(PROMPTS["a"]) / 4, found
    numbers = itertools.count()

    def active() -> dict[str, Any] | None:
        ask(lab.router_url(kube), next(numbers))
        status = kube.get("promptgroup", "other")["status"]
        found = {each["type"]: each for each in status["conditions"]}["ScalingActive"]
        return status if found["status"] == "True" and float(status.get("hitRate", "0%").rstrip("%")) > 50 else None

    status = wait_for(active, "a load", lambda: kube.get("promptgroup", "other")["status"], seconds=120)
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    made_of = kube.get("deployment", f"other-{status['revision']}") or {}
    # it was made, and lost the record of a release that served nothing yet: what the API server fills in is no drift
    assert made_of["metadata"]["generation"] == 2


def ask(url: str, number: int) -> None:
    """A request that brings the declared prompt."""
    messages = [{"role": "system", "content": PROMPTS["a"]}, {"role": "user", "content": f"question {number}?"}]
    body = {"model": "tiny", "max_tokens": 4, "messages": messages}
    assert urllib3.request("POST", f"{url}/v1/chat/completions", json=body, timeout=10).status == 200


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_without_prefix_caching_is_not_warm_and_the_group_says_what_to_remove(
    kube: Kubectl, operator: None, kind: str
) -> None:
    engine = ENGINES[kind]
    wanted = made("off", kind, (*engine.args, *engine.off_args), replicas=1)
    wanted["spec"]["engine"]["template"]["metadata"] = {"annotations": engine.off_config}
    kube.apply(wanted)
    kube.wait_condition("off", "PrefixWarm", "False", "PrefixCachingDisabled")
    (pod,) = lab.engine_pods(kube, "off")
    assert f"remove {engine.off} from spec.engine" in warm_condition(pod)["message"]


def test_a_flushed_sglang_is_warmed_again(kube: Kubectl, cluster: LocalCluster, no_operator: None) -> None:
    with operator_process(cluster, kube.namespace, "--refresh-seconds=1"):
        kube.apply(made("flushed", "SGLang", ENGINES["SGLang"].args, replicas=1))
        kube.wait_warm("flushed", "1/1")
        (pod,) = lab.engine_pods(kube, "flushed")
        url = lab.engine_url(pod)
        engines = EngineClient()
        assert engines.read(url.removeprefix("http://"), SGLANG).caching is None  # it is asked elsewhere
        engines.close()
        wait_for(
            lambda: True if urllib3.request("POST", f"{url}/flush_cache", timeout=5).status == 200 else None,
            "the cache to be flushed: an engine refuses while a request runs",
        )

        def told() -> dict[str, str] | None:
            found = warm_condition(kube.get("pod", pod["metadata"]["name"]))
            return found if found["reason"] == "PrefixEvicted" else None

        assert "without pressure" in wait_for(told, "the loss to be told")["message"]
