"""Real engines on the CPU, for tests marked `real`. They are skipped where no variable names the engine's folder."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import urllib3

from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports
from promptgroup_local.real.engine import START_SECONDS, RealEngine, chosen

SERVED = "llama"
"""The model that an engine beside no cluster serves."""


def named(variable: str) -> str:
    """Return the folder that a variable names; empty where it names none."""
    return os.environ.get(variable, "")


def marks(engine: RealEngine) -> list[pytest.MarkDecorator]:
    """Return the marks of a file of tests with an engine: without its folder they are skipped, and say so."""
    variable = engine.name.upper()
    reason = f"{variable} names no folder with a real {engine.name}: see docs/research/real-{engine.name.lower()}.md"
    return [pytest.mark.real, pytest.mark.integration, pytest.mark.skipif(not named(variable), reason=reason)]


def cpu_seconds(session: int) -> float:
    """Return the CPU time that the processes of a session have used, in seconds; of those that live."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(engine: RealEngine, log: Path, args: Sequence[str] = ()) -> Iterator[str]:
    """The address of one engine that serves its model as `llama`, while the context lasts."""
    with running(engine, log, args) as (address, _):
        yield address


@contextlib.contextmanager
def running(engine: RealEngine, log: Path, args: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """The same with the session that the engine's processes are in."""
    _, folder = chosen([engine], "pytest", __doc__, [f"--{engine.name.lower()}={named(engine.name.upper())}"])
    (port,) = free_ports(1)
    command, environment = engine.served(folder, SERVED, port)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *args], cwd=folder, env=os.environ | environment, stdout=out, stderr=out, start_new_session=True
        )

        def up() -> bool | None:
            assert process.poll() is None, log.read_text()[-4000:]
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                health = f"http://127.0.0.1:{port}{engine.dialect.health}"
                return urllib3.request("GET", health, retries=False, timeout=5).status == 200 or None
            return None

        try:
            wait_for(up, f"{engine.name} to serve", seconds=START_SECONDS)
            yield f"127.0.0.1:{port}", process.pid
        finally:
            # its workers are processes of their own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
