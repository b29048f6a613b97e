"""Makes the status of a pod as a kubelet does: phase, conditions, container states. Does no I/O.

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
    """Id of the running process."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    restarts: int = 0
    waiting: str = "ContainerCreating"
    """The reason why it does not run, when it does not."""
    message: str = ""
    """Message of the waiting state."""
    started: bool = False
    """The startup probe has succeeded, or there is none."""
    ready: bool = False
    """The readiness probe succeeds, or there is none."""
    finished: bool = False
    """It has ended and is not started again."""
    reason: str = ""
    """The reason why the latest process ended, where its exit code does not say; `detail` in words."""
    detail: str = ""
    last: "dict[str, Any] | None" = None
    """State of the process before, as the API shows it."""

    def begin(self, identity: str, now: datetime) -> None:
        """A process is about to start."""
        self.last = self.ended() if self.id else None
        self.id, self.started_at, self.finished_at, self.exit_code = identity, now, None, None
        self.reason = self.detail = self.message = ""

    def end(self, exit_code: int, now: datetime, *, reason: str = "", detail: str = "") -> None:
        """Its process has ended, or could not be started."""
        self.pid, self.exit_code, self.finished_at = None, exit_code, now
        self.reason, self.detail = reason, detail
        self.started = self.ready = False

    def resume(self, status: Mapping[str, Any], policy: str) -> None:
        """Restore the status that an earlier agent reported; its process has ended."""
        self.id = status.get("containerID", "")
        self.restarts = status.get("restartCount", 0)
        state = status.get("state", {})
        ended = state.get("terminated") or status.get("lastState", {}).get("terminated") or {}
        began = ended.get("startedAt") or state.get("running", {}).get("startedAt")
        self.started_at = parse(began)
        self.finished_at = parse(ended.get("finishedAt"))
        self.exit_code = ended.get("exitCode")
        if "running" in state:  # as a kubelet reports a process of which it has lost sight
            self.exit_code, self.reason = 137, "ContainerStatusUnknown"
        if self.id:
            self.finished = policy == "Never" or (policy == "OnFailure" and self.exit_code == 0)
            self.restarts += not self.finished

    @property
    def running(self) -> bool:
        """True if its process runs."""
        return self.pid is not None

    def ended(self) -> dict[str, Any]:
        """The terminated state of its latest process."""
        return {
            "exitCode": self.exit_code if self.exit_code is not None else 0,
            "reason": self.reason or ("Completed" if self.exit_code == 0 else "Error"),
            "message": self.detail or None,
            "containerID": self.id,
            "startedAt": _stamp(self.started_at),
            "finishedAt": _stamp(self.finished_at),
        }


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second, as the API server keeps it."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _stamp(moment: datetime | None) -> str | None:
    return stamp(moment) if moment is not None else None


def parse(moment: str | None) -> datetime | None:
    """The reverse of `stamp`."""
    return datetime.fromisoformat(moment) if moment else None


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
    old = {condition["type"]: condition for condition in pod.get("status", {}).get("conditions", [])}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])]
    missing = [gate for gate in gates if old.get(gate, {}).get("status") != "True"]
    facts = [
        ("PodReadyToStartContainers", True, "", ""),
        ("Initialized", initialized, "" if initialized else "ContainersNotInitialized", ""),
        ("ContainersReady", ready, "" if ready else "ContainersNotReady", ""),
        ("Ready", ready and not missing, *_why(ready, missing)),
    ]
    status: dict[str, Any] = {
        "observedGeneration": pod["metadata"].get("generation"),
        "phase": phase(init, main),
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": stamp(started),
        "conditions": [_condition(old.get(fact[0], {}), fact, now) for fact in facts],
        "containerStatuses": [_container(container) for container in main],
    }
    if init:
        status["initContainerStatuses"] = [_container(container) for container in init]
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
    last = container.last
    if container.running:
        state = {"running": {"startedAt": _stamp(container.started_at)}, "waiting": None, "terminated": None}
    elif container.finished:
        state = {"terminated": container.ended(), "waiting": None, "running": None}
    else:
        last = container.ended() if container.exit_code is not None else last
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
        "lastState": {"terminated": last} if last is not None else {},
    }
