"""Real vLLM engines on CPU. Skipped where VLLM names no folder with venv/ and tiny/."""

import contextlib
import itertools
import json
import logging
import random
import ssl
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.real import diagnosis
from promptgroup_local.real.engine import MODEL, START_SECONDS, TASK
from promptgroup_local.real.vllm import VLLM
from support.crosscaller import all_learned, timed_pairs, within, world
from support.enginecerts import NAME, TLS, EngineCerts, bundle, certificate
from support.rankedturns import LEAST, converse, words
from support.realengines import SERVED, cpu_seconds, marks, named, running, serving
from support.realpools import sent

SECONDS = 1500.0
"""Longest time of 600 prompts on two cores that have other work."""
WORDS = 60
"""Words of a text: some ten blocks."""
GROUP = "secure"
KEY = "sk-of-the-engines-0123456789"
TOUCH_SECONDS = 20
CHAT = "/v1/chat/completions"
CLAIMED = 1.37
"""What caching is claimed to cost where nothing is shared: 37 % more."""
TURNS = 12
"""Turns with each of two engines first."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"

logger = logging.getLogger(__name__)

pytestmark = marks(VLLM)


def test_conditions_say_what_is_done_to_real_engines() -> None:
    assert diagnosis.main([f"--vllm={named('VLLM')}"]) == 0


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(VLLM, tmp_path_factory.mktemp("vllm") / "log") as address:
        yield address


@pytest.mark.parametrize("isolated", [True, False])
def test_no_way_tells_anything_of_callers_who_are_kept_apart(tmp_path: Path, engine: str, isolated: bool) -> None:
    async def check() -> None:
        async with world(tmp_path, isolated=isolated, engine=engine, words=WORDS) as it:
            found, again = await all_learned(it)
            print(found, "own:", again)  # noqa: T201 - shown by pytest -s
            assert again > 100
            if isolated:
                assert {name: tokens for name, tokens in found.items() if tokens > 0} == {}
            else:
                assert sum(tokens > 100 for tokens in found.values()) >= 15, found

    within(check(), SECONDS)


@pytest.mark.parametrize(("isolated", "pairs"), [(True, 200), (False, 40)])
def test_times_tell_nothing_of_callers_who_are_kept_apart(
    tmp_path: Path, engine: str, isolated: bool, pairs: int
) -> None:
    async def check() -> None:
        async with world(tmp_path, isolated=isolated, engine=engine, words=WORDS) as it:
            chance = await timed_pairs(it, pairs)
            print(f"{pairs} pairs, isolated {isolated}: p = {chance:.2g}")  # noqa: T201
            assert chance > 1e-3 if isolated else chance < 1e-6

    within(check(), SECONDS)


def test_engines_with_tls_and_a_key_are_reached_by_router_and_operator_alone(tmp_path: Path) -> None:
    images = VLLM.images(Path(named("VLLM")).resolve())
    certs = EngineCerts(tmp_path / "certs")
    with LocalCluster(tmp_path / "cluster", images=images) as local:
        kubectl = local.kubectl(GROUP)
        lab.install_operator(kubectl)
        lab.set_operator(kubectl, refresh_seconds=TOUCH_SECONDS)
        kubectl.make_namespace(GROUP)
        lab.install_router(kubectl)
        kubectl.run("create", "secret", "generic", "engine-key", f"--from-literal=key={KEY}")
        kubectl.apply(certificate(certs), bundle(certs.ca))
        wanted = VLLM.group(GROUP, replicas=1)
        wanted["spec"]["engine"] |= {"tls": TLS, "credentialFrom": {"name": "engine-key", "key": "key"}}
        kubectl.apply(wanted)
        kubectl.wait_warm(GROUP, "1/1", START_SECONDS)
        wait_for(lambda: kubectl.get("promptroute", GROUP), "the route")
        (pod,) = lab.engine_pods(kubectl, GROUP)
        proof = next(each for each in pod["status"]["conditions"] if each["type"] == names.CONDITION_PREFIX_WARM)
        assert proof["reason"] == "PrefixCached"  # warm-up and its metrics, by the operator
        _answered_through_the_router_alone(kubectl, pod, certs)
        _looked_at_by_the_operator(kubectl, pod, certs)


def _answered_through_the_router_alone(kubectl: Kubectl, pod: dict[str, Any], certs: EngineCerts) -> None:
    system = {"role": "system", "content": system_prompt(TASK, 1)}
    body = {"model": MODEL, "messages": [system, {"role": "user", "content": "Are you there?"}], "max_tokens": 2}
    url = lab.router_url(kubectl)

    def answer() -> dict[str, Any] | None:
        found = urllib3.request("POST", f"{url}{CHAT}", json=body, timeout=60, retries=False)
        return found.json() if found.status == 200 else None

    usage = wait_for(answer, "an answer through the router")["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 2000
    place = f"{pod['status']['podIP']}:{names.PORT_ENGINE}"
    with pytest.raises(urllib3.exceptions.HTTPError):
        urllib3.request("GET", f"http://{place}/health", retries=False, timeout=20)
    with _trusting(certs) as http:
        assert http.request("POST", f"https://{place}{CHAT}", json=body).status == 401
        with_key = {"authorization": f"Bearer {KEY}"}
        assert http.request("POST", f"https://{place}{CHAT}", json=body, headers=with_key).status == 200
    # a client's own credential does not reach the engine in place of the group's
    headers = {"authorization": "Bearer of-a-client"}
    assert urllib3.request("POST", f"{url}{CHAT}", json=body, headers=headers, timeout=60, retries=False).status == 200
    assert KEY not in json.dumps(kubectl.list("promptroutes"))


def _looked_at_by_the_operator(kubectl: Kubectl, pod: dict[str, Any], certs: EngineCerts) -> None:
    """A cache that is emptied is told of, and the group's hit rate is that of the engine's metrics."""
    with _trusting(certs) as http:
        place = f"https://{pod['status']['podIP']}:{names.PORT_ENGINE}"
        assert http.request("POST", f"{place}{VLLM.reset}").status == 200

    def lost() -> bool | None:
        found = kubectl.get("pod", pod["metadata"]["name"]) or {}
        return any(each.get("reason") == "PrefixEvicted" for each in found["status"]["conditions"]) or None

    wait_for(lost, "the reset to be told")
    wait_for(
        lambda: (kubectl.get("promptgroup", GROUP) or {}).get("status", {}).get("hitRate"),
        "the hit rate",
        lambda: (kubectl.get("promptgroup", GROUP) or {}).get("status"),
    )


def unshared(seed: int) -> str:
    """Some 1,000 tokens that begin like no other text."""
    draw = random.Random(seed)
    return " ".join("".join(draw.choices(LETTERS, k=6)) for _ in range(300))


def test_what_caching_costs_where_nothing_is_shared(tmp_path: Path) -> None:
    """Two engines, one without prefix caching, get the same new prompts by turns. Time is that of their processes."""
    small = "--num-gpu-blocks-override=512"  # 16,384 tokens: a cache that is full evicts with each prompt
    seeds = itertools.count()
    with (
        running(VLLM, tmp_path / "on", [small]) as (on, on_session),
        running(VLLM, tmp_path / "off", [small, VLLM.dialect.caching_off]) as (off, off_session),
    ):
        engines = {on: on_session, off: off_session}

        def turn(count: int, first: str) -> dict[str, float]:
            prompts = [unshared(next(seeds)) for _ in range(count)]
            used = {}
            for address in sorted(engines, key=lambda each: each != first):
                before = cpu_seconds(engines[address])
                for prompt in prompts:
                    body = {"model": SERVED, "messages": [{"role": "user", "content": prompt}], "max_tokens": 8}
                    assert sent(f"http://{address}", body).cached < 64  # of the template
                used[address] = (cpu_seconds(engines[address]) - before) / count
            return used

        turn(20, on)  # kernels are compiled, and the cache is filled
        turns = [turn(8, first) for _ in range(TURNS) for first in (on, off)]
    # what else runs on the cores makes a request dearer and never cheaper: the cheapest quarter tells most
    spent = {name: sorted(each[address] for each in turns) for name, address in (("on", on), ("off", off))}
    for name, each in spent.items():
        logger.info("caching %s, CPU seconds a request: %s", name, " ".join(f"{one:.3f}" for one in each))
    quarter = {name: statistics.fmean(each[: TURNS // 2]) for name, each in spent.items()}
    logger.info("the cheapest quarter: %s, ratio %.3f", quarter, quarter["on"] / quarter["off"])
    assert quarter["on"] / quarter["off"] < CLAIMED


@contextlib.contextmanager
def _trusting(certs: EngineCerts) -> Iterator[urllib3.PoolManager]:
    context = ssl.create_default_context(cadata=certs.ca)
    http = urllib3.PoolManager(
        retries=False, timeout=60, ssl_context=context, assert_hostname=NAME, server_hostname=NAME
    )
    try:
        yield http
    finally:
        http.clear()


def test_each_rank_of_an_engine_is_proven_and_sessions_stay_on_theirs(tmp_path: Path) -> None:
    images = VLLM.images(Path(named("VLLM")).resolve())
    with LocalCluster(tmp_path / "cluster", images=images) as local:
        kubectl = local.kubectl(GROUP)
        lab.install_operator(kubectl)
        kubectl.make_namespace(GROUP)
        lab.install_router(kubectl)
        wanted = VLLM.group(GROUP, replicas=1)
        wanted["spec"]["prompt"] = {"system": words("system", 300)}
        wanted["spec"]["engine"]["dataParallelSize"] = 2
        kubectl.apply(wanted)
        kubectl.wait_warm(GROUP, "1/1", START_SECONDS)
        (pod,) = lab.engine_pods(kubectl, GROUP)
        proof = next(each for each in pod["status"]["conditions"] if each["type"] == names.CONDITION_PREFIX_WARM)
        assert proof["reason"] == "PrefixCached"
        assert "on each of 2 data-parallel ranks" in proof["message"]
        url = lab.router_url(kubectl)
        wait_for(lambda: urllib3.request("GET", f"{url}/v1/models", timeout=20).json()["data"], "the table")
        found = converse(url, words("system", 300))
        homes = {place for places in found.served.values() for place in places}
        print(f"{proof['message']}; hit rate {found.share:.1%} of {found.prompt} tokens, {sorted(homes)}")  # noqa: T201
        assert {place.rpartition(".")[2] for place in homes} == {"0", "1"}
        assert found.share >= LEAST
