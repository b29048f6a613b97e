"""Requests through the router to groups on a real control plane."""

import json
import os
import signal
from collections.abc import Iterator

import pytest
import urllib3
import uvloop
from rich.console import Console

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.demo import REPLICAS, WATCHED, WATCHED_SCALING, Demo
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group
from support.routed import routed

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    """A namespace with a router and one group of two replicas."""
    with routed(cluster, "traffic") as kubectl:
        kubectl.apply(group("polite", PROMPTS["a"], replicas=2, modelAliases=["gpt-4o"]))
        kubectl.wait_warm("polite", "2/2")
        wait_for(lambda: True if "polite" in get(kubectl, "/v1/models")[1] else None, "the router to know the group")
        yield kubectl


pool = urllib3.PoolManager(retries=False, timeout=20)


@pytest.fixture(autouse=True)
def _no_open_connections() -> Iterator[None]:
    yield
    pool.clear()


def get(kubectl: Kubectl, path: str) -> tuple[int, str]:
    response = pool.request("GET", f"{lab.router_url(kubectl)}{path}")
    return response.status, response.data.decode()


def post(kubectl: Kubectl, body: object, path: str = "/v1/chat/completions") -> tuple[int, dict, dict]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    response = pool.request("POST", f"{lab.router_url(kubectl)}{path}", body=data, headers=headers)
    return response.status, json.loads(response.data), dict(response.headers)


def chat(system: str | None, user: str = "hello", model: str = "tiny") -> dict:
    messages = [{"role": "system", "content": system}] if system else []
    return {"model": model, "messages": [*messages, {"role": "user", "content": user}], "max_tokens": 4}


def test_a_request_that_brings_the_prompt_finds_it_cached(kube: Kubectl) -> None:
    status, answer, headers = post(kube, chat(PROMPTS["a"], "what is rule 7?"))
    assert status == 200
    assert headers["x-promptgroup-served-by"].startswith("traffic/polite/")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0.9 * len(PROMPTS["a"]) / 4


def test_a_request_that_names_the_group_gets_the_prompt_put_in_front(kube: Kubectl) -> None:
    status, answer, headers = post(kube, chat(None, "what is rule 8?", model="polite"))
    assert status == 200
    assert headers["x-promptgroup-served-by"].startswith("traffic/polite/")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0.9 * len(PROMPTS["a"]) / 4


def test_a_request_by_an_alias_of_the_model_is_one_by_the_model(kube: Kubectl) -> None:
    kube.wait_condition("polite", "AliasesServed", "True")
    assert json.loads(get(kube, "/v1/models/gpt-4o")[1])["root"] == "tiny"
    # the engine knows nothing but its own name
    status, answer, headers = post(kube, chat(PROMPTS["a"], "what is rule 9?", model="gpt-4o"))
    assert (status, answer["model"]) == (200, "tiny")
    assert headers["x-promptgroup-served-by"].startswith("traffic/polite/")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0.9 * len(PROMPTS["a"]) / 4


def test_a_completion_that_names_the_group_is_served(kube: Kubectl) -> None:
    status, answer, _ = post(kube, {"model": "polite", "prompt": "Once", "max_tokens": 4}, "/v1/completions")
    assert status == 200
    assert answer["choices"][0]["text"]


def test_an_unmatched_prompt_is_served_too(kube: Kubectl) -> None:
    status, _, headers = post(kube, chat("You are somebody else. " * 40))
    assert status == 200
    assert "/polite/" not in headers["x-promptgroup-served-by"]


def test_turns_of_a_session_stay_on_one_replica(kube: Kubectl) -> None:
    for case in range(8):
        first = [{"role": "system", "content": PROMPTS["a"]}, {"role": "user", "content": f"case {case}"}]
        more = [*first, {"role": "assistant", "content": "well"}, {"role": "user", "content": "and then?"}]
        slots = [
            post(kube, {"model": "tiny", "messages": messages, "max_tokens": 2})[2]["x-promptgroup-served-by"]
            for messages in (first, more)
        ]
        assert slots[0] == slots[1]


