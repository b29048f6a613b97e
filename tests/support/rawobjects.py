"""Objects as the API server returns them, and a kubeconfig for a scripted one: what commands at a terminal read."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from promptgroup_contract.fingerprint import fingerprint
from support.scriptedkube import Answer, ScriptedKube, refusal

FULL = fingerprint("You are the support assistant of Example Ltd.")
SHORT = FULL[:8]
WARM = {"status": "True", "reason": "PrefixCached", "message": "96 of 96 prefix tokens in cache"}
CREATED = "2026-11-03T11:00:00Z"


def condition(kind: str, status: str = "True", reason: str = "AsExpected", message: str = "a message") -> dict:
    return {"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 2}


def promptgroup(name: str = "support", *conditions: dict, namespace: str = "chat", **status: Any) -> dict:
    """A PromptGroup at rest, but for the conditions that are given."""
    listed = {each["type"]: each for each in map(condition, ("Accepted", "Ready"))}
    listed |= {each["type"]: each for each in conditions}
    revision = {
        "fingerprint": FULL,
        "deployment": f"{name}-{SHORT}",
        "replicas": 2,
        "warm": 2,
        "ready": 2,
        "weight": 100,
    }
    return {
        "metadata": {"namespace": namespace, "name": name, "generation": 2, "uid": "u", "creationTimestamp": CREATED},
        "spec": {"model": "llama", "prompt": {"system": "x"}, "engine": {"image": "i"}},
        "status": {
            "observedGeneration": 2,
            "conditions": list(listed.values()),
            "revision": SHORT,
            "fingerprint": FULL,
            "warm": "2/2",
            "replicas": 2,
            "hitRate": "93%",
            "revisions": [revision | {"phase": "Serving"}],
            **status,
        },
    }


def promptroute(*slots: tuple[int, str, str], name: str = "support", namespace: str = "chat") -> dict:
    """A PromptRoute; slots as (number, state, pod)."""
    listed = [{"slot": slot, "state": state} | ({"pod": pod} if pod else {}) for slot, state, pod in slots]
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"revisions": [{"fingerprint": FULL, "weight": 100, "slots": listed}]},
    }


def engine(name: str, warm: dict | None = None, *, of: str = "support", deleting: bool = False, **status: Any) -> dict:
    """A replica's pod; warm unless its condition says otherwise."""
    metadata = {
        "namespace": "chat",
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": CREATED,
        "labels": {"promptgroup.dev/group": of},
        "annotations": {"promptgroup.dev/fingerprint": FULL, "promptgroup.dev/warmed-container": "containerd://c"},
    }
    gate = {"type": "promptgroup.dev/prefix-warm", "lastTransitionTime": CREATED, **(warm or WARM)}
    running = [{"name": "engine", "containerID": "containerd://c", "state": {"running": {}}}]
    ready = {"type": "ContainersReady", "status": "True", "lastTransitionTime": CREATED}
    return {
        "metadata": metadata | ({"deletionTimestamp": CREATED} if deleting else {}),
        "spec": {"containers": [{"name": "engine"}]},
        "status": {"podIP": "10.0.0.1", "conditions": [gate, ready], "containerStatuses": running, **status},
    }


def router(name: str, *, ready: str = "True", port: int = 9090, namespace: str = "chat") -> dict:
    """A router's pod."""
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"app.kubernetes.io/name": "promptgroup-router"}},
        "spec": {"containers": [{"ports": [{"name": "admin", "containerPort": port}]}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def kubeconfig(kube: ScriptedKube, folder: Path, namespace: str = "chat", token: str = "t") -> Path:
    """A kubeconfig whose context has this namespace."""
    server = {"server": f"https://127.0.0.1:{kube.port}", "certificate-authority": str(kube.folder / "ca.crt")}
    file = folder / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": server}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
                "current-context": "x",
            }
        )
    )
    return file


def serving(kube: ScriptedKube, *objects: dict, **proxied: Any) -> None:
    """Have the API server list these objects, and pods answer: name of a path (`metrics`) → text, or what is JSON."""
    kinds = {"promptgroups": ("model",), "promptroutes": ("revisions",), "pods": ("containers",)}

    def serve(method: str, path: str) -> Answer:
        parts = urlsplit(path)
        if "/proxy/" in parts.path:
            said = proxied.get(parts.path.rpartition("/")[2])
            if said is None:
                return refusal(503, "address not allowed")
            return Answer(200, said.encode() if isinstance(said, str) else json.dumps(said).encode())
        plural = parts.path.rpartition("/")[2]
        if plural not in kinds:
            return refusal(404)
        query = parse_qs(parts.query)
        named = query.get("fieldSelector", [""])[0].removeprefix("metadata.name=")
        label, values = _selector(query.get("labelSelector", [""])[0])
        within = parts.path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in parts.path else ""
        found = []
        for each in objects:
            metadata = each["metadata"]
            labelled = not label or (
                label in metadata.get("labels", {}) and (not values or metadata["labels"][label] in values)
            )
            kind = all(field in each["spec"] for field in kinds[plural])
            if kind and labelled and named in ("", metadata["name"]) and within in ("", metadata["namespace"]):
                found.append(each)
        return Answer(200, json.dumps({"metadata": {"resourceVersion": "1"}, "items": found}).encode())

    kube.serve = serve


def _selector(text: str) -> tuple[str, list[str]]:
    """Return the label of a selector, and its values: `label`, `label=value` or `label in (value,value)`."""
    if " in (" in text:
        label, _, listed = text.removesuffix(")").partition(" in (")
        return label, listed.split(",")
    label, _, value = text.partition("=")
    return label, [value] if value else []
