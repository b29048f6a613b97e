"""Probes a running container: the results set its state, and decide whether it must be killed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from promptgroup_local.cluster.nodeagent.pods import probes
from promptgroup_local.cluster.nodeagent.pods.status import Container

Look = Callable[[Mapping[str, Any]], Awaitable[bool]]
"""Probes the container once, by a probe's spec."""

EAGER_SECONDS = 0.1
"""First pause between the attempts of one period; it doubles."""


async def until_unhealthy(
    spec: Mapping[str, Any], life: Container, look: Look, changed: Callable[[], None]
) -> Mapping[str, Any]:
    """Probe the container as long as it runs; returns the probe whose failure requires killing it.

    Startup gates the others: until it has succeeded, readiness and liveness are not probed.
    """
    startup: Mapping[str, Any] | None = spec.get("startupProbe")
    life.started = startup is None
    life.ready = startup is None and "readinessProbe" not in spec
    changed()
    if startup is not None:
        if not await _first_success(startup, look):
            return startup
        life.started, life.ready = True, "readinessProbe" not in spec
        changed()
    async with asyncio.TaskGroup() as tasks:
        ready = tasks.create_task(_readiness(spec.get("readinessProbe"), life, look, changed))
        failed = await _liveness(spec.get("livenessProbe"), look)
        ready.cancel()
    return failed


async def _first_success(probe: Mapping[str, Any], look: Look) -> bool:
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    for _ in range(probe.get("failureThreshold", 3)):
        if await _within_period(probe, look):
            return True
    return False


async def _readiness(probe: Mapping[str, Any] | None, life: Container, look: Look, changed: Callable[[], None]) -> None:
    if probe is None:
        return
    verdict = probes.verdict(probe, good=False)
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    while True:
        success = await (look(probe) if verdict.good else _within_period(probe, look))
        if verdict.add(success) != life.ready:
            life.ready = verdict.good
            changed()
        if success or verdict.good:
            await asyncio.sleep(probe.get("periodSeconds", 10))


async def _liveness(probe: Mapping[str, Any] | None, look: Look) -> Mapping[str, Any]:
    """Return the probe when the container must be killed; never return without a probe."""
    if probe is None:
        await asyncio.Event().wait()
    requested = probe or {}
    verdict = probes.verdict(requested, good=True)
    await asyncio.sleep(requested.get("initialDelaySeconds", 0))
    while True:
        if not verdict.add(await look(requested)):
            return requested
        await asyncio.sleep(requested.get("periodSeconds", 10))


async def _within_period(probe: Mapping[str, Any], look: Look) -> bool:
    """Return True if an attempt succeeds within a period; otherwise it is one failure, as a kubelet's single attempt.

    A program that starts in a second need not wait for a period that was chosen for one that takes minutes.
    """
    now = asyncio.get_running_loop().time
    ends, pause = now() + probe.get("periodSeconds", 10), EAGER_SECONDS
    while not await look(probe):
        rest = ends - now()
        if rest <= 0:
            return False
        await asyncio.sleep(min(pause, rest))
        pause *= 2
    return True
