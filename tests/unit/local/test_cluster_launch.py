import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from promptgroup_local.cluster import process
from promptgroup_local.cluster.nodeagent.pods import launch
from promptgroup_local.cluster.nodeagent.pods.launch import Command


def command(folder: Path, script: str, **environment: str) -> Command:
    return Command(["/bin/sh", "-c", script], {"PATH": os.defpath, **environment}, folder, folder / "log")


async def until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0.005)


def test_a_container_sees_its_environment_and_folder_and_nothing_else(tmp_path: Path) -> None:
    async def run() -> int:
        running = await launch.launch(command(tmp_path, "pwd; echo $A; echo ${HOME-none}; exit 3", A="1"))
        return launch.exit_code(await running.wait())

    assert asyncio.run(run()) == 3
    assert (tmp_path / "log").read_text().split() == [str(tmp_path), "1", "none"]


def test_a_signal_reaches_all_that_a_container_started(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        running = await launch.launch(command(tmp_path, "sleep 60 & echo $!; wait"))
        async with asyncio.timeout(5):
            await until(lambda: (tmp_path / "log").read_text().endswith("\n"))
            child = int((tmp_path / "log").read_text())
            launch.send(running.pid, signal.SIGKILL)
            code = launch.exit_code(await running.wait())
            await until(lambda: not process.alive(child))
        launch.send(running.pid, signal.SIGKILL)  # gone already
        return code, child

    assert asyncio.run(run())[0] == 137


def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    async def run() -> None:
        await launch.launch(Command(["no-such-program"], {"PATH": "/bin"}, tmp_path, tmp_path / "log"))

    with pytest.raises(FileNotFoundError, match="no-such-program"):
        asyncio.run(run())


def test_a_probes_program_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    async def run() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await launch.execute(command(tmp_path, "echo $$; exec sleep 60"))
        pid = int((tmp_path / "log").read_text())
        async with asyncio.timeout(5):
            await until(lambda: not process.alive(pid))
        return await launch.execute(command(tmp_path, "exit 4"))

    assert asyncio.run(run()) == 4
