"""What a kubelet says about a pod: phase, conditions, container states. Pure.

phase      Pending    a container has not started yet
           Running    all have started
           Succeeded, Failed   all have ended and none is started again
Ready      ContainersReady and every readiness gate's condition True (KEP-580)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class Container:
    """One container's life so far."""

    name: str
    image: str
    id: str = ""
    """`local://<uuid>`, another at each start; empty before the first."""
    pid: int | None = None
    """Of the process that runs now."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    restarts: int = 0
    waiting: str = "ContainerCreating"
    """Why it does not run, when it does not."""
    message: str = ""
    started: bool = False
    """The startup probe has succeeded, or there is none."""
    ready: bool = False
    """The readiness probe succeeds, or there is none."""
    finished: bool = False
    """It has ended and is not started again."""
    last: "dict[str, Any] | None" = None
    """State of the process before, as the API shows it."""

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.pid is not None

    def ended(self) -> dict[str, Any]:
        """The terminated state of its latest process."""
        return {
            "exitCode": self.exit_code if self.exit_code is not None else 0,
            "reason": "Completed" if self.exit_code == 0 else "Error",
            "containerID": self.id,
            "startedAt": stamp(self.started_at),
            "finishedAt": stamp(self.finished_at),
        }


def stamp(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the second, as the API server keeps it."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment is not None else None


def build(
    pod: Mapping[str, Any],
    init: Sequence[Container],
    main: Sequence[Container],
    *,
    pod_ip: str,
    started: datetime,
    now: datetime,
) -> dict[str, Any]:
    """The status that the agent writes: its own conditions only."""
    initialized = all(container.finished and container.exit_code == 0 for container in init)
    ready = all(container.ready and container.running for container in main)
    old = {each["type"]: each for each in pod.get("status", {}).get("conditions", [])}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])]
    missing = [gate for gate in gates if old.get(gate, {}).get("status") != "True"]
    facts = [
        ("PodReadyToStartContainers", True, "", ""),
        ("Initialized", initialized, "" if initialized else "ContainersNotInitialized", ""),
        ("ContainersReady", ready, "" if ready else "ContainersNotReady", ""),
        ("Ready", ready and not missing, *_why(ready, missing)),
    ]
    status: dict[str, Any] = {
        "phase": phase(init, main),
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": stamp(started),
        "conditions": [_condition(old.get(fact[0], {}), fact, now) for fact in facts],
        "containerStatuses": [_container(each) for each in main],
    }
    if init:
        status["initContainerStatuses"] = [_container(each) for each in init]
    return status


def _why(ready: bool, missing: Sequence[str]) -> tuple[str, str]:
    if not ready:
        return "ContainersNotReady", ""
    if missing:
        return "ReadinessGatesNotReady", f"conditions not True: {', '.join(missing)}"
    return "", ""


def phase(init: Sequence[Container], main: Sequence[Container]) -> str:
    """The pod's phase."""
    if any(container.finished and container.exit_code != 0 for container in init):
        return "Failed"
    if all(container.finished for container in main):
        return "Failed" if any(container.exit_code != 0 for container in main) else "Succeeded"
    return "Running" if all(container.started_at is not None for container in main) else "Pending"


def _condition(old: Mapping[str, Any], fact: tuple[str, bool, str, str], now: datetime) -> dict[str, Any]:
    kind, holds, reason, message = fact
    status = "True" if holds else "False"
    turned = old.get("status") != status
    condition = {"type": kind, "status": status, "lastProbeTime": None}
    condition["lastTransitionTime"] = stamp(now) if turned else old.get("lastTransitionTime")
    return condition | {"reason": reason or None, "message": message or None}


def _container(container: Container) -> dict[str, Any]:
    if container.running:
        state = {"running": {"startedAt": stamp(container.started_at)}, "waiting": None, "terminated": None}
    elif container.finished:
        state = {"terminated": container.ended(), "waiting": None, "running": None}
    else:
        waiting = {"reason": container.waiting, "message": container.message or None}
        state = {"waiting": waiting, "running": None, "terminated": None}
    return {
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": container.id,
        "restartCount": container.restarts,
        "started": container.running and container.started,
        "ready": container.running and container.ready,
        "state": {key: value for key, value in state.items() if value is not None},
        "lastState": {"terminated": container.last} if container.last is not None else {},
    }
