"""LoRA adapters on a real control plane: loaded at the start and at run time, warmed, routed, released and unloaded."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Task
from promptgroup_operator.adapters.identity import Adapter
from support.groups import PROMPTS, group, guest
from support.life import cold, unharmed
from support.load import Load, endless
from support.operators import REPLICAS, set_operators
from support.routed import routed, routers_know

pytestmark = pytest.mark.integration

HOST = "pool"
GUESTS = {"tone": "b", "law": "c", "code": "d"}
"""Name of a guest → letter of its prompt; its adapter is `NAME-lora`."""


def source(name: str, version: int = 1) -> dict[str, Any]:
    """The adapter of a guest, in its field."""
    return {"name": f"{name}-lora", "source": {"huggingFace": f"example/{name}-v{version}"}}


def served(name: str, version: int = 1) -> str:
    """The name under which engines serve it."""
    return Adapter(f"{name}-lora", f"example/{name}-v{version}").served


def adapted(name: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    """A guest with an adapter."""
    return guest(name, PROMPTS[GUESTS[name]], adapter=source(name, version), **spec)


class Said(NamedTuple):
    """An answer: who gave it, as which model, from how many cached tokens, and its text."""

    served_by: str
    model: str
    cached: int
    text: str


def ask(kube: Kubectl, model: str, system: str, question: str = "Hello", session: str = "") -> Said:
    """Send a request, which must be answered."""
    body = {
        "model": model,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
        "max_tokens": 8,
    }
    headers = {names.HEADER_SESSION: session} if session else {}
    url = f"{lab.router_url(kube)}/v1/chat/completions"
    answer = urllib3.request("POST", url, json=body, headers=headers, timeout=60)
    assert answer.status == 200, answer.data
    whole = answer.json()
    cached = (whole["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    by = answer.headers[names.HEADER_SERVED_BY]
    return Said(by, whole["model"], cached, whole["choices"][0]["message"]["content"])


def loaded(kube: Kubectl, host: str) -> list[set[str]]:
    """The adapters that each engine of a host has, by the engine's own list."""
    found = []
    for pod in lab.engine_pods(kube, host):
        listed = urllib3.request("GET", f"http://{pod['status']['podIP']}:8000/v1/models", timeout=10).json()["data"]
        found.append({each["id"] for each in listed if each["parent"]})
    return found


@pytest.fixture(scope="module")
def hosted(cluster: LocalCluster) -> Iterator[Kubectl]:
    with routed(cluster, "adapters") as kube:
        host = group(HOST, PROMPTS["a"], replicas=2)
        host["spec"]["engine"]["adapters"] = {"maxActive": 4}
        kube.apply(host)
        kube.apply(*map(adapted, GUESTS))
        for name in (HOST, *GUESTS):
            kube.wait_warm(name, "2/2")
        routers_know(kube, HOST, *GUESTS)
        yield kube


