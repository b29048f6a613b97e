"""Pods without processes: a whole fleet of stand-in engines in the agent's own event loop.

As with kubemark's hollow nodes, the API server, its controllers and the scheduler see a node that runs its pods, and
the engines answer on addresses of their own with the stand-in's real prefix cache. There is no cost of processes, so
that a machine with two cores can run a thousand. Volumes, probes, hooks and programs other than the engine are not
supported: such a container counts as running and ready at once.
"""

import contextlib
import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from promptgroup_local.cluster import images
from promptgroup_local.cluster.nodeagent.pods.pod import PodRunner
from promptgroup_local.engine.flags import FlagError, Flags, Knobs, knobs, parse
from promptgroup_local.engine.server import serving

ENGINE = "promptgroup.invalid/standin-engine"
"""Repository of the image whose containers are served."""


class HollowPod(PodRunner):
    """Runs one pod: its engines listen while it lives."""

    async def _live(self) -> None:
        if self._over:
            return
        specs = self._context.pod["spec"]["containers"]
        async with contextlib.AsyncExitStack() as engines:
            try:
                commands = [command(spec, self.address) for spec in specs if images.repository(spec["image"]) == ENGINE]
            except FlagError as error:
                self._wait_all("CrashLoopBackOff", str(error))
                return
            now = datetime.now(UTC)
            for life in (*self._init, *self._main):
                life.begin(f"local://{uuid.uuid4()}", now)
                life.pid = os.getpid()
                life.started = True
            for life in self._init:
                life.end(0, now)
                life.finished = True
            self._context.changed.set()
            for flags, settings in commands:
                await self._context.pause(settings.startup * settings.time_scale)
                await engines.enter_async_context(serving(flags, settings))
            for life in self._main:
                life.ready = True
            self._context.changed.set()
            await self._context.stopping.wait()
            now = datetime.now(UTC)
            for life in self._main:
                life.end(0, now)
                life.finished = True


def command(spec: Mapping[str, Any], address: str) -> tuple[Flags, Knobs]:
    """The engine that a container specifies, on the pod's address.

    Raises:
        FlagError: the engine would not start with these flags or variables.
    """
    environment = {item["name"]: item["value"] for item in spec.get("env", []) if "value" in item}
    try:
        return parse([*spec.get("command", []), *spec.get("args", []), "--host", address]), knobs(environment)
    except SystemExit as error:  # argparse has written to the node's log
        raise FlagError("the engine does not take its arguments: see the node's log") from error
