"""One pod: its processes from the first start to the last end.

A task a container starts it, waits for its end and starts it again with back-off; a task a probe looks at it. Every
change of state sets one event, and one task writes the status when it differs from what was written last.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import shutil
import signal
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from promptgroup_local.cluster import images
from promptgroup_local.cluster.nodeagent import environment, podstatus, probes, volumes
from promptgroup_local.cluster.nodeagent.api import STRATEGIC, Api, ApiError
from promptgroup_local.cluster.nodeagent.environment import Unresolved
from promptgroup_local.cluster.nodeagent.podstatus import Container

logger = logging.getLogger(__name__)

FIRST_RESTART = 1.0
LAST_RESTART = 30.0
"""Back-off between restarts in seconds; shorter than a kubelet's (10 s to 5 min), since trials are short."""
CALM = 60.0
"""Seconds of running after which the back-off begins anew."""
RETRY = 1.0
"""Seconds between tries of what waits for something else: a volume's ConfigMap, the API server."""
INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "SSL_CERT_FILE")
"""What a container has of this machine's environment: what its program needs to start."""

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Runs in the child before exec: no process outlives the agent."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Pod:
    """Runs one pod; `update` brings what the API server says of it, `run` ends when the pod is gone."""

    def __init__(self, api: Api, http: aiohttp.ClientSession, known: images.Images, raw: dict[str, Any], ip: str,
                 folder: Path, logs: Path) -> None:  # fmt: skip
        self._api, self._http, self._images = api, http, known
        self.raw = raw
        self.ip = ip
        metadata = raw["metadata"]
        self.namespace, self.name, self.uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self._path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.folder = folder
        self._logs = logs
        self._started = datetime.now(UTC)
        self._init = [Container(each["name"], each["image"]) for each in raw["spec"].get("initContainers", [])]
        self._main = [Container(each["name"], each["image"]) for each in raw["spec"]["containers"]]
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._environment: dict[str, dict[str, str]] = {}
        self._changed = asyncio.Event()
        self._leaving = asyncio.Event()
        self._written: dict[str, Any] = {}
        if "deletionTimestamp" in metadata:
            self._leaving.set()

    def update(self, raw: dict[str, Any]) -> None:
        """Take in the pod as it stands: readiness gates, deletion."""
        self.raw = raw
        self._changed.set()
        if "deletionTimestamp" in raw["metadata"]:
            self._leaving.set()

    async def run(self) -> None:
        """Run the pod until it is deleted; leaves no process and no folder behind."""
        living = [asyncio.ensure_future(self._live()), asyncio.ensure_future(self._write_statuses())]
        try:
            await self._leaving.wait()
            living[0].cancel()
            await asyncio.gather(living[0], return_exceptions=True)
            await self._terminate()
            living[1].cancel()
            await self._remove()
        finally:
            for task in living:
                task.cancel()
            await asyncio.gather(*living, return_exceptions=True)
            for process in self._processes.values():
                _signal(process, signal.SIGKILL)
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- life ----------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            await self._prepare()
            for spec, container in zip(self.raw["spec"].get("initContainers", []), self._init, strict=True):
                await self._container(spec, container, always=False)
                if container.exit_code != 0:
                    return
            pairs = zip(self.raw["spec"]["containers"], self._main, strict=True)
            async with asyncio.TaskGroup() as tasks:
                if volumes.token_sources(self.raw):
                    tasks.create_task(self._renew_tokens())
                for spec, container in pairs:
                    tasks.create_task(self._container(spec, container, always=True))
        except Exception:
            logger.exception("pod %s/%s", self.namespace, self.name)
            raise

    async def _prepare(self) -> None:
        """Volumes and environment; waits for what they refer to."""
        specs = [*self.raw["spec"].get("initContainers", []), *self.raw["spec"]["containers"]]
        while True:
            try:
                await volumes.fill(self._api, self.raw, self.ip, self.folder / "volumes")
                objects: dict[tuple[str, str], dict[str, str] | None] = {}
                for kind, name in environment.references(specs):
                    data = await volumes.read(self._api, self.namespace, kind, name)
                    text = {key: value.decode(errors="replace") for key, value in data.items()} if data else data
                    objects[kind, name] = text  # type: ignore[assignment]
                for spec in specs:
                    base = self._base_environment()
                    built = environment.build(spec, self.raw, self.ip, objects, base)
                    self._environment[spec["name"]] = built
            except Unresolved as error:
                self._wait_all("CreateContainerConfigError", str(error))
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                self._wait_all("ContainerCreating", f"{type(error).__name__}: {error}")
            else:
                return
            await asyncio.sleep(RETRY)

    def _base_environment(self) -> dict[str, str]:
        host, _, port = self._api.server.removeprefix("https://").rpartition(":")
        own = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOSTNAME": self.name}
        return {name: os.environ[name] for name in INHERITED if name in os.environ} | own

    def _wait_all(self, reason: str, message: str) -> None:
        for container in (*self._init, *self._main):
            container.waiting, container.message = reason, message
        self._changed.set()

    async def _renew_tokens(self) -> None:
        while True:
            await asyncio.sleep(volumes.RENEW.total_seconds())
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError, Unresolved):
                await volumes.fill(self._api, self.raw, self.ip, self.folder / "volumes")

    async def _container(self, spec: Mapping[str, Any], container: Container, *, always: bool) -> None:
        """Start the container, again and again as its pod's restart policy says."""
        policy = self.raw["spec"].get("restartPolicy", "Always")
        backoff = FIRST_RESTART
        while True:
            argv = self._argv(spec)
            if argv is None:
                known = ", ".join(sorted(self._images))
                container.waiting = "ErrImagePull"
                container.message = f"this node has no image {spec['image']}; it has {known}"
                self._changed.set()
                await asyncio.sleep(LAST_RESTART)
                continue
            began = asyncio.get_running_loop().time()
            await self._once(spec, container, argv)
            again = policy == "Always" if always else False
            if policy == "OnFailure" or (policy == "Always" and not always):
                again = container.exit_code != 0
            if not again:
                container.finished = True
                self._changed.set()
                return
            if asyncio.get_running_loop().time() - began > CALM:
                backoff = FIRST_RESTART
            container.waiting = "CrashLoopBackOff"
            container.message = f"back-off {backoff:.0f}s restarting container {container.name}"
            self._changed.set()
            await asyncio.sleep(backoff)
            container.restarts += 1
            backoff = min(LAST_RESTART, backoff * 2)

    def _argv(self, spec: Mapping[str, Any]) -> list[str] | None:
        variables = self._environment[spec["name"]]
        prefix = images.argv(self._images, spec["image"], self.ip)
        if prefix is None:
            return None
        command, arguments = spec.get("command"), spec.get("args", [])
        mounts = volumes.mounts(spec, self.folder / "volumes")
        parts = [*(command or []), *arguments]
        given = [environment.relocate(environment.expand(part, variables), mounts) for part in parts]
        return given if command else [*prefix, *given]

    async def _once(self, spec: Mapping[str, Any], container: Container, argv: Sequence[str]) -> None:
        """One process of the container, from start to end."""
        mounts = volumes.mounts(spec, self.folder / "volumes")
        variables = {
            name: environment.relocate(value, mounts) for name, value in self._environment[spec["name"]].items()
        }
        container.id = f"local://{uuid.uuid4()}"
        container.started_at, container.exit_code = datetime.now(UTC), None
        try:
            with self._log(spec["name"]).open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=variables,
                    cwd=spec.get("workingDir") or self.folder,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
        except OSError as error:
            container.finished_at, container.exit_code = datetime.now(UTC), 127
            container.last = container.ended() | {"reason": "StartError", "message": str(error)}
            return
        self._processes[spec["name"]] = process
        container.pid = process.pid
        (self.folder / f"{spec['name']}.pid").write_text(str(process.pid))
        container.message = ""
        container.started = "startupProbe" not in spec
        container.ready = container.started and "readinessProbe" not in spec
        self._changed.set()
        looking = asyncio.ensure_future(self._probe(spec, container, process))
        try:
            code = await process.wait()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        container.pid, container.started, container.ready = None, False, False
        container.finished_at, container.exit_code = datetime.now(UTC), code if code >= 0 else 128 - code
        container.last = container.ended()
        self._changed.set()

    def _log(self, container: str) -> Path:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self._logs / f"{self.namespace}_{self.name}_{container}.log"

    # --- probes --------------------------------------------------------------------------------------------

    async def _probe(self, spec: Mapping[str, Any], container: Container, process: asyncio.subprocess.Process) -> None:
        if "startupProbe" in spec:
            await self._until_started(spec, container, process)
        async with asyncio.TaskGroup() as tasks:
            if "readinessProbe" in spec:
                tasks.create_task(self._readiness(spec, container))
            else:
                container.ready = True
                self._changed.set()
            if "livenessProbe" in spec:
                tasks.create_task(self._liveness(spec, process))

    async def _until_started(
        self, spec: Mapping[str, Any], container: Container, process: asyncio.subprocess.Process
    ) -> None:
        probe = spec["startupProbe"]
        state = probes.verdict(probe, good=False)
        misses = 0
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while not state.good:
            misses = 0 if state.add(await self._look(probe, spec)) else misses + 1
            if state.good:
                break
            if misses >= probe.get("failureThreshold", 3):
                await self._end(process, self._grace())
                return
            # an engine that starts in a second should not wait for a period made for one that takes minutes
            await asyncio.sleep(min(0.1 * misses, float(probe.get("periodSeconds", 10))))
        container.started = True
        self._changed.set()

    async def _readiness(self, spec: Mapping[str, Any], container: Container) -> None:
        probe = spec["readinessProbe"]
        state = probes.verdict(probe, good=False)
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            ready = state.add(await self._look(probe, spec))
            if ready != container.ready:
                container.ready = ready
                self._changed.set()
            await asyncio.sleep(float(probe.get("periodSeconds", 10)) if ready else 0.2)

    async def _liveness(self, spec: Mapping[str, Any], process: asyncio.subprocess.Process) -> None:
        probe = spec["livenessProbe"]
        state = probes.verdict(probe, good=True)
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while state.add(await self._look(probe, spec)):
            await asyncio.sleep(float(probe.get("periodSeconds", 10)))
        logger.info("pod %s/%s: liveness probe of %s failed", self.namespace, self.name, spec["name"])
        await self._end(process, self._grace())

    async def _look(self, probe: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
        return await probes.look(probe, spec, self.ip, self._http, self._executor(spec))

    def _executor(self, spec: Mapping[str, Any]) -> Callable[[Sequence[str], float], Awaitable[int]]:
        async def execute(command: Sequence[str], seconds: float) -> int:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=self._environment.get(spec["name"]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            try:
                return await asyncio.wait_for(process.wait(), seconds)
            finally:
                _signal(process, signal.SIGKILL)

        return execute

    # --- end -----------------------------------------------------------------------------------------------

    def _grace(self) -> float:
        metadata, spec = self.raw["metadata"], self.raw["spec"]
        return float(metadata.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30)))

    async def _terminate(self) -> None:
        """preStop, SIGTERM, SIGKILL when the grace period ends, every container at once."""
        specs = self.raw["spec"]["containers"]
        await asyncio.gather(*(self._stop(spec) for spec in specs if spec["name"] in self._processes))

    async def _stop(self, spec: Mapping[str, Any]) -> None:
        process = self._processes[spec["name"]]
        if process.returncode is not None:
            return
        deadline = asyncio.get_running_loop().time() + self._grace()
        hook = spec.get("lifecycle", {}).get("preStop", {})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                exited = asyncio.ensure_future(process.wait())
                hooked = asyncio.ensure_future(self._hook(hook, spec))
                await asyncio.wait({exited, hooked}, return_when=asyncio.FIRST_COMPLETED)
                hooked.cancel()
        await self._end(process, max(0.0, deadline - asyncio.get_running_loop().time()))

    async def _hook(self, hook: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        if "sleep" in hook:
            await asyncio.sleep(float(hook["sleep"]["seconds"]))
        elif hook:
            await probes.look(
                {**hook, "timeoutSeconds": self._grace()}, spec, self.ip, self._http, self._executor(spec)
            )

    @staticmethod
    async def _end(process: asyncio.subprocess.Process, seconds: float) -> None:
        _signal(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            _signal(process, signal.SIGKILL)
            await process.wait()

    async def _remove(self) -> None:
        """Tell the API server that nothing of the pod runs any more."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        while True:
            try:
                await self._api.request("DELETE", self._path, body)
            except ApiError as error:
                if error.status in (404, 409):
                    return
                logger.warning("delete %s/%s: %s", self.namespace, self.name, error)
            except (aiohttp.ClientError, TimeoutError):
                pass
            else:
                return
            await asyncio.sleep(RETRY)

    # --- status --------------------------------------------------------------------------------------------

    async def _write_statuses(self) -> None:
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            now = datetime.now(UTC)
            status = podstatus.build(self.raw, self._init, self._main, pod_ip=self.ip, started=self._started, now=now)
            if _same(status, self._written) and _stands(status, self.raw.get("status", {})):
                continue
            try:
                body = {"metadata": {"uid": self.uid}, "status": status}
                self.raw = await self._api.request("PATCH", f"{self._path}/status", body, kind=STRATEGIC)
                self._written = status
            except ApiError as error:
                if error.status in (404, 409):
                    continue  # gone, or another pod of this name: the watch will say
                logger.warning("status of %s/%s: %s", self.namespace, self.name, error)
                await self._later()
            except (aiohttp.ClientError, TimeoutError):
                await self._later()

    async def _later(self) -> None:
        await asyncio.sleep(RETRY)
        self._changed.set()


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Equal but for the times at which conditions turned."""
    return _timeless(a) == _timeless(b)


def _timeless(status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = [{**each, "lastTransitionTime": None} for each in status.get("conditions", [])]
    return {**status, "conditions": conditions}


def _stands(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether the conditions of `wanted` stand on the object, so that nobody else has changed them."""
    stood = {each["type"]: each["status"] for each in live.get("conditions", [])}
    return all(stood.get(each["type"]) == each["status"] for each in wanted["conditions"])


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Signal the process and all that it started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