@contextmanager
def asked(kube: Kubectl, name: str) -> Iterator[list[Said]]:
    """One question in ever new sessions while the context lasts."""
    found: list[Said] = []
    stop = threading.Event()

    def run() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            found.append(ask(kube, f"{name}-lora", PROMPTS[GUESTS[name]], session=f"{name}-{number}"))
            stop.wait(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def test_the_first_request_for_each_adapter_is_warm_on_each_replica(hosted: Kubectl) -> None:
    for name, letter in GUESTS.items():
        answers = [ask(hosted, f"{name}-lora", PROMPTS[letter], session=f"first-{number}") for number in range(8)]
        assert {each.model for each in answers} == {served(name)}
        assert min(each.cached for each in answers) > 500
    assert loaded(hosted, HOST) == [{served(name) for name in GUESTS}] * 2


def test_adapters_answer_apart_and_the_model_itself_is_another(hosted: Kubectl) -> None:
    prompt = PROMPTS["b"]
    of_model, of_adapter = ask(hosted, "tiny", prompt), ask(hosted, "tone-lora", prompt)
    assert of_model.text != of_adapter.text
    # by the group's name, and with a prompt that no group declares
    assert ask(hosted, "law-lora", "Nobody declared this.").model == served("law")
    listed = urllib3.request("GET", f"{lab.router_url(hosted)}/v1/models", timeout=10).json()["data"]
    assert {each["id"]: each["parent"] for each in listed if each["id"].endswith("-lora")} == {
        f"{name}-lora": "tiny" for name in GUESTS
    }


def test_a_release_by_canary_never_answers_with_the_old_adapter_under_the_new_revision(
    hosted: Kubectl, cluster: LocalCluster
) -> None:
    kube, pods = hosted, {each["metadata"]["uid"] for each in lab.engine_pods(hosted, HOST)}
    old = (kube.get("promptgroup", "tone") or {})["status"]["fingerprint"]
    target = Target([lab.router_url(kube)], "tone-lora")
    met_cold = lambda: cold(cluster.folder, "adapters", HOST)  # noqa: E731
    judge = {"minRequests": 10, "maxTtftRisePercent": 1000}
    with (
        Load(target, endless(Task("tone", PROMPTS["b"])), met_cold, at_once=4, pause=0.2) as load,
        load.watched() as seen,
        asked(kube, "tone") as answers,
    ):
        kube.apply(adapted("tone", 2, rollout={"steps": [{"weight": 50, "pause": "2s"}], "judge": judge}))

        def taken_over() -> bool | None:
            listed = (kube.get("promptroute", "tone") or {})["spec"]["revisions"]
            return True if {each["fingerprint"]: each["weight"] for each in listed}.get(old) == 0 else None

        wait_for(taken_over, "the new adapter to take over", lambda: kube.get("promptgroup", "tone"), seconds=120)
        kube.wait_warm("tone", "2/2")
        count = len(answers)
        wait_for(lambda: True if len(answers) > count + 5 else None, "requests after the release")
    assert unharmed(seen)
    assert {each["metadata"]["uid"] for each in lab.engine_pods(kube, HOST)} == pods
    new = (kube.get("promptgroup", "tone") or {})["status"]["fingerprint"]
    of = {old[:8]: served("tone", 1), new[:8]: served("tone", 2)}
    assert {each.model for each in answers} == set(of.values())
    texts: dict[str, set[str]] = {}
    for each in answers:
        revision = each.served_by.split("/")[2]
        assert each.model == of[revision]
        texts.setdefault(revision, set()).add(each.text)
    assert [len(found) for found in texts.values()] == [1, 1]
    assert texts[old[:8]] != texts[new[:8]]
    assert min(each.cached for each in answers) > 500


def test_what_no_revision_has_any_more_is_unloaded(hosted: Kubectl) -> None:
    hosted.delete("promptgroup", "code")
    gone = served("code")
    wait_for(
        lambda: True if all(gone not in each for each in loaded(hosted, HOST)) else None,
        "the adapter to be unloaded",
        lambda: loaded(hosted, HOST),
        seconds=120,
    )
    assert all(served("law") in each for each in loaded(hosted, HOST))
    assert ask(hosted, "law-lora", PROMPTS["c"]).cached > 500


def test_a_group_with_engines_of_its_own_starts_them_with_its_adapter(cluster: LocalCluster, crds: None) -> None:
    set_operators(cluster, REPLICAS)
    with routed(cluster, "own-adapter") as kube:
        kube.apply(group("own", PROMPTS["a"], replicas=1, adapter=source("own")))
        kube.wait_warm("own", "1/1")
        routers_know(kube, "own")
        assert loaded(kube, "own") == [{served("own")}]
        first = ask(kube, "own-lora", PROMPTS["a"])
        assert first.model == served("own")
        assert first.cached > 500
        old = (kube.get("promptgroup", "own") or {})["status"]["fingerprint"]
        with Load(
            Target([lab.router_url(kube)], "own-lora"),
            endless(Task("own", PROMPTS["a"])),
            lambda: cold(cluster.folder, "own-adapter", "own"),
            at_once=4,
            pause=0.2,
        ) as load:
            with load.watched() as seen:
                kube.apply(group("own", PROMPTS["a"], replicas=1, adapter=source("own", 2)))

                def taken_over() -> bool | None:
                    listed = (kube.get("promptroute", "own") or {})["spec"]["revisions"]
                    return True if {each["fingerprint"]: each["weight"] for each in listed}.get(old) == 0 else None

                wait_for(taken_over, "the new adapter to take over", lambda: kube.get("promptgroup", "own"), seconds=90)
                kube.wait_warm("own", "1/1")
            assert unharmed(seen)
        assert ask(kube, "own-lora", PROMPTS["a"], session="new").model == served("own", 2)


def sglang(name: str, **spec: Any) -> dict[str, Any]:
    """A group of one replica of SGLang."""
    made = group(name, PROMPTS["a"], replicas=1, args=("--page-size=16",), **spec)
    made["spec"]["engine"]["type"] = "SGLang"
    return made


def test_sglang_serves_a_guests_adapter_behind_its_model_and_refuses_apis_without_it(
    cluster: LocalCluster, crds: None
) -> None:
    set_operators(cluster, REPLICAS)
    with routed(cluster, "sglang-adapters") as kube:
        host = sglang(HOST)
        host["spec"]["engine"]["adapters"] = {"maxActive": 4}
        kube.apply(host)
        kube.apply(adapted("tone"), adapted("law"))
        for name in (HOST, "tone", "law"):
            kube.wait_warm(name, "1/1")
        routers_know(kube, HOST, "tone", "law")
        answers = {name: ask(kube, f"{name}-lora", PROMPTS[GUESTS[name]]) for name in ("tone", "law")}
        for name, answer in answers.items():
            assert answer.model == f"tiny:{served(name)}"
            assert answer.cached > 500
        assert ask(kube, "tiny", PROMPTS["b"]).text != answers["tone"].text
        body = {"model": "tone-lora", "input": "Hello", "max_output_tokens": 8}
        refused = urllib3.request("POST", f"{lab.router_url(kube)}/v1/responses", json=body, timeout=60)
        assert (refused.status, refused.json()["error"]["code"]) == (400, "adapter_not_supported")

        kube.apply(adapted("tone", 2))
        sessions = itertools.count()
        # a session that has begun stays with its adapter
        new = lambda: ask(kube, "tone-lora", PROMPTS["b"], session=f"new-{next(sessions)}")  # noqa: E731
        wanted = f"tiny:{served('tone', 2)}"
        wait_for(lambda: True if new().model == wanted else None, "the new adapter to serve", new, seconds=120)
        assert new().cached > 500
        assert new().text != answers["tone"].text
        kube.delete("promptgroup", "law")
        wait_for(
            lambda: True if served("law") not in loaded(kube, HOST)[0] else None,
            "the adapter to be unloaded that no revision has",
            lambda: loaded(kube, HOST),
            seconds=180,
        )
        assert served("tone", 2) in loaded(kube, HOST)[0]
        assert new().cached > 500


def test_engines_of_sglang_start_with_the_adapter_of_their_own_group(cluster: LocalCluster, crds: None) -> None:
    set_operators(cluster, REPLICAS)
    with routed(cluster, "own-sglang") as kube:
        kube.apply(sglang("own", adapter=source("own")))
        kube.wait_warm("own", "1/1")
        routers_know(kube, "own")
        assert loaded(kube, "own") == [{served("own")}]
        answer = ask(kube, "own-lora", PROMPTS["a"])
        assert answer.model == f"tiny:{served('own')}"
        assert answer.cached > 500


def test_a_host_that_loads_no_adapters_says_so(kube: Kubectl, crds: None) -> None:
    kube.apply(group(HOST, PROMPTS["a"], replicas=1), adapted("tone"))
    message = kube.wait_condition("tone", "Accepted", "False", "HostLoadsNoAdapters")["message"]
    assert "spec.engine.adapters" in message
