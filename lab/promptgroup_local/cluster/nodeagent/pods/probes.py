"""Probes: one attempt on a container, and the state that follows from a series of attempts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(slots=True)
class Verdict:
    """Folds results into a state: it changes after `failureThreshold` or `successThreshold` opposite in a row."""

    failures: int
    successes: int
    good: bool
    _run: int = 0

    def add(self, success: bool) -> bool:
        """Count a result; returns the state after it."""
        if success == self.good:
            self._run = 0
            return self.good
        self._run += 1
        if self._run >= (self.successes if success else self.failures):
            self.good, self._run = success, 0
        return self.good


def verdict(probe: Mapping[str, Any], *, good: bool) -> Verdict:
    """The fold that a probe's spec defines."""
    return Verdict(probe.get("failureThreshold", 3), probe.get("successThreshold", 1), good)


def port(container: Mapping[str, Any], desired: int | str) -> int:
    """A port's number, by name when it is one."""
    if isinstance(desired, int) or desired.isdigit():
        return int(desired)
    return next((item["containerPort"] for item in container.get("ports", []) if item.get("name") == desired), 0)


async def look(
    probe: Mapping[str, Any],
    container: Mapping[str, Any],
    pod_ip: str,
    http: aiohttp.ClientSession,
    execute: Callable[[Sequence[str]], Awaitable[int]],
) -> bool:
    """Probe once. A handler (`lifecycle`) has the same forms, and `sleep`, and is run by the same code."""
    seconds = float(probe.get("timeoutSeconds", 1))
    try:
        async with asyncio.timeout(seconds):
            if "httpGet" in probe:
                return await _get(probe["httpGet"], container, pod_ip, http)
            if "tcpSocket" in probe:
                host = probe["tcpSocket"].get("host", pod_ip)
                _, writer = await asyncio.open_connection(host, port(container, probe["tcpSocket"]["port"]))
                writer.close()
                return True
            if "exec" in probe:
                return await execute(probe["exec"]["command"]) == 0
            if "sleep" in probe:
                await asyncio.sleep(probe["sleep"]["seconds"])
    except (OSError, TimeoutError, aiohttp.ClientError):
        return False
    return True


async def _get(
    action: Mapping[str, Any], container: Mapping[str, Any], pod_ip: str, http: aiohttp.ClientSession
) -> bool:
    url = (
        f"{action.get('scheme', 'HTTP').lower()}://{action.get('host', pod_ip)}:{port(container, action['port'])}"
        f"{action.get('path', '/')}"
    )
    headers = {http_header["name"]: http_header["value"] for http_header in action.get("httpHeaders", [])}
    async with http.get(url, headers=headers, allow_redirects=False, ssl=False) as response:
        return 200 <= response.status < 400
