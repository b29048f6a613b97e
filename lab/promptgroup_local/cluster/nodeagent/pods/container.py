"""A container under supervision: started, probed, restarted by its restart policy, ended with its pod."""

import asyncio
import contextlib
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from promptgroup_local.cluster import images
from promptgroup_local.cluster.nodeagent import command, watching
from promptgroup_local.cluster.nodeagent.api import Api, ApiError
from promptgroup_local.cluster.nodeagent.pods import environment, launch, probes, volumes
from promptgroup_local.cluster.nodeagent.pods.restarts import Backoff, restarts
from promptgroup_local.cluster.nodeagent.pods.status import Container
from promptgroup_local.cluster.nodeagent.pods.template import Templates

RETRY_SECONDS = 1.0
"""Interval between attempts that depend on other objects, or on the API server."""
MINIMUM_GRACE_SECONDS = 2.0
"""Time of a process between SIGTERM and SIGKILL if preStop took all of the grace period, as with a kubelet."""

RETRIED = (environment.Unresolved, ApiError, aiohttp.ClientError, TimeoutError)
"""Errors that may pass until the next try: a missing object, an API server that cannot be reached."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The parts that all pods of a node share."""

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
    templates: Templates | None = None
    """The processes of which stand-in engines and operators are forks; None if each is started by itself."""


@dataclass(slots=True)
class PodContext:
    """The parts that all containers of a pod share."""

    machine: Machine
    pod: dict[str, Any]
    """The latest version of the object."""
    address: str
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Something of the status may have changed."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """The pod must stop."""
    vanished: bool = False
    """Its object has been deleted already."""
    limits: set[asyncio.Timeout] = field(default_factory=set)
    """Grace periods that run."""

    @property
    def folder(self) -> Path:
        """Where all of the pod lies."""
        return self.machine.pods / command.folder_name(self.pod["metadata"])

    @property
    def volumes(self) -> Path:
        """A folder a volume."""
        return self.folder / "volumes"

    @property
    def scratch(self) -> Path:
        """Home, temporary and working directory of the containers."""
        return self.folder / "scratch"

    def stop(self, seconds: float) -> None:
        """Stop the pod within `seconds`; a second deletion may shorten the grace period, never lengthen it."""
        self.stopping.set()
        latest = asyncio.get_running_loop().time() + seconds
        for limit in self.limits:
            limit.reschedule(min(limit.when() or latest, latest))

    @contextlib.asynccontextmanager
    async def limited(self, deadline: float) -> AsyncIterator[None]:
        """End the block at a time of the loop, or when `stop` says so; no error is raised."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline) as limit:
                self.limits.add(limit)
                try:
                    yield
                finally:
                    self.limits.discard(limit)

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than until the pod must stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()


async def supervise(context: PodContext, spec: Mapping[str, Any], life: Container, *, init: bool) -> None:
    """Start a container, and restart it by its restart policy; returns when it has ended for good."""
    backoff = Backoff()
    policy = context.pod["spec"].get("restartPolicy", "Always")
    while not context.stopping.is_set():
        began = asyncio.get_running_loop().time()
        try:
            await _run_once(context, spec, life)
        except command.ImageMissing as error:
            life.waiting = "ErrImagePull" if life.waiting != "ErrImagePull" else "ImagePullBackOff"
            life.message = str(error)
        except RETRIED as error:
            life.waiting, life.message = "CreateContainerConfigError", str(error) or type(error).__name__
        else:
            life.finished = context.stopping.is_set() or not restarts(policy, life.exit_code or 0, init=init)
            if life.finished:
                context.changed.set()
                return
            wait = backoff.after(asyncio.get_running_loop().time() - began)
            life.waiting, life.message = "CrashLoopBackOff", f"back-off {wait:.0f}s restarting container {life.name}"
            context.changed.set()
            await context.pause(wait)
            life.restarts += 1
            continue
        context.changed.set()
        await context.pause(RETRY_SECONDS)


