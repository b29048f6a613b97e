"""Streams of half a minute while their pods leave, in each way in which pods do: none is cut."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.evictions import wait_evicted
from support.groups import PROMPTS, group
from support.routed import routed, routers_know

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
    wait_evicted(kube, pod)


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


SPOT = {"key": "aws-node-termination-handler/spot-itn", "value": "notice", "effect": "NoSchedule"}


def test_replicas_of_a_node_with_a_notice_drain_before_they_are_deleted(
    cluster: LocalCluster, kube: Kubectl, operator: None
) -> None:
    name, spare = "notice", "spare-node"
    kube.apply(long_answers(name))
    kube.wait_warm(name, "2/2")
    [node] = [item["metadata"]["name"] for item in kube.list("nodes")]
    cluster.start_node(spare)
    try:
        wait_for(lambda: True if _is_usable(kube.get("node", spare)) else None, "another node")
        kube.run("cordon", node)
        kube.delete("pod", lab.engine_pods(kube, name)[0]["metadata"]["name"])
        kube.wait_warm(name, "2/2")
        nodes = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in lab.engine_pods(kube, name)}
        assert nodes.keys() == {node, spare}
        wait_for(lambda: True if sent_to(kube, name) == set(nodes.values()) else None, "a route to both")
        routers_know(kube, name)
        url = lab.router_url(kube)
        streams = [Stream(url, name, session) for session in range(2 * STREAMS)]
        assert all(stream.begun.wait(60) for stream in streams)
        _taint(kube, spare, [SPOT])
        wait_for(lambda: True if sent_to(kube, name) == {nodes[node]} else None, "routers to send to the other only")
        assert "deletionTimestamp" not in kube.get("pod", nodes[spare])["metadata"]
        assert kube.wait_condition(name, "PrefixWarm", "False", "NodeLeaving")["message"].count(SPOT["key"]) == 1
        for stream in streams:
            stream.join(120)
        assert [stream.whole for stream in streams] == [True] * len(streams)
        _taint(kube, spare, [])  # the notice is taken back
        kube.wait_warm(name, "2/2")
        wait_for(lambda: True if sent_to(kube, name) == set(nodes.values()) else None, "a route to both again")
    finally:
        kube.run("uncordon", node)
        kube.delete("promptgroup", name)
        wait_for(lambda: True if not lab.engine_pods(kube, name) else None, "its pods to go")
        cluster.stop_node(spare)
        kube.delete("node", spare)


def _taint(kube: Kubectl, node: str, taints: list[dict[str, str]]) -> None:
    kube.run("patch", "node", node, "--type=merge", "-p", json.dumps({"spec": {"taints": taints}}))


def _is_usable(node: dict[str, Any] | None) -> bool:
    if node is None or node["spec"].get("taints"):
        return False
    return any((item["type"], item["status"]) == ("Ready", "True") for item in node["status"]["conditions"])


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
    routers_know(kube, name)
    url = lab.router_url(kube)
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
