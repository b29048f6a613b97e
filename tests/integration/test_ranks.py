"""Engines with data-parallel ranks: each has a cache of its own, is proven by itself, and is chosen by the router."""

import json
from collections import Counter
from typing import Any

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group
from support.rankedturns import LEAST, converse, words
from support.routed import routers_know

pytestmark = pytest.mark.integration

RANKS = 2
CHAT = "/v1/chat/completions"


def ranked(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    wanted = group(name, replicas=replicas, env={"VLLM_SERVER_DEV_MODE": "1"}, **spec)
    wanted["spec"]["engine"]["dataParallelSize"] = RANKS
    return wanted


def said_of(pod: dict[str, Any]) -> dict[str, str]:
    return next(each for each in pod["status"]["conditions"] if each["type"] == names.CONDITION_PREFIX_WARM)


def metrics(pod: dict[str, Any]) -> str:
    return urllib3.request("GET", f"{lab.engine_url(pod)}/metrics", timeout=10).data.decode()


def test_each_rank_is_proven_and_sessions_stay_on_theirs(kube: Kubectl, operator: None) -> None:
    lab.install_router(kube)
    kube.apply(ranked("ranks", 2))
    kube.wait_warm("ranks", "2/2")
    pods = lab.engine_pods(kube, "ranks")
    for pod in pods:
        assert said_of(pod)["reason"] == "PrefixCached"
        assert f"on each of {RANKS} data-parallel ranks" in said_of(pod)["message"]
        page = metrics(pod)
        for rank in range(RANKS):  # before any client
            assert f'vllm:prefix_cache_queries_total{{engine="{rank}",model_name="tiny"}} 0.0' not in page, page
    route = wait_for(lambda: kube.get("promptroute", "ranks"), "the route")
    (revision,) = route["spec"]["revisions"]
    assert [slot["ranks"] for slot in revision["slots"]] == [RANKS, RANKS]
    assert revision["engine"]["unrankedAPIs"] == ["responses"]

    routers_know(kube, "ranks")
    url = lab.router_url(kube)
    found = converse(url, PROMPTS["a"])
    homes = Counter(place for places in found.served.values() for place in places)
    print(f"hit rate {found.share:.1%}, homes {dict(homes)}")  # noqa: T201 - shown by pytest -s
    assert len(homes) > RANKS  # more caches than replicas
    assert all(place.rpartition(".")[2] in ("0", "1") for place in homes)
    assert found.share >= LEAST, found.served
    cold = [
        line for pod in lab.engine_pods(kube, "ranks") for line in metrics(pod).splitlines() if "cold_prefix" in line
    ]
    assert [line for line in cold if 'total{source="client"}' in line and not line.endswith(" 0.0")] == []
    page = urllib3.request("GET", f"{lab.router_admin_url(kube)}/metrics", timeout=10).data.decode()
    ranks_told = {line.partition('engine="')[2][0] for line in page.splitlines() if "slot_cached_tokens_total{" in line}
    assert ranks_told == {"0", "1"}


def test_where_a_rank_dies_no_answer_is_called_whole_that_is_not(kube: Kubectl, operator: None) -> None:
    lab.install_router(kube)
    kube.apply(ranked("dying", 2))
    kube.wait_warm("dying", "2/2")
    routers_know(kube, "dying")
    url = lab.router_url(kube)
    http = urllib3.PoolManager(maxsize=16, block=False)

    def begin(session: int) -> Any:
        messages = [{"role": "system", "content": PROMPTS["a"]}, {"role": "user", "content": words(str(session), 40)}]
        body = {"model": "tiny", "messages": messages, "max_tokens": 2000, "ignore_eos": True, "stream": True}
        return http.request(
            "POST",
            f"{url}{CHAT}",
            json=body,
            headers={"x-session-id": f"s{session}"},
            preload_content=False,
            timeout=90,
        )

    answers = [begin(session) for session in range(12)]
    places = [answer.headers[names.HEADER_SERVED_BY] for answer in answers]
    slot = places[0].rpartition(".")[0]
    (pod,) = [each for each in lab.engine_pods(kube, "dying") if slot.endswith(f"/{slot_of(each)}")]
    killed = urllib3.request("POST", f"{lab.engine_url(pod)}/standin/kill_rank/1", timeout=10)
    assert killed.status == 200
    whole = dict.fromkeys(range(len(answers)), False)
    for number, answer in enumerate(answers):
        try:
            data = answer.read()
        except urllib3.exceptions.HTTPError:
            continue  # cut visibly
        whole[number] = b"[DONE]" in data
        if whole[number]:
            events = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
            said = [each["choices"][0].get("finish_reason") for each in events if each.get("choices")]
            assert said[-1] == "length"
    lost = [number for number, place in enumerate(places) if place.rpartition(".")[0] == slot]
    assert lost
    assert not any(whole[number] for number in lost)
    assert all(whole[number] for number in whole if number not in lost)
    # the process ends, and the next one is in service once both of its ranks are proven
    kube.wait_warm("dying", "2/2")
    assert all(f"on each of {RANKS}" in said_of(pod)["message"] for pod in lab.engine_pods(kube, "dying"))


def slot_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"][names.LABEL_SLOT])