async def _run_once(context: PodContext, spec: Mapping[str, Any], life: Container) -> None:
    """One process of a container, from start to end; its end is in `life`."""
    subject = await _command(context, spec)
    life.begin(f"local://{uuid.uuid4()}", datetime.now(UTC))
    try:
        running = await launch.launch(subject, context.machine.templates)
    except OSError as error:  # ended before it began, as a runtime reports it
        life.end(128, datetime.now(UTC), reason="StartError", detail=str(error))
        return
    life.pid = running.pid
    pid_file = context.folder / f"{life.name}.pid"
    pid_file.write_text(str(running.pid))
    context.changed.set()
    try:
        why = await _watch_over(context, spec, life, running, subject)
    finally:
        launch.send(running.pid, signal.SIGKILL)  # processes that it left in its session end with it
        pid_file.unlink(missing_ok=True)
    life.end(launch.exit_code(await running.wait()), datetime.now(UTC), detail=why)


async def _watch_over(
    context: PodContext,
    spec: Mapping[str, Any],
    life: Container,
    running: launch.Running,
    subject: launch.Command,
) -> str:
    """Wait for the process's end, or end it for a probe or a deletion; return the reason if a probe did."""
    mounts = volumes.mounts(spec, context.volumes)

    async def execute(argv: Sequence[str]) -> int:
        return await launch.execute(replace(subject, argv=command.located(argv, subject.environment, mounts)))

    async def look(probe: Mapping[str, Any]) -> bool:
        return await probes.look(probe, spec, context.address, context.machine.http, execute)

    reason = ""
    async with asyncio.TaskGroup() as tasks:
        ended = tasks.create_task(running.wait())
        stopping = tasks.create_task(context.stopping.wait())
        # an init container has no probes: the API server refuses them
        unhealthy = tasks.create_task(watching.until_unhealthy(spec, life, look, context.changed.set))
        await asyncio.wait((ended, stopping, unhealthy), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            grace = context.pod["spec"].get("terminationGracePeriodSeconds", 30)
            if context.vanished:
                grace = MINIMUM_GRACE_SECONDS
            elif stopping.done():
                grace = context.pod["metadata"].get("deletionGracePeriodSeconds", grace)
            else:
                grace = unhealthy.result().get("terminationGracePeriodSeconds", grace)
                reason = "killed: a probe failed"
            await _terminate(context, spec, running, ended, look=look, grace=grace)
        stopping.cancel()
        unhealthy.cancel()
    return reason


async def _terminate(
    context: PodContext,
    spec: Mapping[str, Any],
    running: launch.Running,
    ended: asyncio.Task[int],
    *,
    look: Callable[[Mapping[str, Any]], Awaitable[bool]],
    grace: float,
) -> None:
    """PreStop, then SIGTERM, then SIGKILL: the first two within the grace period."""
    now = asyncio.get_running_loop().time
    deadline = now() + grace
    hook = spec.get("lifecycle", {}).get("preStop")
    if hook is not None:
        async with context.limited(deadline):
            await look({**hook, "timeoutSeconds": grace + MINIMUM_GRACE_SECONDS})
    launch.send(running.pid, signal.SIGTERM)
    async with context.limited(max(deadline, now() + min(grace, MINIMUM_GRACE_SECONDS))):
        await asyncio.wait({ended})
    launch.send(running.pid, signal.SIGKILL)
    await asyncio.wait({ended})


async def _command(context: PodContext, spec: Mapping[str, Any]) -> launch.Command:
    machine, metadata = context.machine, context.pod["metadata"]
    objects: dict[tuple[str, str], dict[str, str] | None] = {}
    for kind, name in environment.references([spec]):
        data = await volumes.read(machine.api, metadata["namespace"], kind, name)
        objects[kind, name] = {key: value.decode() for key, value in data.items()} if data is not None else None
    scratch = str(context.scratch)
    # no TMPDIR of the pod's own: a Unix socket's path has at most 107 bytes, and engines put theirs there
    base = {**machine.base, "HOSTNAME": metadata["name"], "HOME": scratch}
    mounts = volumes.mounts(spec, context.volumes)
    variables = environment.build(spec, context.pod, pod_ip=context.address, objects=objects, base=base, mounts=mounts)
    argv = command.argv(spec, machine.images, context.address, variables, mounts)
    folder = Path(environment.relocate(spec["workingDir"], mounts)) if "workingDir" in spec else context.scratch
    log = machine.logs / command.log_name(metadata["namespace"], metadata["name"], spec["name"])
    return launch.Command(argv, variables, folder, log)
