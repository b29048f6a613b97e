"""A group of three under a steady load of sessions, for tests that change it, hurt it or leave it alone."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from promptgroup_cli.reach.explained import explain_question
from promptgroup_contract import names
from promptgroup_contract.table import SlotState
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster, log_files
from promptgroup_local.engine.core import COLD
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Task
from support.groups import PROMPTS, group
from support.load import Load, Seen, endless
from support.routed import routed, routers_know

GROUP = "lives"
REPLICAS = 3
SAMPLED = 100
"""Sessions whose rings are looked at."""


@dataclass(frozen=True, slots=True)
class Life:
    """The group, its cluster and the load on it."""

    cluster: LocalCluster
    kube: Kubectl
    load: Load

    def revision(self) -> str:
        """Name of the revision that the group wants to serve."""
        return str((self.kube.get("promptgroup", GROUP) or {})["status"]["revision"])

    def pods(self, revision: str = "") -> dict[str, str]:
        """Slot as the router names it → pod; of the revision that the group wants to serve, or of another."""
        revision = revision or self.revision()
        return {
            f"{self.kube.namespace}/{GROUP}/{revision}/{each['metadata']['labels'][names.LABEL_SLOT]}": each[
                "metadata"
            ]["name"]
            for each in self._engines(revision)
            if names.LABEL_SLOT in each["metadata"]["labels"]
        }

    def nodes(self) -> set[str]:
        """Nodes on which replicas are."""
        return {each["spec"].get("nodeName", "") for each in self._engines(self.revision())}

    def proof(self, name: str) -> str:
        """Container of a pod that was proven warm."""
        found = self.kube.get("pod", name) or {}
        return str(found["metadata"]["annotations"][names.ANNOTATION_WARMED])

    def _engines(self, revision: str) -> list[dict[str, Any]]:
        selector = f"{names.LABEL_GROUP}={GROUP},{names.LABEL_REVISION}={revision}"
        return [each for each in self.kube.list("pods", selector) if "deletionTimestamp" not in each["metadata"]]

    def replaced(self, slot: str, name: str) -> None:
        """Wait until another pod holds the slot and all are warm."""
        wait_for(lambda: True if self.pods().get(slot, name) != name else None, f"another pod in {slot}", self.pods)
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")

    def rolled(self) -> None:
        """Wait until a change has reached all replicas and the last new one has the slot of the one that it replaced.

        Between those two the group has told of three warm replicas all the time.
        """
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
        self.kube.rolled_out(f"{GROUP}-{self.revision()}")
        wait_for(lambda: True if len(self.pods()) == REPLICAS else None, "a new pod in each slot", self.pods)
        self.kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")

    def rings(self) -> dict[str, list[str]]:
        """Session → slots in the order in which the ring prefers them, its home first, once a router knows them all."""
        url, slots = f"{lab.router_admin_url(self.kube)}/explain", self.pods().keys()
        ring = lambda: _ring(url, "any")  # noqa: E731
        wait_for(lambda: True if set(ring()) == slots else None, f"a router to know {sorted(slots)}", ring)
        return {session: _ring(url, session) for session in map(str, range(SAMPLED))}

    def weights(self) -> dict[str, int]:
        """Revision → share of the new sessions, as routers are told."""
        route = self.kube.get("promptroute", GROUP) or {"spec": {"revisions": []}}
        return {each["fingerprint"][:8]: each["weight"] for each in route["spec"]["revisions"]}

    def gone(self, pods: Collection[str]) -> None:
        """Wait until pods are no more, however long they take to end."""
        left = lambda: {each["metadata"]["name"] for each in self.kube.list("pods")} & set(pods)  # noqa: E731
        wait_for(lambda: True if not left() else None, "pods to go", left)

    def kill_operators(self) -> None:
        """Kill the operators' processes; kubelets start them again, sooner or later."""
        killed = 0
        for pod in self.cluster.kubectl("promptgroup-system").list("pods"):
            with suppress(LookupError):  # one that was killed before may still wait to be started again
                self.cluster.kill_pod("promptgroup-system", pod["metadata"]["name"], "operator")
                killed += 1
        assert killed


def _ring(url: str, session: str) -> list[str]:
    body = {
        "model": "tiny",
        "messages": [{"role": "system", "content": PROMPTS["g"]}, {"role": "user", "content": ""}],
    }
    question = explain_question(json.dumps(body), {names.HEADER_SESSION: session})
    told = urllib3.request("POST", url, body=question, timeout=30).json()
    return [each["replica"] for each in told["ring"] if each["state"] == SlotState.READY]


def cold(folder: Path, namespace: str, group: str = GROUP) -> int:
    """Requests that met a cold Tier 1 on engines of the group, those that are gone included."""
    files = log_files(folder, namespace, f"{group}-*")
    return sum(file.read_text(errors="replace").count(COLD) for file in files)


def lives(
    prompt: str = PROMPTS["g"], *, args: tuple[str, ...] = (), env: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """The group as it begins, but for what is given. It lends nothing: who may serve a revision is warm for it."""
    routing = {"sharing": "Dedicated"}
    return group(GROUP, prompt, replicas=REPLICAS, args=args, env=env, routing=routing, **spec)


@contextmanager
def living(cluster: LocalCluster, namespace: str) -> Iterator[Life]:
    """The group in a namespace of its own, warm, routed and under load."""
    with routed(cluster, namespace) as kube:
        kube.apply(lives())
        kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
        routers_know(kube, GROUP)
        target = Target([lab.router_url(kube)], "tiny", groups={"life": GROUP})
        with Load(target, endless(Task("life", PROMPTS["g"])), lambda: cold(cluster.folder, namespace)) as load:
            yield Life(cluster, kube, load)


def unharmed(seen: Seen) -> bool:
    """Every request was answered in full by a replica that was warm for the prompt."""
    assert seen.requests > 0
    assert (seen.failed, seen.cut, seen.cold) == ([], [], 0)
    return True
