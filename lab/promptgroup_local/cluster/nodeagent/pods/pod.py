"""One pod on this node, from its binding to its removal.

volumes → init containers, one by one → containers, each supervised on its own → wait for deletion → delete
                      the pod is to go ──▶ preStop, SIGTERM, SIGKILL ─────────────────▲
"""

import asyncio
import shutil
import sys
from datetime import UTC, datetime
from typing import Any

import aiohttp

from promptgroup_local.cluster.nodeagent import command
from promptgroup_local.cluster.nodeagent.api import STRATEGIC, ApiError
from promptgroup_local.cluster.nodeagent.pods import status, volumes
from promptgroup_local.cluster.nodeagent.pods.container import (
    MINIMUM_GRACE_SECONDS,
    RETRIED,
    RETRY_SECONDS,
    Machine,
    PodContext,
    supervise,
)
from promptgroup_local.cluster.nodeagent.pods.status import Container

GONE = {404, 409}
"""Answers that mean: no such pod, or another one of that name."""


class PodRunner:
    """Runs one pod. `update` and `vanished` report changes of its object; `run` returns when all is done."""

    def __init__(self, machine: Machine, pod: dict[str, Any], address: str) -> None:
        self._context = PodContext(machine, pod, address)
        self._began = datetime.now(UTC)
        spec, resumed = pod["spec"], pod.get("status", {})
        policy = spec.get("restartPolicy", "Always")
        self._init = _lives(spec.get("initContainers", []), resumed.get("initContainerStatuses"), policy)
        self._main = _lives(spec["containers"], resumed.get("containerStatuses"), policy)
        self._over = resumed.get("phase") in {"Succeeded", "Failed"}
        """True if it ended under an earlier agent: its status is final, its object waits to be deleted."""
        self._sent: dict[str, Any] = {}
        if "deletionTimestamp" in pod["metadata"]:
            self._context.stopping.set()

    @property
    def uid(self) -> str:
        """The pod's identity."""
        return str(self._context.pod["metadata"]["uid"])

    @property
    def address(self) -> str:
        """The pod's address."""
        return self._context.address

    def writes(self, namespace: str, pod: str, container: str) -> bool:
        """Return True if this is that pod and its container may still write something."""
        metadata = self._context.pod["metadata"]
        return (metadata["namespace"], metadata["name"]) == (namespace, pod) and any(
            life.name == container and not life.finished for life in (*self._init, *self._main)
        )

    def update(self, pod: dict[str, Any]) -> None:
        """Accept a newer version of the object."""
        metadata, known = pod["metadata"], self._context.pod["metadata"]
        if int(metadata["resourceVersion"]) <= int(known["resourceVersion"]):
            return  # the answer to a patch arrived before the watch reported an earlier version
        self._context.pod = pod
        self._context.changed.set()
        if "deletionTimestamp" in metadata:
            self._context.stop(metadata.get("deletionGracePeriodSeconds", 0))

    def vanished(self) -> None:
        """The object no longer exists: deleted without grace period, or while this agent did not watch."""
        self._context.vanished = True
        self._context.stop(MINIMUM_GRACE_SECONDS)

    async def run(self) -> None:
        """Run the pod until its object is deleted and its processes have ended. Cancelled: kills the processes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                reporting = tasks.create_task(self._report())
                renewing = tasks.create_task(self._renew())
                await self._live()
                await self._context.stopping.wait()
                reporting.cancel()
                renewing.cancel()
            await self._remove()
        finally:
            shutil.rmtree(self._context.folder, ignore_errors=True)

    # --- life ------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        if self._over or all(life.finished for life in self._main):
            return
        spec = self._context.pod["spec"]
        refusal = command.unsupported(self._context.pod)
        if refusal:
            self._wait_all("CreateContainerConfigError", refusal)
            return
        self._context.scratch.mkdir(parents=True, exist_ok=True)
        if not await self._fill():
            return
        self._wait_all("PodInitializing" if self._init else "ContainerCreating", "")
        for item, life in zip(spec.get("initContainers", []), self._init, strict=True):
            await supervise(self._context, item, life, init=True)
            if not (life.finished and life.exit_code == 0):
                return
        async with asyncio.TaskGroup() as tasks:
            for item, life in zip(spec["containers"], self._main, strict=True):
                tasks.create_task(supervise(self._context, item, life, init=False))

    async def _fill(self) -> bool:
        """Write the volumes, with retries; False when the pod must stop first. Waiting containers show the reason."""
        context = self._context
        while not context.stopping.is_set():
            try:
                await volumes.fill(context.machine.api, context.pod, context.address, context.volumes)
            except RETRIED as error:
                self._wait_all("ContainerCreating", str(error) or type(error).__name__)
                await context.pause(RETRY_SECONDS)
            else:
                return True
        return False

    async def _renew(self) -> None:
        """Write projected tokens anew before they expire."""
        while volumes.token_sources(self._context.pod):
            await asyncio.sleep(volumes.RENEW.total_seconds())
            await self._fill()

    def _wait_all(self, reason: str, message: str) -> None:
        for life in (*self._init, *self._main):
            if not life.running:
                life.waiting, life.message = reason, message
        self._context.changed.set()

    # --- reports to the API server ---------------------------------------------------------------------------

    def _path(self, subresource: str = "") -> str:
        metadata = self._context.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{subresource}"

    async def _report(self) -> None:
        """Write the status whenever it has changed."""
        changed = self._context.changed
        changed.set()
        while True:
            await changed.wait()
            changed.clear()
            try:
                await self._send()
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                self._say("status", error)
                await asyncio.sleep(RETRY_SECONDS)
                changed.set()

    async def _send(self) -> None:
        context = self._context
        written = status.build(
            context.pod, self._init, self._main, pod_ip=context.address, started=self._began, now=datetime.now(UTC)
        )
        if written == self._sent or context.vanished or self._over:
            return
        only = {"podIPs": [*written["podIPs"], {"$patch": "replace"}]}  # without the address that an earlier agent gave
        body = {"metadata": {"uid": self.uid}, "status": written | only}
        try:
            pod = await context.machine.api.request("PATCH", self._path("/status"), body, kind=STRATEGIC)
        except ApiError as error:
            if error.status not in GONE:
                raise
            return
        self._sent = written
        self.update(pod)

    async def _remove(self) -> None:
        """Write the last status and remove the object, as the last that a kubelet does for a pod."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        while not self._context.vanished:
            try:
                await self._send()
                await self._context.machine.api.request("DELETE", self._path(), body)
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                if isinstance(error, ApiError) and error.status in GONE:
                    return
                self._say("deletion", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _say(self, subject: str, error: Exception) -> None:
        print(f"{self._path()}: {subject}: {str(error) or type(error).__name__}", file=sys.stderr, flush=True)


def _lives(specs: list[dict[str, Any]], known: list[dict[str, Any]] | None, policy: str) -> list[Container]:
    """The containers as an earlier agent left them, or new."""
    statuses = {item["name"]: item for item in known or []}
    lives = [Container(spec["name"], spec["image"]) for spec in specs]
    for life in lives:
        life.resume(statuses.get(life.name, {}), policy)
    return lives
