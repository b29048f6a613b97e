"""The engines: one process each, on loopback, the same ones for all routers, their caches emptied in between."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from subprocess import Popen

import aiohttp

from bench.peers import mix
from bench.peers.drive import NAME
from promptgroup_local.cluster import process
from promptgroup_local.engine.scheduler import Cost
from promptgroup_local.ports import free_ports
from promptgroup_operator.world.engine_facts import prefill_rate

READY_SECONDS = 60.0
"""Limit of every wait for a process to come up, or for the engines to run dry."""
POLL = 0.1


async def wait_for(done: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask until the answer is yes.

    Raises:
        TimeoutError: it was never.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            if await done():
                return
        except (aiohttp.ClientError, ConnectionError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {READY_SECONDS:.0f} s")
        await asyncio.sleep(POLL)


class RunningEngines:
    """Engines that run already, such as real vLLM with VLLM_SERVER_DEV_MODE=1, and are left running.

    Args:
        urls: base URLs; all of them serve the model NAME.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = list(urls)

    async def ready(self, http: aiohttp.ClientSession) -> None:
        """Wait until all of them listen."""
        for url in self.urls:
            await wait_for(lambda url=url: _ok(http, f"{url}/health"), f"the engine at {url}")

    async def reset(self, http: aiohttp.ClientSession) -> None:
        """Empty the caches, once nothing runs any more."""
        for url in self.urls:
            await wait_for(lambda url=url: self._emptied(http, url), f"the engine at {url} to run dry")

    async def _emptied(self, http: aiohttp.ClientSession, url: str) -> bool:
        async with http.post(f"{url}/reset_prefix_cache") as response:
            return (await response.json())["success"] is True

    def stop(self) -> None:
        """Leave them."""


class Fleet(RunningEngines):
    """Engine processes of this bench."""

    def __init__(self, folder: Path, engines: int = mix.ENGINES, kv_tokens: int = mix.KV_TOKENS,
                 cost: Cost = mix.COST) -> None:  # fmt: skip
        ports = free_ports(engines)
        super().__init__([f"http://127.0.0.1:{port}" for port in ports])
        environment = os.environ | {
            "VLLM_SERVER_DEV_MODE": "1",
            "STANDIN_STARTUP_SECONDS": "0",
            "STANDIN_PREFILL_TOKENS_PER_SECOND": str(cost.prefill_rate),
            "STANDIN_STEP_MS": str(cost.step * 1000),
        }
        flags = [
            "--host=127.0.0.1",
            "--enable-prompt-tokens-details",
            f"--block-size={mix.BLOCK}",
            f"--num-gpu-blocks-override={kv_tokens // mix.BLOCK}",
        ]
        command = [sys.executable, "-m", "promptgroup_local.engine", NAME, *flags]
        self.processes: list[Popen[bytes]] = [
            process.start([*command, f"--port={port}"], folder / f"engine-{port}.log", environment) for port in ports
        ]

    def stop(self) -> None:
        """End the processes."""
        for each in self.processes:
            process.stop(each)


async def warm(http: aiohttp.ClientSession, prompts: Sequence[tuple[str, str]]) -> int:
    """Send each engine its prompt, as the operator does before it lets traffic in.

    Args:
        http: client.
        prompts: (URL of an engine, system prompt).

    Returns:
        The least prefill rate that was measured, tokens a second, by the operator's own rule.
    """

    async def one(url: str, prompt: str) -> int:
        body = {"model": NAME, "messages": [{"role": "system", "content": prompt}], "max_tokens": 1}
        began = time.monotonic()
        async with http.post(f"{url}/v1/chat/completions", json=body) as response:
            usage = (await response.json())["usage"]
        seconds = time.monotonic() - began
        return prefill_rate(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], seconds)

    return min(await asyncio.gather(*(one(*each) for each in prompts)))


async def _ok(http: aiohttp.ClientSession, url: str) -> bool:
    async with http.get(url) as response:
        return response.status == 200
