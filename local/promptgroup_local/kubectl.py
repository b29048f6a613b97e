"""kubectl as a program sees it: JSON in, JSON out, and waiting on a condition instead of on time.

What is read often is read without the program (`api_reader`), which is asked where that does not get an answer.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from promptgroup_local.api_reader import UnreadError, api_reader

T = TypeVar("T")

DEADLINE = 90.0
"""Longest wait for a condition, in seconds: machines that run demos and tests are shared and slow at times."""
POLL, LONGEST_POLL = 0.1, 1.0
"""Bounds of the time between two looks at a condition, in seconds."""
REST = 2.0
"""That time in durations of a look: whoever waits leaves the machine to what is waited for."""
SHARE = 0.02
"""That time as a share of the wait so far: who has waited for a minute is not late by a second."""


class KubectlError(Exception):
    """kubectl failed; the message is its own."""


class Kubectl:
    """One cluster, one namespace; an empty one is what each object names."""

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
        """Apply objects."""
        return self.run("apply", "-f", "-", stdin=yaml.safe_dump_all(objects), check=check)

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """One object, None when there is none."""
        with contextlib.suppress(UnreadError):
            return api_reader(self.kubeconfig).get(kind, name, self.namespace)
        done = self.run("get", kind, name, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] | None = json.loads(done.stdout) if done.stdout.strip() else None
        return found

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of one or more kinds."""
        with contextlib.suppress(UnreadError):
            return api_reader(self.kubeconfig).list(kind, selector, self.namespace)
        arguments = ["get", kind, "-o", "json", *([f"--selector={selector}"] if selector else [])]
        items: list[dict[str, Any]] = json.loads(self.run(*arguments).stdout)["items"]
        return items

    def patch(self, kind: str, name: str, body: dict[str, Any]) -> None:
        """Merge a patch into an object."""
        self.run("patch", kind, name, "--type=merge", "-p", json.dumps(body))

    def delete(self, kind: str, name: str, *extra: str) -> None:
        """Delete an object."""
        self.run("delete", kind, name, *extra)

    def condition(self, group: str, kind: str) -> dict[str, Any]:
        """A condition of a PromptGroup, empty when it has none of that type."""
        found = self.get("promptgroup", group) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def wait_condition(self, group: str, kind: str, status: str, reason: str | None = None) -> dict[str, Any]:
        """Wait until a PromptGroup has the condition for its present generation."""

        def holds() -> dict[str, Any] | None:
            found = self.get("promptgroup", group) or {}
            generation = found.get("metadata", {}).get("generation")
            for each in found.get("status", {}).get("conditions", []):
                if (each["type"], each["status"], each["observedGeneration"]) == (kind, status, generation):
                    return each if reason in (None, each["reason"]) else None
            return None

        return wait_for(
            holds,
            f"{group}: {kind}={status} {reason or ''}",
            lambda: (self.get("promptgroup", group) or {}).get("status"),
        )

    def wait_warm(self, group: str, warm: str, seconds: float = DEADLINE) -> dict[str, Any]:
        """Wait until a PromptGroup reports `warm`, as in 3/3, for its present generation and is Ready."""

        def holds() -> dict[str, Any] | None:
            found = self.get("promptgroup", group) or {}
            status = found.get("status", {})
            fresh = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
            ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
            return found if fresh and ready and status.get("warm") == warm else None

        return wait_for(
            holds, f"{group}: warm {warm}", lambda: (self.get("promptgroup", group) or {}).get("status"), seconds
        )


def wait_for(
    probe: Callable[[], T | None],
    what: str,
    show: Callable[[], object] | None = None,
    seconds: float = DEADLINE,
) -> T:
    """Return the answer of `probe` once it is not None.

    Raises:
        TimeoutError: it did not in time; the message has what was waited for and the last state.
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
            raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}\n{state}")
        time.sleep(min(max(POLL, REST * (now - began), SHARE * (now - start)), LONGEST_POLL))
