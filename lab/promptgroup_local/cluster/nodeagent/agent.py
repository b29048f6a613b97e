"""A node: its object and heartbeat, and the pods that are bound to it."""

import asyncio
import contextlib
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from promptgroup_local.cluster import binaries, process
from promptgroup_local.cluster.certs import Pair
from promptgroup_local.cluster.images import Images
from promptgroup_local.cluster.nodeagent import node
from promptgroup_local.cluster.nodeagent.addresses import Block
from promptgroup_local.cluster.nodeagent.api import MERGE, STRATEGIC, Api, ApiError
from promptgroup_local.cluster.nodeagent.hollow import HollowPod
from promptgroup_local.cluster.nodeagent.logserver import LogServer
from promptgroup_local.cluster.nodeagent.pods.container import Machine
from promptgroup_local.cluster.nodeagent.pods.pod import PodRunner
from promptgroup_local.cluster.nodeagent.pods.template import Templates

HEARTBEAT_SECONDS = 10.0
"""As a kubelet; the node counts as lost after 50 s without."""
RETRY_SECONDS = 0.5
"""Between two tries to reach the API server: it starts within seconds, and someone waits for it."""


class Agent:
    """Runs a node until it is cancelled; then the processes of its pods are killed."""

    def __init__(
        self,
        api: Api,
        name: str,
        folder: Path,
        *,
        images: Images,
        gpus: int,
        serving: Pair,
        hollow: bool = False,
    ) -> None:
        self._api = api
        self._name = name
        self._images = images
        self._gpus = gpus
        self._runner = HollowPod if hollow else PodRunner
        self._capacity = node.HOLLOW_PODS if hollow else node.PODS
        self._serving = serving
        self._pods = folder / "pods"
        self._logs = folder / "logs"
        self._block = Block()
        self._running: dict[str, PodRunner] = {}
        self._log_server = LogServer(self._logs, self._writes)

    async def run(self) -> None:
        """Register the node and run its pods."""
        process.end_all_in(self._pods)
        base = self._base()
        templates = Templates({**os.environ, **base})
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            async with self._api, aiohttp.ClientSession(trust_env=False) as http, asyncio.TaskGroup() as tasks:
                machine = Machine(self._api, http, self._images, self._pods, self._logs, base, templates)
                await self._log_server.start(
                    self._block.socket,
                    ca=self._api.ca,
                    certificate=self._serving.certificate,
                    key=self._serving.key,
                )
                tasks.create_task(self._heartbeat(await self._register()))
                await self._follow(machine, tasks)
        finally:
            await templates.close()
            await self._log_server.close()
            self._block.close()

    def _base(self) -> dict[str, str]:
        """Return the part of this machine's environment that containers get: PATH and the API server."""
        host, _, port = self._api.server.removeprefix("https://").partition(":")
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        inherited = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        return {"PATH": path, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, **inherited} | {
            process.MARK: str(self._pods)
        }

    # --- the node --------------------------------------------------------------------------------------------

    async def _register(self) -> dict[str, Any]:
        """Create the node, ready; returns it as written."""
        desired = node.node(
            self._name,
            self._block.address,
            release=binaries.version("k8s.io/kubernetes"),
            gpus=self._gpus,
            pods=self._capacity,
            now=_now(),
        )
        while True:
            try:
                with contextlib.suppress(ApiError):  # it exists
                    await self._api.request("POST", "/api/v1/nodes", desired)
                await self._say_ready(desired)
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                print(f"node {self._name}: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return desired

    async def _say_ready(self, desired: dict[str, Any]) -> None:
        """Write the node's status; the API server does not store an unchanged one again."""
        body = {"status": desired["status"]}
        await self._api.request("PATCH", f"/api/v1/nodes/{self._name}/status", body, kind=STRATEGIC, heartbeat=True)

    async def _heartbeat(self, desired: dict[str, Any]) -> None:
        """Renew the node's Lease; one lost with an API server's store is created again.

        The node reports Ready each time: after missing heartbeats, the node controller has set its conditions to
        Unknown, and taints it until it reports again.
        """
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                try:
                    body = {"spec": {"renewTime": node.micro(_now())}}
                    await self._api.request("PATCH", f"{leases}/{self._name}", body, kind=MERGE, heartbeat=True)
                except ApiError:
                    with contextlib.suppress(ApiError):
                        await self._api.request("POST", leases, node.lease(self._name, _now()), heartbeat=True)
                with contextlib.suppress(ApiError):
                    await self._say_ready(desired)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    # --- its pods --------------------------------------------------------------------------------------------

    async def _follow(self, machine: Machine, tasks: asyncio.TaskGroup) -> None:
        """List, then watch, and again whenever the watch ends."""
        query = {"fieldSelector": f"spec.nodeName={self._name}"}
        while True:
            try:
                listed = await self._api.request("GET", "/api/v1/pods", query=query)
                present = {pod["metadata"]["uid"] for pod in listed["items"]}
                for uid in set(self._running) - present:
                    self._running[uid].vanished()
                for pod in listed["items"]:
                    self._take(pod, machine, tasks)
                since = {"resourceVersion": listed["metadata"]["resourceVersion"]}
                async for kind, result in self._api.watch("/api/v1/pods", {**query, **since}):
                    if kind == "ERROR":  # the version is too old: list anew
                        break
                    if kind == "DELETED" and result["metadata"]["uid"] in self._running:
                        self._running[result["metadata"]["uid"]].vanished()
                    elif kind in {"ADDED", "MODIFIED"}:
                        self._take(result, machine, tasks)
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                print(f"watch of pods: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(RETRY_SECONDS)

    def _take(self, pod: dict[str, Any], machine: Machine, tasks: asyncio.TaskGroup) -> None:
        runner = self._running.get(pod["metadata"]["uid"])
        if runner is not None:
            runner.update(pod)
        elif not _over(pod):
            runner = self._runner(machine, pod, self._block.take())
            self._running[runner.uid] = runner
            tasks.create_task(self._run(runner))

    def _writes(self, namespace: str, pod: str, container: str) -> bool:
        return any(runner.writes(namespace, pod, container) for runner in self._running.values())

    async def _run(self, runner: PodRunner) -> None:
        try:
            await runner.run()
        except Exception:  # noqa: BLE001 - a fault must not end the node's other pods
            traceback.print_exc()
        finally:
            del self._running[runner.uid]
            self._block.give_back(runner.address)


def _over(pod: Mapping[str, Any]) -> bool:
    """Return True if only others' finalizers keep the object: its processes have ended."""
    return pod["metadata"].get("deletionGracePeriodSeconds") == 0 and "finalizers" in pod["metadata"]


def _now() -> datetime:
    return datetime.now(UTC)