def test_declared_messages_are_warm_and_clients_may_add_instructions_where_a_group_says_so(kube: Kubectl) -> None:
    said = [
        {"role": "user", "content": "Where is parcel 7? " * 40},
        {"role": "assistant", "content": "It is on its way, and you will have it tomorrow. " * 40},
    ]
    examples = group("examples", replicas=1)
    examples["spec"]["prompt"] = {"system": PROMPTS["b"], "messages": said}
    kube.apply(examples)
    kube.apply(group("open", PROMPTS["c"], replicas=1, routing={"ownInstructions": "Append"}))
    for name in ("examples", "open"):
        kube.wait_warm(name, "1/1")
        wait_for(lambda name=name: True if name in get(kube, "/v1/models")[1] else None, f"the router to know {name}")

    # every text behind the system prompt is new to the engine but for the declared messages
    by_content = {"model": "tiny", "messages": [{"role": "system", "content": PROMPTS["b"]}, *said], "max_tokens": 4}
    by_content["messages"].append({"role": "user", "content": "What of parcel 8?"})
    by_name = chat(None, "What of parcel 9?", model="examples")
    declared = len(PROMPTS["b"]) + sum(len(message["content"]) for message in said)
    for body in (by_content, by_name):
        status, answer, headers = post(kube, body)
        assert status == 200
        assert headers["x-promptgroup-served-by"].startswith("traffic/examples/")
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0.9 * declared / 4
    assert not post(kube, chat(PROMPTS["b"]))[2].get("x-promptgroup-revision"), "its conversation begins otherwise"

    status, answer, _ = post(kube, chat("Answer in French. " * 40, "What of parcel 8?", model="open"))
    assert status == 200
    usage = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0.9 * len(PROMPTS["c"]) / 4
    assert usage["prompt_tokens"] > len(PROMPTS["c"]) / 4 + 100


BAD = {
    "not JSON": (b"{", 400, "JSON"),
    "not an object": (b"[]", 400, "object"),
    "no messages": ({"model": "tiny"}, 400, "messages"),
    "no model": ({"messages": [{"role": "user", "content": "x"}]}, 400, "model"),
    "unknown model": (chat("x", model="gpt-unknown"), 404, "gpt-unknown"),
    "too large": (b'{"model": "tiny", "x": "' + b"a" * (33 << 20) + b'"}', 413, "bytes"),
    "own system message beside a name": (chat("mine", model="polite"), 400, "system"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_gets_an_error_in_openais_form(kube: Kubectl, case: str) -> None:
    body, expected, word = BAD[case]
    status, answer, _ = post(kube, body)
    assert status == expected
    assert word in answer["error"]["message"]
    assert set(answer["error"]) == {"message", "type", "param", "code"}


def test_a_router_that_restarts_without_an_api_server_serves_from_its_copy(
    kube: Kubectl, cluster: LocalCluster
) -> None:
    pod = lab.router_pod(kube)
    url = f"http://{pod['status']['podIP']}:8080/v1/chat/completions"
    (file,) = cluster.folder.glob(f"*/pods/*{pod['metadata']['uid']}*/router.pid")
    before = int(file.read_text())

    def answer() -> int | None:
        try:
            body = json.dumps(chat(None, "still there?", model="polite"))
            return pool.request("POST", url, body=body, headers={"content-type": "application/json"}).status
        except urllib3.exceptions.HTTPError:
            return None

    cluster.plane.stop_apiserver()
    try:
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: True if file.exists() and file.read_text() != str(before) else None, "another router process")
        assert wait_for(answer, "an answer of the router") == 200
    finally:
        cluster.plane.start_apiserver()


def test_the_demo_shows_what_it_promises(cluster: LocalCluster) -> None:
    demo = Demo(cluster.kubectl("demo"), Console(quiet=True))
    demo.install()

    async def measure() -> tuple:
        routed, robin = await demo.through_router(), await demo.round_robin()
        return routed, robin, await demo.scale(), await demo.lose(), await demo.release()

    routed, robin, scaled, lost, released = uvloop.run(measure())
    assert routed.failures == robin.failures == 0
    assert routed.of_possible >= 0.95
    assert routed.measured.hit_rate > robin.measured.hit_rate
    assert [change.failed for change in (scaled, lost, released)] == [0, 0, 0]
    assert [change.cold for change in (scaled, lost, released)] == [0, 0, 0]
    assert routed.measured.cold == 0
    assert (scaled.followed, released.followed) == (WATCHED_SCALING, WATCHED)
    assert scaled.moved <= 1.1 * WATCHED_SCALING / (REPLICAS + 1)
    # the others take the lost replica's sessions, so one of theirs may be served sooner elsewhere
    assert lost.moved <= 0.1 * lost.followed
    assert released.moved == 0
