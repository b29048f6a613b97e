"""Dynamo's mock engines, each behind a frontend of its own, or all of them behind Dynamo's own KV router.

A mocker plays the scheduler, the prefix cache and the times of an engine, and publishes what its cache holds. It has no
way to be emptied, so that each run begins with new processes. Its model has a token for each byte of a prompt.
"""

import os
from pathlib import Path
from subprocess import Popen

import aiohttp

from bench.peers import dynamo, mix
from bench.peers.drive import NAME
from bench.peers.dynamo_adapter import BYTES_A_TOKEN, write_model
from bench.peers.fleet import wait_for
from bench.peers.routers import environment
from promptgroup_local.cluster import process
from promptgroup_local.ports import free_ports

BLOCK = BYTES_A_TOKEN * mix.BLOCK
"""Tokens of a block: as many bytes as in one of the stand-in engines."""
TOKENS = 2000
"""Tokens of the model: mockers say those from 1,000 on, and what is no text is not streamed."""
_PLANES = ("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")


class Mockers:
    """Running mock engines.

    Args:
        folder: for files; a new one for each run.
        count: of engines.
        kv_tokens: KV cache of an engine, in tokens of four bytes.
        together: True to have Dynamo's KV router in front of all of them; False for a frontend for each.
    """

    def __init__(self, folder: Path, count: int, kv_tokens: int, *, together: bool) -> None:
        self._folder, self._count = folder, count
        model = folder / "model"
        write_model(model, TOKENS)
        self._processes: list[Popen[bytes]] = []
        ports = free_ports(1 if together else count)
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        """Of the frontends."""
        mode = ("--router-mode", "kv", "--kv-cache-block-size", str(BLOCK)) if together else ()
        for number, port in enumerate(ports):
            flags = ("--http-host", "127.0.0.1", "--http-port", str(port), *mode)
            self._start("frontend", number, *flags)
        for number in range(count):
            flags = ("--model-path", str(model), "--model-name", NAME, "--block-size", str(BLOCK))
            registry = 0 if together else number
            self._start("mocker", registry, *flags, "--num-gpu-blocks-override", str(kv_tokens // mix.BLOCK))

    def _start(self, part: str, registry: int, *flags: str) -> None:
        files = {"DYN_FILE_KV": str(self._folder / f"registry-{registry}"), "DYN_LOG": "warn", "HF_HUB_OFFLINE": "1"}
        python = environment(dynamo.PACKAGE, dynamo.VERSION) / "bin" / "python"
        command = [str(python), "-m", f"dynamo.{part}", *_PLANES, *flags]
        log = self._folder / f"{part}-{len(self._processes)}.log"
        self._processes.append(process.start(command, log, os.environ | files))

    async def ready(self, http: aiohttp.ClientSession) -> None:
        """Wait until every frontend knows its engines."""
        engines = self._count // len(self.urls)

        async def knows(url: str) -> bool:
            async with http.get(f"{url}/health") as response:
                known = [item["endpoint"] for item in (await response.json())["instances"]]
            async with http.get(f"{url}/v1/models") as response:
                return known.count("generate") == engines and NAME in await response.text()

        for url in self.urls:
            await wait_for(lambda url=url: knows(url), f"Dynamo's frontend at {url}")

    def stop(self) -> None:
        """End the processes."""
        for running in self._processes:
            process.stop(running)
