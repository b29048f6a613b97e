"""A scripted API server that shows its kinds, lists what it holds, and lets a test say what its watches tell."""

import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.builders import CREATED
from support.scriptedkube import Answer, ScriptedKube

GROUPS = {
    "": ("v1", {"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "events": "Event"}),
    "apps": ("v1", {"deployments": "Deployment", "daemonsets": "DaemonSet"}),
    "policy": ("v1", {"poddisruptionbudgets": "PodDisruptionBudget"}),
    "promptgroup.dev": ("v1alpha1", {"promptgroups": "PromptGroup", "promptroutes": "PromptRoute"}),
}
LABELLED = {"pods", "deployments", "daemonsets", "poddisruptionbudgets"}


def found(kind: str, name: str, version: int, **fields: Any) -> dict[str, Any]:
    """An object of the group `support`."""
    labels = {"promptgroup.dev/group": "support"}
    metadata = {"namespace": "chat", "name": name, "uid": name, "resourceVersion": str(version), "labels": labels}
    return {"kind": kind, "metadata": {**metadata, "generation": 1, "creationTimestamp": CREATED}, **fields}


def event(kind: str, shown: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": shown}).encode() + b"\n"


GONE = event("ERROR", {"kind": "Status", "code": 410, "message": "too old"})


class WatchServer:
    """Each watch of a kind tells the next of `watches`, or nothing."""

    def __init__(self, kube: ScriptedKube) -> None:
        self.kube = kube
        self.objects: dict[str, list[dict[str, Any]]] = {
            plural: [] for _, plurals in GROUPS.values() for plural in plurals
        }
        self.watches: dict[str, list[bytes]] = {plural: [] for plural in self.objects}
        self.faults: list[Callable[[str, dict[str, str]], Answer | None]] = []
        """Each is asked before an answer is given, and goes once it has given one."""
        self.missing: set[str] = set()
        """API groups that are not served yet."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.version = 50
        self.lock = threading.Lock()
        kube.serve = self.serve

    def serve(self, method: str, path: str) -> Answer:
        with self.lock:
            return self.answer(
                urlsplit(path).path, {key: each[0] for key, each in parse_qs(urlsplit(path).query).items()}
            )

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        self.asked.append((path, query))
        for fault in list(self.faults):
            told = fault(path, query)
            if told is not None:
                self.faults.remove(fault)
                return told
        if path == "/api":
            return Answer(body=b'{"versions":["v1"]}')
        if path == "/apis":
            groups = [
                {"name": name, "versions": [{"version": version}], "preferredVersion": {"version": version}}
                for name, (version, _) in GROUPS.items()
                if name and name not in self.missing
            ]
            return Answer(body=json.dumps({"groups": groups}).encode())
        for group, (version, plurals) in GROUPS.items():
            if path == (f"/apis/{group}/{version}" if group else "/api/v1"):
                return Answer(body=json.dumps({"resources": [resource(*each) for each in plurals.items()]}).encode())
        plural = path.rpartition("/")[2]
        if "watch" in query:
            return Answer(body=self.watches[plural].pop(0) if self.watches[plural] else b"", watch=True)
        items = list(self.objects[plural])
        return Answer(body=json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": items}).encode())

    def watched(self, plural: str) -> list[dict[str, str]]:
        return [query for path, query in self.asked if path.endswith(f"/{plural}") and "watch" in query]


def resource(plural: str, kind: str) -> dict[str, Any]:
    return {
        "name": plural,
        "singularName": "",
        "kind": kind,
        "namespaced": plural not in {"namespaces", "nodes"},
        "verbs": ["get", "list", "watch", "patch"],
    }
