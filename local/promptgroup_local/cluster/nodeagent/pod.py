"""One pod on this node, from its binding to its removal: volumes, init containers, containers, status, termination.

volumes → init containers, one by one → containers, each supervised on its own → wait for deletion → delete
                      the pod is to go ──▶ preStop, SIGTERM, SIGKILL ─────────────────▲
"""

import asyncio
import contextlib
import shutil
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from promptgroup_local.cluster import images
from promptgroup_local.cluster.nodeagent import command, environment, launch, podstatus, probes, volumes, watching
from promptgroup_local.cluster.nodeagent.api import STRATEGIC, Api, ApiError
from promptgroup_local.cluster.nodeagent.podstatus import Container
from promptgroup_local.cluster.nodeagent.restarts import Backoff, restarts

RETRY_SECONDS = 1.0
"""Between two tries of what depends on other objects, or on the API server."""
MINIMUM_GRACE_SECONDS = 2.0
"""What a process gets between SIGTERM and SIGKILL even when preStop took all of the grace period (as a kubelet)."""

GONE = {404, 409}
"""Answers that mean: no such pod, or another one of that name."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What all pods of a node share."""

    api: Api
    http: aiohttp.ClientSession
    """For probes."""
    images: images.Images
    pods: Path
    """A folder a pod."""
    logs: Path
    """A file a container."""
    base: Mapping[str, str]
    """Variables that every container has."""


