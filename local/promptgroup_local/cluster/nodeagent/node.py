"""The node: registered, heard of every few seconds, running the pods that are bound to it."""

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import os
import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from promptgroup_local.cluster.nodeagent.api import STRATEGIC, Api, ApiError
from promptgroup_local.cluster.nodeagent.pod import Pod
from promptgroup_local.cluster.images import Images

logger = logging.getLogger(__name__)

HEARTBEAT = 10.0
"""Seconds between renewals of the node's Lease; its absence for 50 makes the node NotReady."""
RELIST = 1.0
"""Seconds before a broken watch is begun anew."""
POD_NETWORK = ipaddress.ip_network("127.64.0.0/10")
"""Addresses of pods: Linux answers on all of 127.0.0.0/8 without any set-up."""


class Node:
    """One node of the cluster."""

    def __init__(self, api: Api, name: str, folder: Path, known: Images, gpus: int) -> None:
        self._api = api
        self._name = name
        self._folder = folder
        self._images = known
        self._gpus = gpus
        self._pods: dict[str, Pod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._addresses = _addresses()

    async def run(self) -> None:
        """Serve until cancelled; then every pod's processes are killed."""
        shutil.rmtree(self._folder / "pods", ignore_errors=True)
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as tasks:
            try:
                await self._register()
                tasks.create_task(self._beat())
                await self._follow(http)
            finally:
                for task in self._tasks.values():
                    task.cancel()
                await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # --- the node ------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self._name,
                "labels": {
                    "kubernetes.io/hostname": self._name,
                    "kubernetes.io/os": "linux",
                    "node-role.kubernetes.io/worker": "",
                },
            },
        }
        while True:
            try:
                with contextlib.suppress(_Exists):
                    await _create(self._api, "/api/v1/nodes", node)
                await self._write_status()
                await self._renew()
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                logger.warning("register node %s: %s", self._name, error)
                await asyncio.sleep(RELIST)
            else:
                return

    async def _write_status(self) -> None:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        resources = {
            "cpu": "64",
            "memory": "256Gi",
            "pods": "250",
            "ephemeral-storage": "256Gi",
            "nvidia.com/gpu": str(self._gpus),
        }
        ready = {"type": "Ready", "status": "True", "reason": "AgentReady", "message": "pods run as local processes"}
        status = {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self._name},
            ],
            "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "nodeInfo": {
                "architecture": os.uname().machine,
                "bootID": "",
                "containerRuntimeVersion": "local://1",
                "kernelVersion": os.uname().release,
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.3-local",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "processes of this machine",
                "systemUUID": "",
            },
        }
        await self._api.request("PATCH", f"/api/v1/nodes/{self._name}/status", {"status": status}, kind=STRATEGIC)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            try:
                await self._renew()
                await self._write_status()
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                logger.warning("heartbeat of node %s: %s", self._name, error)

    async def _renew(self) -> None:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            await self._api.request(
                "PATCH", f"{path}/{self._name}", {"spec": spec}, kind="application/merge-patch+json"
            )
        except ApiError as error:
            if error.status != 404:
                raise
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
            await self._api.request("POST", path, {**lease, "spec": spec})

    # --- its pods ------------------------------------------------------------------------------------------

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        """List and watch the node's pods, for ever."""
        query = {"fieldSelector": f"spec.nodeName={self._name}"}
        while True:
            try:
                listed = await self._api.request("GET", "/api/v1/pods", query=query)
                self._sync(listed["items"], http)
                version = listed["metadata"]["resourceVersion"]
                async for kind, raw in self._api.watch("/api/v1/pods", {**query, "resourceVersion": version}):
                    if kind == "ERROR":
                        break
                    if kind in ("ADDED", "MODIFIED"):
                        self._take(raw, http)
                    elif kind == "DELETED":
                        self._drop(raw["metadata"]["uid"])
            except (ApiError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                logger.warning("watch of pods: %s: %s", type(error).__name__, error)
            await asyncio.sleep(RELIST * random.uniform(0.5, 1))  # noqa: S311 - spreads load

    def _sync(self, items: list[dict[str, Any]], http: aiohttp.ClientSession) -> None:
        for raw in items:
            self._take(raw, http)
        for uid in self._pods.keys() - {raw["metadata"]["uid"] for raw in items}:
            self._drop(uid)

    def _take(self, raw: dict[str, Any], http: aiohttp.ClientSession) -> None:
        uid = raw["metadata"]["uid"]
        pod = self._pods.get(uid)
        if pod is not None:
            pod.update(raw)
            return
        if raw.get("status", {}).get("phase") in ("Succeeded", "Failed") and "deletionTimestamp" not in raw["metadata"]:
            return
        folder = self._folder / "pods" / uid
        folder.mkdir(parents=True, exist_ok=True)
        address = next(self._addresses)
        pod = Pod(self._api, http, self._images, raw, address, folder, self._folder / "logs")
        self._pods[uid] = pod
        task = asyncio.ensure_future(pod.run())
        self._tasks[uid] = task
        task.add_done_callback(lambda _: self._forget(uid))

    def _drop(self, uid: str) -> None:
        """The object is gone without us: its processes go at once."""
        task = self._tasks.get(uid)
        if task is not None:
            task.cancel()

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._tasks.pop(uid, None)


class _Exists(Exception):  # noqa: N818
    pass


async def _create(api: Api, path: str, body: dict[str, Any]) -> None:
    try:
        await api.request("POST", path, body)
    except ApiError as error:
        if error.status == 409:
            raise _Exists from error
        raise


def _addresses() -> Iterator[str]:
    """Addresses in turn from a random start, so that two clusters on one machine rarely meet."""
    size = POD_NETWORK.num_addresses
    start = random.randrange(1, size - 2)  # noqa: S311 - spreads, guards nothing
    for number in itertools.count(start):
        yield str(POD_NETWORK[1 + number % (size - 2)])
