"""A router or a picker in a process of its own, as Kubernetes starts it."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from support.fakeengine import until
from support.wire import ask, get


class Process:
    """A router or a picker in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict] = []
        self.port = 0
        self.admin_port = 0

    async def read(self) -> None:
        async for line in self.process.stderr:
            self.lines.append(json.loads(line))
            if self.lines[-1]["event"] == "listening":
                self.port, self.admin_port = self.lines[-1]["port"], self.lines[-1]["admin_port"]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]

    async def ready(self) -> int:
        return (await ask(self.admin_port, get("/readyz"))).status


def has(copy: Path, text: str) -> bool:
    """Whether the file that a router's thread writes is there with this text: only then may the router be killed."""
    return copy.exists() and text in copy.read_text()


@contextlib.asynccontextmanager
async def started(*flags: str, program: str = "promptgroup_router", **environment: str):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", program, "--host", "127.0.0.1", "--port", "0", "--admin-port", "0"),
        *("--log-format", "json", *flags),
        stderr=asyncio.subprocess.PIPE,
        # whatever limits the tests themselves run under
        env={**os.environ, "PROMPTGROUP_ROUTER_WORKERS": "1", **environment},
    )
    router = Process(process)
    reading = asyncio.ensure_future(router.read())
    try:
        await until(lambda: router.port or process.returncode is not None, "the program to listen", 90)
        assert router.port, router.lines
        yield router
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading
