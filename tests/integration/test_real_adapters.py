"""Three LoRA adapters on real engines: each first request is warm, and none is answered from stale KV.

With two of vLLM, and with one of SGLang, each skipped where its variable (VLLM, SGLANG) names no folder with venv/ and
tiny/. Model and adapters have random weights, which are written here.
"""

import itertools
import json
import logging
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.images import repository
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.real.engine import MODEL, START_SECONDS, RealEngine
from promptgroup_local.real.random_weights import write_adapter, write_model
from promptgroup_local.real.sglang import LORA_ARGS, SGLANG, write_lora_plugin
from promptgroup_local.real.vllm import VLLM
from promptgroup_operator.adapters.identity import Adapter
from support.groups import guest
from support.rankedturns import words
from support.realengines import marks, named

logger = logging.getLogger(__name__)

HOST, BLOCK = "pool", 32
PLUGIN = "plugin"
REPLICAS = {VLLM.name: 2, SGLANG.name: 1}
"""Engine → replicas: one of SGLang takes as long to start as several of vLLM."""
START = {
    VLLM.name: 'exec "{given}/venv/bin/vllm" serve "$@" --host {pod_ip}',
    SGLANG.name: f'PATH="{{given}}/venv/bin:$PATH" PYTHONPATH="{{given}}/shims:$PWD/{PLUGIN}" exec "$@"',
}
"""Engine → the command that starts it in the folder with the weights."""
FURTHER_ARGS = {VLLM.name: (), SGLANG.name: LORA_ARGS}
GUESTS = ("tone", "law", "code")
PROMPTS = {name: f"You are {name}. {words(name, 300)}" for name in GUESTS}
CHAT = "/v1/chat/completions"
QUESTION = "What do you say?"
TOKENS = 8


def path(name: str, version: int) -> str:
    """The adapter's folder, below the folder in which engines start: a repository of Hugging Face has the same form."""
    return f"adapters/{name}-{version}"


def served(name: str, version: int = 1) -> str:
    return Adapter(f"{name}-lora", path(name, version)).served


def adapted(name: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    adapter = {"name": f"{name}-lora", "source": {"huggingFace": path(name, version)}}
    return guest(name, PROMPTS[name], adapter=adapter, **spec)


class Said(NamedTuple):
    """An answer: the revision that gave it, as which model, tokens of its prompt, those in cache, and its text."""

    revision: str
    model: str
    prompt: int
    cached: int
    text: str


def ask(url: str, model: str, system: str, session: str = "", **fields: Any) -> Said:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": QUESTION}]
    body = {"model": model, "messages": messages, "max_tokens": TOKENS, "temperature": 0} | fields
    headers = {names.HEADER_SESSION: session} if session else {}
    answer = urllib3.request("POST", f"{url}{CHAT}", json=body, headers=headers, timeout=300, retries=False)
    assert answer.status == 200, answer.data
    whole = answer.json()
    served_by = answer.headers.get(names.HEADER_SERVED_BY, "")
    revision = served_by.split("/")[2] if served_by.count("/") == 3 else ""
    usage = whole["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Said(revision, whole["model"], usage["prompt_tokens"], cached, whole["choices"][0]["message"]["content"])


@dataclass(frozen=True, slots=True)
class Hosted:
    real: RealEngine
    kube: Kubectl
    engines: list[str]

    @property
    def replicas(self) -> int:
        return REPLICAS[self.real.name]

    @property
    def url(self) -> str:
        return lab.router_url(self.kube)

    def requested(self, name: str, version: int = 1) -> str:
        """Return the model that requests to an engine name."""
        return f"{MODEL}:{served(name, version)}" if self.real == SGLANG else served(name, version)

    def truth(self, name: str, version: int) -> str:
        """What an engine says with an empty cache: each salt has a cache of its own."""
        model = self.requested(name, version)
        return ask(self.engines[0], model, PROMPTS[name], cache_salt=f"fresh-{next(_NUMBERS)}").text


_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=[pytest.param(real, marks=marks(real), id=real.name) for real in (VLLM, SGLANG)])
def hosted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    real: RealEngine = request.param
    given, folder = Path(named(real.name.upper())).resolve(), tmp_path_factory.mktemp("real-adapters")
    shutil.copytree(given / MODEL, folder / MODEL)
    config = json.loads((folder / MODEL / "config.json").read_text())
    write_model(folder / MODEL, config)
    for seed, (name, version) in enumerate([*((name, 1) for name in GUESTS), ("tone", 2)], 1):
        write_adapter(folder / path(name, version), config, MODEL, seed)
    write_lora_plugin(folder / PLUGIN)
    start = f'cd "{folder}" && {START[real.name].replace("{given}", str(given))}'
    images = {repository(real.image): ["bash", "-c", start, real.name]}
    with LocalCluster(folder / "cluster", images=images) as local:
        kube = local.kubectl("real-adapters")
        lab.install_operator(kube)
        kube.make_namespace("real-adapters")
        lab.install_router(kube)
        replicas = REPLICAS[real.name]
        host = real.group(HOST, FURTHER_ARGS[real.name], replicas=replicas)
        del host["spec"]["prompt"]
        engine = host["spec"]["engine"]
        engine["args"] = [arg for arg in engine["args"] if arg != "--load-format=dummy"]
        engine["adapters"] = {"maxActive": 2, "maxInMemory": 4}
        kube.apply(host)
        kube.wait_warm(HOST, f"{replicas}/{replicas}", START_SECONDS)
        yield Hosted(real, kube, [lab.engine_url(pod) for pod in lab.engine_pods(kube, HOST)])


def test_each_first_request_of_three_adapters_is_warm_on_each_replica(hosted: Hosted) -> None:
    kube = hosted.kube
    kube.apply(*map(adapted, GUESTS))
    for name in GUESTS:
        kube.wait_warm(name, f"{hosted.replicas}/{hosted.replicas}", 300)
    for name in GUESTS:
        wait_for(lambda name=name: kube.get("promptroute", name), "the route")
        first = ask(hosted.url, f"{name}-lora", PROMPTS[name], session="first")
        others = [ask(engine, hosted.requested(name), PROMPTS[name]) for engine in hosted.engines]
        logger.info("%s: %s, on each engine %s", name, first, [(each.cached, each.prompt) for each in others])
        assert first.model == hosted.requested(name)
        assert all(each.prompt - each.cached < 2 * BLOCK for each in (first, *others))
    texts = {name: hosted.truth(name, 1) for name in GUESTS}
    assert len({*texts.values(), ask(hosted.url, MODEL, PROMPTS["tone"]).text}) == 4


def test_an_adapter_is_replaced_by_canary_and_none_is_answered_from_stale_kv(hosted: Hosted) -> None:
    kube, answers, stop = hosted.kube, list[Said](), threading.Event()
    old = (kube.get("promptgroup", "tone") or {})["status"]["fingerprint"]
    before = hosted.truth("tone", 1)

    def run() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            answers.append(ask(hosted.url, "tone-lora", PROMPTS["tone"], session=f"release-{number}"))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        judge = {"minRequests": 10, "maxTtftRisePercent": 1000}
        kube.apply(adapted("tone", 2, rollout={"steps": [{"weight": 50, "pause": "3s"}], "judge": judge}))

        def taken_over() -> bool | None:
            listed = (kube.get("promptroute", "tone") or {})["spec"]["revisions"]
            return {item["fingerprint"]: item["weight"] for item in listed}.get(old) == 0 or None

        wait_for(taken_over, "the new adapter to take over", lambda: kube.get("promptgroup", "tone"), seconds=240)
        count = len(answers)
        wait_for(lambda: len(answers) > count + 5 or None, "answers of the new adapter", seconds=60)
    finally:
        stop.set()
        thread.join()
    after = hosted.truth("tone", 2)
    assert before != after
    first = hosted.requested("tone", 1)
    truth = {first: before, hosted.requested("tone", 2): after}
    stale = [each for each in answers if each.text != truth[each.model]]
    cold = [each for each in answers if each.prompt - each.cached >= 2 * BLOCK]
    by_model = {name: sum(each.model == name for each in answers) for name in truth}
    logger.info("%d answers: %s, stale %s, cold %d", len(answers), by_model, stale, len(cold))
    assert all((each.model == first) == (each.revision == old[:8]) for each in answers)
    assert min(by_model.values()) > 0
    assert (stale, cold) == ([], [])


def test_the_adapter_that_was_replaced_is_unloaded(hosted: Hosted) -> None:
    kube = hosted.kube
    kube.delete("promptgroup", "code")

    def loaded() -> list[set[str]]:
        lists = [urllib3.request("GET", f"{engine}/v1/models", timeout=30).json()["data"] for engine in hosted.engines]
        return [{item["id"] for item in listed if item["parent"]} for listed in lists]

    wait_for(lambda: True if all(served("code") not in each for each in loaded()) else None, "unloading", loaded, 180)
    assert all(served("law") in each for each in loaded())
    assert ask(hosted.url, "law-lora", PROMPTS["law"]).model == hosted.requested("law")
