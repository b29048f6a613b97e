"""Warmth that is lost is noticed, made again and told, on stand-in engines whose caches forget."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_contract.table import Prompt
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_operator.engines.dialects.vllm import VLLM
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.world.load import PERIOD
from support.atrest import wait_unwritten
from support.groups import PROMPTS, group
from support.operators import operator_process

pytestmark = pytest.mark.integration

pool = urllib3.PoolManager(retries=False, timeout=20)


@pytest.fixture(autouse=True)
def _no_open_connections() -> Iterator[None]:
    yield
    pool.clear()


@contextmanager
def touching(cluster: LocalCluster, kube: Kubectl) -> Iterator[None]:
    """An operator of the namespace that touches replicas every few seconds."""
    with operator_process(cluster, kube.namespace, "--refresh-seconds=1"):
        yield


def warm_condition(kube: Kubectl, name: str) -> dict:
    conditions = kube.get("pod", name)["status"]["conditions"]
    return next(each for each in conditions if each["type"] == names.CONDITION_PREFIX_WARM)


def told(kube: Kubectl, name: str, reason: str) -> dict:
    """Wait until the pod's condition has the reason."""

    def holds() -> dict | None:
        found = warm_condition(kube, name)
        return found if found["reason"] == reason else None

    return wait_for(holds, f"{reason} on {name}", lambda: warm_condition(kube, name))


def counted(pod: dict, name: str, source: str) -> float:
    """The stand-in's own counter of requests from clients, or from the operator."""
    page = pool.request("GET", f"{lab.engine_url(pod)}/metrics").data.decode()
    line = next(line for line in page.splitlines() if line.startswith(f'{name}_total{{source="{source}"}}'))
    return float(line.split()[-1])


def ask(pod: dict, system: str, user: str = "hello") -> int:
    """A client's request; returns the prompt tokens that were in cache."""
    return used(pod, system, user)[1]


def used(pod: dict, system: str, user: str) -> tuple[int, int]:
    """A client's request; returns its prompt tokens, and those that were in cache."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 4}
    answer = pool.request("POST", f"{lab.engine_url(pod)}/v1/chat/completions", json=body)
    assert answer.status == 200
    usage = answer.json()["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def events(kube: Kubectl, reason: str) -> list[dict]:
    return [each for each in kube.list("events") if each["reason"] == reason]


def versions(kube: Kubectl) -> dict[str, str]:
    kinds = "promptgroups,promptroutes,deployments,pods,configmaps,secrets,events"
    return {
        f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in kube.list(kinds)
    }


def test_touches_that_find_the_prefix_write_nothing(kube: Kubectl, cluster: LocalCluster, no_operator: None) -> None:
    with touching(cluster, kube):
        kube.apply(group("calm", replicas=2))
        kube.wait_warm("calm", "2/2")
        kube.wait_condition("calm", "Progressing", "False")
        kube.wait_condition("calm", "CacheEffective", "Unknown")
        pods = lab.engine_pods(kube, "calm")

        def touched() -> None:
            """Wait until each was asked twice since."""
            sent = [counted(pod, "standin_requests", "warmup") for pod in pods]
            touches = lambda: [  # noqa: E731
                counted(pod, "standin_requests", "warmup") - before for pod, before in zip(pods, sent, strict=True)
            ]
            wait_for(lambda: min(touches()) >= 2 or None, "two touches of each", touches)

        wait_unwritten(lambda: versions(kube), touched, "touches that write nothing")
        for pod in pods:
            assert counted(pod, "standin_cold_prefix_requests", "warmup") == 1  # the warm-up itself


def test_a_cache_that_was_reset_is_warmed_again_and_told_of(
    kube: Kubectl, cluster: LocalCluster, no_operator: None
) -> None:
    with touching(cluster, kube):
        kube.apply(group("reset", replicas=2, env={"VLLM_SERVER_DEV_MODE": "1"}))
        kube.wait_warm("reset", "2/2")
        kube.wait_condition("reset", "Progressing", "False")
        kube.rolled_out(f"reset-{(kube.get('promptgroup', 'reset') or {})['status']['revision']}")
        pod, other = lab.engine_pods(kube, "reset")
        name = pod["metadata"]["name"]
        before = {key: version for key, version in versions(kube).items() if key.startswith(("PromptRoute", "Deploy"))}
        since = warm_condition(kube, name)["lastTransitionTime"]
        wait_for(
            lambda: pool.request("POST", f"{lab.engine_url(pod)}/reset_prefix_cache").json()["success"] or None,
            "the cache to be reset: an engine refuses while a request runs",
        )
        condition = told(kube, name, "PrefixEvicted")
        assert "without pressure" in condition["message"]
        # in service throughout: routes, Deployment and the time of its warmth are as before
        assert (condition["status"], condition["lastTransitionTime"]) == ("True", since)
        assert before.items() <= versions(kube).items()
        assert ask(pod, PROMPTS["a"]) >= 0.9 * len(PROMPTS["a"]) / 4
        assert counted(pod, "standin_cold_prefix_requests", "client") == 0
        kube.wait_condition("reset", "PrefixWarm", "True", "PrefixEvicted")
        assert kube.condition("reset", "Ready")["status"] == "True"
        (event,) = wait_for(lambda: events(kube, "PrefixEvicted") or None, "the event")
        assert event["type"] == "Normal"
        assert warm_condition(kube, other["metadata"]["name"])["reason"] == "PrefixCached"


def test_a_prefix_that_is_evicted_again_and_again_is_told_as_a_cache_too_small(
    kube: Kubectl, cluster: LocalCluster, no_operator: None
) -> None:
    with touching(cluster, kube):
        kube.apply(group("pressed", replicas=1, args=("--num-gpu-blocks-override=128", "--block-size=16")))
        kube.wait_warm("pressed", "1/1")
        (pod,) = lab.engine_pods(kube, "pressed")
        name = pod["metadata"]["name"]

        def presses(reason: str) -> dict | None:
            """Fill the cache with other prompts, after which the prefix cannot be there, until a loss is told so.

            It looks after each of them: on a slow machine two losses may be found while all of them are asked.
            """
            for letter in "bcdefgh":
                ask(pod, PROMPTS[letter])
                found = warm_condition(kube, name)
                if found["reason"] == reason:
                    return found
            return None

        first = wait_for(lambda: presses("PrefixEvicted"), "the first loss", lambda: warm_condition(kube, name))
        assert "other requests evicted the rest" in first["message"]
        again = wait_for(
            lambda: presses("PrefixEvictedUnderPressure"), "the second loss", lambda: warm_condition(kube, name)
        )
        assert "too small" in again["message"]
        assert again["status"] == "True"
        kube.wait_condition("pressed", "PrefixWarm", "True", "PrefixEvictedUnderPressure")
        (event,) = wait_for(lambda: events(kube, "PrefixEvictedUnderPressure") or None, "the event")
        assert event["type"] == "Warning"
        kube.wait_warm("pressed", "1/1")


def test_hit_rates_are_the_clients_to_the_token_whatever_the_operator_sends_meanwhile(
    kube: Kubectl, operator: None
) -> None:
    kube.apply(group("exact", replicas=1))
    kube.wait_warm("exact", "1/1")
    (pod,) = lab.engine_pods(kube, "exact")
    engines, rates, now = EngineClient(), EngineHistory(), datetime(2026, 11, 3, tzinfo=UTC)
    address = lab.engine_url(pod).removeprefix("http://")
    prefix = Prompt(PROMPTS["a"])
    rates.add("c", engines.read(address, VLLM), now)
    prompt_tokens = cached_tokens = 0
    for number in range(5):
        tokens, cached = used(pod, PROMPTS["ab"[number % 2]], f"what is rule {number}?")
        prompt_tokens, cached_tokens = prompt_tokens + tokens, cached_tokens + cached
        rates.spend(
            "c", engines.refresh(address, VLLM, "tiny", prefix, 10**9).spent, now
        )  # as if it were gone: two requests
        rates.spend("c", engines.refresh(address, VLLM, "tiny", prefix, 16).spent, now)
        rates.spend("c", engines.prove(address, VLLM, "tiny", prefix).spent, now)
        now += PERIOD
        rates.add("c", engines.read(address, VLLM), now)
        assert rates.rates(["c"])[0] == cached_tokens / prompt_tokens
    engines.close()