class PodRunner:
    """Runs one pod. `update` and `vanished` tell it what became of its object; `run` returns when all is done."""

    def __init__(self, machine: Machine, pod: dict[str, Any], address: str) -> None:
        self._machine = machine
        self._pod = pod
        self.address = address
        self._folder = machine.pods / command.folder_name(pod["metadata"])
        self._began = _now()
        spec = pod["spec"]
        self._init = [Container(each["name"], each["image"]) for each in spec.get("initContainers", [])]
        self._main = [Container(each["name"], each["image"]) for each in spec["containers"]]
        policy = spec.get("restartPolicy", "Always")
        for life, each in zip(
            (*self._init, *self._main), _statuses(pod, len(self._init), len(self._main)), strict=True
        ):
            life.resume(each, policy)
        self._over = all(life.finished for life in self._main)
        """It ended under an earlier agent: its status stands, its object waits to be deleted."""
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._vanished = False
        self._limits: set[asyncio.Timeout] = set()
        self._sent: dict[str, Any] = {}
        if "deletionTimestamp" in pod["metadata"]:
            self._stopping.set()

    @property
    def uid(self) -> str:
        """The pod's identity."""
        return str(self._pod["metadata"]["uid"])

    def update(self, pod: dict[str, Any]) -> None:
        """Take a newer version of the object."""
        if int(pod["metadata"]["resourceVersion"]) <= int(self._pod["metadata"]["resourceVersion"]):
            return  # the answer to a patch came before the watch told of an earlier version
        self._pod = pod
        self._changed.set()
        if "deletionTimestamp" in pod["metadata"]:
            self._stop(pod["metadata"].get("deletionGracePeriodSeconds", 0))

    def vanished(self) -> None:
        """The object is gone: deleted with no grace, or while this agent did not see it."""
        self._vanished = True
        self._stop(MINIMUM_GRACE_SECONDS)

    def _stop(self, seconds: float) -> None:
        self._stopping.set()
        latest = asyncio.get_running_loop().time() + seconds
        for limit in self._limits:  # a second deletion may shorten the grace period
            limit.reschedule(min(limit.when() or latest, latest))

    async def run(self) -> None:
        """Run the pod until its object and its processes are gone. Cancelled: the processes are killed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                reporting = tasks.create_task(self._report())
                renewing = tasks.create_task(self._renew())
                await self._live()
                await self._stopping.wait()
                reporting.cancel()
                renewing.cancel()
            await self._remove()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- life ------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        spec = self._pod["spec"]
        if self._over:
            return
        refusal = command.unsupported(self._pod)
        if refusal:
            self._wait_all("CreateContainerConfigError", refusal)
            return
        if not await self._persist(self._fill):
            return
        for each, life in zip(spec.get("initContainers", []), self._init, strict=True):
            await self._supervise(each, life, init=True)
            if not (life.finished and life.exit_code == 0):
                return
        async with asyncio.TaskGroup() as tasks:
            for each, life in zip(spec["containers"], self._main, strict=True):
                tasks.create_task(self._supervise(each, life, init=False))

    async def _fill(self) -> None:
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        (self._folder / "scratch").mkdir(exist_ok=True)
        await volumes.fill(self._machine.api, self._pod, self.address, self._folder / "volumes")

    async def _persist(self, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Try until it works; False when the pod is to go first. The reason to wait is shown."""
        while not self._stopping.is_set():
            try:
                await attempt()
            except (environment.Unresolved, ApiError, aiohttp.ClientError, TimeoutError) as error:
                self._wait_all("ContainerCreating", str(error) or type(error).__name__)
                await self._pause(RETRY_SECONDS)
            else:
                self._wait_all("PodInitializing" if self._init else "ContainerCreating", "")
                return True
        return False

    def _wait_all(self, reason: str, message: str) -> None:
        for life in (*self._init, *self._main):
            life.waiting, life.message = reason, message
        self._changed.set()

    async def _supervise(self, spec: Mapping[str, Any], life: Container, *, init: bool) -> None:
        """Start a container, and again as the restart policy asks; returns when it has ended for good."""
        backoff = Backoff()
        policy = self._pod["spec"].get("restartPolicy", "Always")
        while not self._stopping.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await self._run_once(spec, life, init=init)
            except command.ImageMissing as error:
                life.waiting = "ErrImagePull" if life.waiting != "ErrImagePull" else "ImagePullBackOff"
                life.message = str(error)
            except (environment.Unresolved, ApiError, aiohttp.ClientError, TimeoutError) as error:
                life.waiting, life.message = "CreateContainerConfigError", str(error) or type(error).__name__
            else:
                life.finished = self._stopping.is_set() or not restarts(policy, life.exit_code or 0, init=init)
                self._changed.set()
                if life.finished:
                    return
                wait = backoff.after(asyncio.get_running_loop().time() - began)
                life.waiting = "CrashLoopBackOff"
                life.message = f"back-off {wait:.0f}s restarting failed container={life.name}"
                self._changed.set()
                await self._pause(wait)
                life.restarts += 1
                continue
            self._changed.set()
            await self._pause(RETRY_SECONDS)

    async def _run_once(self, spec: Mapping[str, Any], life: Container, *, init: bool) -> None:
        """One process of a container, from start to end; its end is in `life`."""
        what = await self._command(spec)
        life.begin(f"local://{uuid.uuid4()}", _now())
        try:
            running = await launch.launch(what)
        except OSError as error:  # ended before it began, as a runtime reports it
            life.end(128, _now(), "StartError", str(error))
            return
        life.pid = running.pid
        (self._folder / f"{life.name}.pid").write_text(str(running.pid))
        life.started = life.ready = init
        self._changed.set()
        try:
            why = await self._watch_over(spec, life, running, what, init=init)
        finally:
            launch.send(running.pid, signal.SIGKILL)  # what it left behind in its session ends with it
        life.end(launch.exit_code(await running.wait()), _now(), message=why)

    async def _watch_over(
        self,
        spec: Mapping[str, Any],
        life: Container,
        running: asyncio.subprocess.Process,
        what: launch.Command,
        *,
        init: bool,
    ) -> str:
        """Wait for the process's end, and bring it about when probes or a deletion ask for it; why, when they did."""

        async def look(probe: Mapping[str, Any]) -> bool:
            return await probes.look(probe, spec, self.address, self._machine.http, self._execute(what, spec))

        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(running.wait())
            stopping = tasks.create_task(self._stopping.wait())
            waits: set[asyncio.Task[Any]] = {ended, stopping}
            if not init:
                unhealthy = tasks.create_task(watching.until_unhealthy(spec, life, look, self._changed.set))
                waits.add(unhealthy)
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            reason = ""
            if not ended.done():
                metadata, grace = self._pod["metadata"], self._pod["spec"].get("terminationGracePeriodSeconds", 30)
                if stopping.done():
                    grace = metadata.get("deletionGracePeriodSeconds", grace)
                    if self._vanished:
                        grace = MINIMUM_GRACE_SECONDS
                else:
                    grace = unhealthy.result().get("terminationGracePeriodSeconds", grace)
                    reason = "killed: a probe failed"
                await self._terminate(spec, running, ended, look, grace)
            for each in waits:
                each.cancel()
        return reason

    async def _terminate(
        self,
        spec: Mapping[str, Any],
        running: asyncio.subprocess.Process,
        ended: asyncio.Task[int],
        look: watching.Look,
        grace: float,
    ) -> None:
        """PreStop, then SIGTERM, then SIGKILL: the first two within the grace period."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        hook = spec.get("lifecycle", {}).get("preStop")
        if hook is not None:
            with contextlib.suppress(TimeoutError):
                async with self._limited(deadline):
                    await look({**hook, "timeoutSeconds": grace + MINIMUM_GRACE_SECONDS})
        launch.send(running.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with self._limited(max(deadline, loop.time() + min(grace, MINIMUM_GRACE_SECONDS))):
                await asyncio.wait({ended})
        launch.send(running.pid, signal.SIGKILL)
        await asyncio.wait({ended})

    @contextlib.asynccontextmanager
    async def _limited(self, deadline: float) -> Any:
        async with asyncio.timeout_at(deadline) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    # --- what a container runs -------------------------------------------------------------------------------

    async def _command(self, spec: Mapping[str, Any]) -> launch.Command:
        machine, metadata = self._machine, self._pod["metadata"]
        objects: dict[tuple[str, str], dict[str, str] | None] = {}
        for kind, name in environment.references([spec]):
            data = await volumes.read(machine.api, metadata["namespace"], kind, name)
            objects[kind, name] = {key: value.decode() for key, value in data.items()} if data is not None else None
        scratch = self._folder / "scratch"
        base = {**machine.base, "HOSTNAME": metadata["name"], "HOME": str(scratch), "TMPDIR": str(scratch)}
        mounts = volumes.mounts(spec, self._folder / "volumes")
        variables = environment.build(spec, self._pod, pod_ip=self.address, objects=objects, base=base, mounts=mounts)
        argv = command.argv(spec, machine.images, self.address, variables, mounts)
        folder = Path(environment.relocate(spec["workingDir"], mounts)) if "workingDir" in spec else scratch
        log = machine.logs / command.log_name(metadata["namespace"], metadata["name"], spec["name"])
        return launch.Command(argv, variables, folder, log)

    def _execute(self, what: launch.Command, spec: Mapping[str, Any]) -> Callable[[Any], Awaitable[int]]:
        mounts = volumes.mounts(spec, self._folder / "volumes")

        async def execute(argv: Any) -> int:
            return await launch.execute(replace(what, argv=command.located(argv, what.environment, mounts)))

        return execute

    # --- what the API server is told -------------------------------------------------------------------------

    def _path(self, subresource: str = "") -> str:
        metadata = self._pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{subresource}"

    async def _report(self) -> None:
        """Write the status whenever it has changed."""
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._send()
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                if isinstance(error, ApiError):
                    _say(self._pod, f"status refused: {error}")
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    async def _send(self) -> None:
        status = podstatus.build(
            self._pod, self._init, self._main, pod_ip=self.address, started=self._began, now=_now()
        )
        if status == self._sent or self._vanished or self._over:
            return
        only = {"podIPs": [*status["podIPs"], {"$patch": "replace"}]}  # without the address that an earlier agent gave
        body = {"metadata": {"uid": self.uid}, "status": status | only}
        try:
            pod = await self._machine.api.request("PATCH", self._path("/status"), body, kind=STRATEGIC)
        except ApiError as error:
            if error.status not in GONE:
                raise
            return
        self._sent = status
        self.update(pod)

    async def _renew(self) -> None:
        """Write projected tokens anew before they expire."""
        while volumes.token_sources(self._pod):
            await asyncio.sleep(volumes.RENEW.total_seconds())
            await self._persist(self._refill)

    async def _refill(self) -> None:
        await volumes.fill(self._machine.api, self._pod, self.address, self._folder / "volumes")

    async def _remove(self) -> None:
        """Write the last status and remove the object, as the last that a kubelet does for a pod."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        while not self._vanished:
            try:
                await self._send()
                await self._machine.api.request("DELETE", self._path(), body)
            except ApiError as error:
                if error.status in GONE:
                    return
                _say(self._pod, f"deletion refused: {error}")
            except (aiohttp.ClientError, TimeoutError):
                pass
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)


def _statuses(pod: Mapping[str, Any], init: int, main: int) -> list[Mapping[str, Any]]:
    """Container statuses that an earlier agent wrote, empty ones where there are none."""
    status = pod.get("status", {})
    found = [status.get("initContainerStatuses", []), status.get("containerStatuses", [])]
    return [each for known, count in zip(found, (init, main), strict=True) for each in (known or [{}] * count)]


def _now() -> datetime:
    return datetime.now(UTC)


def _say(pod: Mapping[str, Any], message: str) -> None:
    print(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}: {message}", file=sys.stderr, flush=True)
