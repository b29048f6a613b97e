"""kubectl for programs: JSON in, JSON out, and waiting for a condition instead of a fixed time.

Frequent requests are sent without the program (`api_client`), which is run where that does not get an answer.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import dropwhile
from pathlib import Path
from typing import Any, TypeVar

import yaml

from promptgroup_local.api_client import ApiClient, UnansweredError, api_client

T = TypeVar("T")

DEADLINE = 90.0
"""Longest wait for a condition, in seconds: machines that run demos and tests are shared and slow at times."""
POLL, LONGEST_POLL = 0.1, 1.0
"""Bounds of the polling interval of a condition, in seconds."""
REST = 2.0
"""The polling interval in durations of a probe, so that polling leaves the CPU to the awaited process."""
SHARE = 0.02
"""The polling interval as a share of the wait so far: after a minute, another second does not matter."""


class KubectlError(Exception):
    """kubectl failed; the message is its own."""


class Kubectl:
    """One cluster, one namespace; an empty one means that each object names its own."""

    def __init__(self, kubeconfig: Path, namespace: str, program: str = "kubectl") -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self._program = program

    def within(self, namespace: str) -> "Kubectl":
        """The same cluster, another namespace."""
        return Kubectl(self.kubeconfig, namespace, self._program)

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl.

        Raises:
            KubectlError: it failed, and `check` is on.
        """
        where = [f"--namespace={self.namespace}"] if self.namespace else []
        command = [self._program, f"--kubeconfig={self.kubeconfig}", *where, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, check=False)
        if check and done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def apply(self, *objects: dict[str, Any], check: bool = True) -> subprocess.CompletedProcess[str]:
        """Apply objects: leading ones that do not exist yet without the program, which applies the others."""
        left = list(dropwhile(lambda item: self._done(lambda api: api.create(item, self.namespace)), objects))
        if not left:
            return subprocess.CompletedProcess([], 0, "", "")
        return self.run("apply", "-f", "-", stdin=yaml.safe_dump_all(left), check=check)

    def make_namespace(self, name: str) -> None:
        """Create a namespace."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def apply_folder(self, folder: Path) -> None:
        """Apply a folder's kustomization on the server's side."""
        objects = _kustomized(self._program, folder)
        left = list(dropwhile(lambda item: self._done(lambda api: api.apply(item, self.namespace)), objects))
        if left:
            self.run("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(left))

    def _done(self, request: Callable[[ApiClient], None]) -> bool:
        """Return True if the API server carried out the request; otherwise the program tries it and reports errors."""
        with contextlib.suppress(UnansweredError):
            request(api_client(self.kubeconfig))
            return True
        return False

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """One object, None when there is none."""
        with contextlib.suppress(UnansweredError):
            return api_client(self.kubeconfig).get(kind, name, self.namespace)
        done = self.run("get", kind, name, "-o", "json", "--ignore-not-found")
        result: dict[str, Any] | None = json.loads(done.stdout) if done.stdout.strip() else None
        return result

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of one or more kinds."""
        with contextlib.suppress(UnansweredError):
            return api_client(self.kubeconfig).list(kind, selector, self.namespace)
        arguments = ["get", kind, "-o", "json", *([f"--selector={selector}"] if selector else [])]
        items: list[dict[str, Any]] = json.loads(self.run(*arguments).stdout)["items"]
        return items

    def patch(self, kind: str, name: str, body: dict[str, Any]) -> None:
        """Merge a patch into an object."""
        if not self._done(lambda api: api.patch(kind, name, body, self.namespace)):
            self.run("patch", kind, name, "--type=merge", "-p", json.dumps(body))

    def scale(self, kind: str, name: str, replicas: int) -> None:
        """Set the replicas of an object by its scale subresource."""
        body = {"spec": {"replicas": replicas}}
        if not self._done(lambda api: api.patch(kind, name, body, self.namespace, "scale")):
            self.run("scale", f"{kind}/{name}", f"--replicas={replicas}")

    def delete(self, kind: str, name: str, *extra: str, wait: bool = True) -> None:
        """Delete an object, and wait until it no longer exists; with more flags, by the program."""
        if not extra:
            with contextlib.suppress(UnansweredError):
                uid = api_client(self.kubeconfig).delete(kind, name, self.namespace)
                if wait:
                    wait_for(lambda: self._gone(kind, name, uid), f"{kind} {name} to go")
                return
        self.run("delete", kind, name, *extra, f"--wait={str(wait).lower()}")

    def _gone(self, kind: str, name: str, uid: str) -> bool | None:
        result = self.get(kind, name)
        return True if result is None or result["metadata"]["uid"] != uid else None

    def rolled_out(self, deployment: str, seconds: float = DEADLINE) -> None:
        """Wait until all replicas of a Deployment are of its template and available, as `rollout status` does."""

        def holds() -> bool | None:
            result = self.get("deployment", deployment) or {"metadata": {"generation": 1}, "spec": {"replicas": 1}}
            status, replicas = result.get("status", {}), result["spec"]["replicas"]
            fresh = status.get("observedGeneration", 0) >= result["metadata"]["generation"]
            counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
            return True if fresh and counts == {replicas} else None

        wait_for(holds, f"deployment {deployment} to roll out", lambda: self.get("deployment", deployment), seconds)

    def condition(self, group: str, kind: str) -> dict[str, Any]:
        """A condition of a PromptGroup, empty when it has none of that type."""
        promptgroup = self.get("promptgroup", group) or {}
        conditions = promptgroup.get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def wait_condition(self, group: str, kind: str, status: str, reason: str | None = None) -> dict[str, Any]:
        """Wait until a PromptGroup has the condition for its present generation."""

        def holds() -> dict[str, Any] | None:
            promptgroup = self.get("promptgroup", group) or {}
            generation = promptgroup.get("metadata", {}).get("generation")
            for condition in promptgroup.get("status", {}).get("conditions", []):
                if (condition["type"], condition["status"], condition["observedGeneration"]) == (
                    kind,
                    status,
                    generation,
                ):
                    return condition if reason in (None, condition["reason"]) else None
            return None

        return wait_for(
            holds,
            f"{group}: {kind}={status} {reason or ''}",
            lambda: (self.get("promptgroup", group) or {}).get("status"),
        )

    def wait_warm(self, group: str, warm: str, seconds: float = DEADLINE) -> dict[str, Any]:
        """Wait until a PromptGroup reports `warm`, as in 3/3, for its present generation and is Ready."""

        def holds() -> dict[str, Any] | None:
            promptgroup = self.get("promptgroup", group) or {}
            status = promptgroup.get("status", {})
            fresh = status.get("observedGeneration") == promptgroup.get("metadata", {}).get("generation")
            ready = any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in status.get("conditions", [])
            )
            return promptgroup if fresh and ready and status.get("warm") == warm else None

        return wait_for(
            holds, f"{group}: warm {warm}", lambda: (self.get("promptgroup", group) or {}).get("status"), seconds
        )


@lru_cache
def _kustomized(program: str, folder: Path) -> Sequence[dict[str, Any]]:
    """The objects of a kustomization."""
    done = subprocess.run([program, "kustomize", str(folder)], capture_output=True, text=True, timeout=180, check=False)
    if done.returncode != 0:
        raise KubectlError(f"kubectl kustomize {folder}: {done.stderr.strip()}")
    return tuple(yaml.safe_load_all(done.stdout))


def wait_for(
    probe: Callable[[], T | None],
    subject: str,
    show: Callable[[], object] | None = None,
    seconds: float = DEADLINE,
) -> T:
    """Return the answer of `probe` once it is not None.

    Raises:
        TimeoutError: it was None for too long; the message has the awaited condition and the last state.
    """
    start = time.monotonic()
    deadline = start + seconds
    while True:
        began = time.monotonic()
        answer = probe()
        if answer is not None:
            return answer
        now = time.monotonic()
        if now > deadline:
            state = json.dumps(show(), indent=1, default=str)[:6000] if show else ""
            raise TimeoutError(f"waited {seconds:.0f} s in vain for {subject}\n{state}")
        time.sleep(min(max(POLL, REST * (now - began), SHARE * (now - start)), LONGEST_POLL))
