"""Evictions of pods, as drains of nodes ask for them."""

import json

from promptgroup_local.kubectl import Kubectl, wait_for


def evict(kube: Kubectl, pod: str) -> str:
    """Ask for a pod's eviction; return what the API server objects, empty when it is granted."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": kube.namespace}}
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{pod}/eviction"
    return kube.run("create", "--raw", path, "-f", "-", stdin=json.dumps(body), check=False).stderr


def wait_evicted(kube: Kubectl, pod: str) -> None:
    """Ask for a pod's eviction until it is granted: a budget counts pods that have become ready a moment later."""
    wait_for(lambda: True if evict(kube, pod) == "" else None, f"the eviction of {pod} to be granted")
