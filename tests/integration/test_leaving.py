"""Streams of half a minute while their pods leave, in each way in which pods do: none is cut."""

import json
import threading
from collections.abc import Callable, Iterator

import pytest
import urllib3

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group
from support.routed import routed

pytestmark = pytest.mark.integration

TOKENS = 100
STREAMS = 4


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    with routed(cluster, "leaving") as kubectl:
        yield kubectl


class Stream(threading.Thread):
    """A stream of 100 tokens, one in 0.25 s."""

    def __init__(self, url: str, model: str, session: int) -> None:
        super().__init__(daemon=True)
        self._url, self._session = url, session
        self._body = {"model": model, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
        self.begun = threading.Event()
        self.events: list[str] = []
        self.slot = ""
        self.start()

    def run(self) -> None:
        body = self._body | {"messages": [{"role": "user", "content": f"talk for long, {self._session}"}]}
        pool = urllib3.PoolManager(retries=False, timeout=60)
        headers = {"content-type": "application/json"}
        url, data = f"{self._url}/v1/chat/completions", json.dumps(body).encode()
        answer = pool.request("POST", url, body=data, headers=headers, preload_content=False)
        assert answer.status == 200, answer.read()
        self.slot = answer.headers.get("x-promptgroup-served-by", "")
        for line in answer:
            if line.startswith(b"data: "):
                self.events.append(line.decode().strip())
                self.begun.set()

    @property
    def whole(self) -> bool:
        reasons = [json.loads(line[6:])["choices"][0]["finish_reason"] for line in self.events[:-1]]
        return self.events[-1] == "data: [DONE]" and reasons[-1] == "length" and len(reasons) >= TOKENS


def evict(kube: Kubectl, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": kube.namespace}}
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{pod}/eviction"
    kube.run("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def delete(kube: Kubectl, pod: str) -> None:
    kube.delete("pod", pod, wait=False)


def announce(kube: Kubectl, pod: str) -> None:
    """A node that shuts down: its kubelet marks the pod, which is deleted later, if ever."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "shut down"}
    patch = json.dumps({"status": {"conditions": [condition | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    kube.run("patch", "pod", pod, "--subresource=status", "--type=strategic", "-p", patch)
    name = kube.get("pod", pod)["metadata"]["labels"]["promptgroup.dev/group"]
    wait_for(lambda: True if pod not in sent_to(kube, name) else None, "routers to send no more to the pod")
    assert "deletionTimestamp" not in kube.get("pod", pod)["metadata"]
    delete(kube, pod)


def sent_to(kube: Kubectl, name: str) -> set[str]:
    """Pods that the PromptRoute tells routers to send to."""
    route = kube.get("promptroute", name) or {}
    slots = [slot for revision in route["spec"]["revisions"] for slot in revision["slots"]]
    return {slot["pod"] for slot in slots if slot["state"] == "Ready"}


def change_engine(kube: Kubectl, pod: str) -> None:
    name = kube.get("pod", pod)["metadata"]["labels"]["promptgroup.dev/group"]
    kube.apply(long_answers(name, args=("--max-num-seqs=64",)))


def long_answers(name: str, **more: object) -> dict:
    made = group(name, PROMPTS["a"] + name, replicas=2, env={"STANDIN_STEP_MS": "250"}, **more)
    del made["spec"]["engine"]["template"]["spec"]["terminationGracePeriodSeconds"]
    return made


@pytest.mark.parametrize("leave", [evict, delete, announce, change_engine])
def test_a_long_stream_ends_before_its_pod_does(
    kube: Kubectl, operator: None, leave: Callable[[Kubectl, str], None]
) -> None:
    name = leave.__name__.replace("_", "-")
    kube.apply(long_answers(name))
    kube.wait_warm(name, "2/2")
    url = lab.router_url(kube)
    wait_for(lambda: True if name in urllib3.request("GET", f"{url}/v1/models").data.decode() else None, "the route")
    streams = [Stream(url, name, session) for session in range(STREAMS)]
    assert all(stream.begun.wait(60) for stream in streams)
    old = {pod["metadata"]["name"] for pod in lab.engine_pods(kube, name)}
    leaving = next(
        pod["metadata"]["name"]
        for pod in lab.engine_pods(kube, name)
        if streams[0].slot.endswith(f"/{pod['metadata']['labels']['promptgroup.dev/slot']}")
    )
    leave(kube, leaving)
    for stream in streams:
        stream.join(120)
    assert [stream.whole for stream in streams] == [True] * STREAMS
    gone = old if leave is change_engine else {leaving}  # and nothing waits for the rest of the drain time
    wait_for(lambda: True if not any(kube.get("pod", pod) for pod in gone) else None, "the pods to go")
    kube.wait_warm(name, "2/2")
