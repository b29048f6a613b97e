"""PromptGroups for tests: prompts that are long enough to be cached, stand-in engines with a fake GPU each."""

import json
from typing import Any

from harness.cluster import HOST
from harness.images import Images
from promptgroup_local.kubectl import Kubectl, wait_for

MODEL = "demo-model"
GROUP = "promptgroup.dev/group"
REVISION = "promptgroup.dev/revision"
SLOT = "promptgroup.dev/slot"
ROUTER = "app.kubernetes.io/name=promptgroup-router"
WARM = "promptgroup.dev/prefix-warm"
"""The readiness gate of engines' pods."""
WARMED = "promptgroup.dev/warmed-container"
"""Annotation of engines' pods: the container that was proven warm."""
DEDICATED = {"sharing": "Dedicated"}
"""Routing of a group that lends nothing: whoever serves a revision is warm for it."""
LOADS = {"STANDIN_STARTUP_SECONDS": "5"}
"""An engine that loads weights for five seconds before it answers, for tests that kill one. Real ones take longer, and
the operator has to see the new container by then."""
BY_RING = {**DEDICATED, "policy": "BoundedLoad", "loadFactorPercent": 10_000}
"""Only the ring decides as well: no load is above a hundred times its share."""


def apart(name: str) -> dict[str, Any]:
    """Return the constraint that spreads a group over the nodes that are there: others take what a dead node had."""
    return {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {GROUP: name}},
    }


def prompt(letter: str) -> str:
    """A system prompt of about 5,000 characters that differs from others from its first words on."""
    rules = (f"Rule {letter}{number}: answer question number {number} briefly and politely." for number in range(80))
    return f"You are assistant {letter}. " + " ".join(rules)


def group(
    name: str,
    images: Images,
    system: str,
    *,
    replicas: int = 2,
    args: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A PromptGroup; `spec` adds whole blocks. It lends nothing: whoever serves a revision is warm for it."""
    container = {"name": "engine", "env": [{"name": key, "value": value} for key, value in (env or {}).items()]}
    return {
        "apiVersion": "promptgroup.dev/v1alpha1",
        "kind": "PromptGroup",
        "metadata": {"name": name},
        "spec": {
            "model": MODEL,
            "prompt": {"system": system},
            "engine": {
                "image": images.name("standin-engine"),
                "args": list(args),
                "resources": {"limits": {"nvidia.com/gpu": 1}},
                "template": {"spec": {"containers": [container]}},
            },
            "replicas": replicas,
            "routing": DEDICATED,
            **spec,
        },
    }


def pods(kubectl: Kubectl, name: str, revision: str = "") -> list[dict[str, Any]]:
    """A group's pods that are not going."""
    selector = f"{GROUP}={name}" + (f",{REVISION}={revision}" if revision else "")
    return [item for item in kubectl.list("pods", selector) if "deletionTimestamp" not in item["metadata"]]


def slots(kubectl: Kubectl, name: str) -> dict[str, str]:
    """Slot as routers name it → pod."""
    result = {}
    for pod in pods(kubectl, name):
        labels = pod["metadata"]["labels"]
        if SLOT in labels:
            result[f"{kubectl.namespace}/{name}/{labels[REVISION]}/{labels[SLOT]}"] = pod["metadata"]["name"]
    return result


def rings(kubectl: Kubectl, name: str, sessions: int) -> dict[str, list[str]]:
    """Session → ready slots in the order in which its ring prefers them, home first, once a router knows them all."""
    router = kubectl.list("pods", "app.kubernetes.io/name=promptgroup-router")[0]["metadata"]["name"]
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{router}:9090/proxy/explain"
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hello"}]})

    def ring(session: str) -> list[str]:
        question = json.dumps({"headers": {"x-session-id": session}, "body": body})
        result = json.loads(kubectl.run("create", "--raw", path, "-f", "-", stdin=question).stdout)
        return [item["replica"] for item in result["ring"] if item["state"] == "Ready"]

    wait_for(lambda: True if set(ring("0")) == set(slots(kubectl, name)) else None, "a router to know all slots")
    return {session: ring(session) for session in map(str, range(sessions))}


def routed(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    """The group's revisions as routers are told of them."""
    route = kubectl.get("promptroute", name)
    revisions: list[dict[str, Any]] = route["spec"]["revisions"] if route is not None else []
    return revisions


def weights(kubectl: Kubectl, name: str) -> dict[str, int]:
    """Revision → share of the new sessions."""
    return {item["fingerprint"][:8]: item["weight"] for item in routed(kubectl, name)}


def revision(kubectl: Kubectl, name: str) -> str:
    """The revision that the group wants to serve."""
    return str((kubectl.get("promptgroup", name) or {})["status"]["fingerprint"])[:8]


def routers(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Pods of routers that are not going."""
    return [item for item in kubectl.list("pods", ROUTER) if "deletionTimestamp" not in item["metadata"]]
