import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from promptgroup_local.cluster import images, process
from promptgroup_local.cluster.nodeagent.pods import launch
from promptgroup_local.cluster.nodeagent.pods.launch import Command
from promptgroup_local.cluster.nodeagent.pods.template import Templates, program
from promptgroup_local.kubectl import wait_for

ENGINE = images.BUILT_IN["promptgroup.invalid/standin-engine"]
SECONDS = 90.0


def engine(folder: Path, *arguments: str, **variables: str) -> Command:
    argv = [each.replace("{pod_ip}", "127.0.0.1") for each in ENGINE]
    return Command([*argv, *arguments], {"PATH": os.defpath, **variables}, folder, folder / "log")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def run(test: Callable[[Templates], Awaitable[None]]) -> None:
    async def running() -> None:
        templates = Templates(os.environ)
        try:
            async with asyncio.timeout(SECONDS):
                await test(templates)
        finally:
            await templates.close()

    asyncio.run(running())


def test_only_commands_of_known_modules_are_run_by_a_template() -> None:
    found = program([*ENGINE, "tiny"])
    assert found is not None
    assert (found.module, found.arguments[-1]) == ("promptgroup_local.engine", "tiny")
    assert found.variables == {"SSL_CERT_FILE": "/dev/null"}
    assert program([sys.executable, "-m", "promptgroup_router"]) is not None
    assert program([sys.executable, "-m", "promptgroup_picker"]) is None
    assert program(["/usr/bin/env", "A=1", "sh"]) is None
    assert program(["/usr/bin/env"]) is None
    assert program([]) is None


@pytest.mark.heavy
def test_an_engine_begins_says_how_it_ended_and_has_its_output_to_itself(tmp_path: Path) -> None:
    async def test(templates: Templates) -> None:
        running = await launch.launch(engine(tmp_path, "--help"), templates)
        assert launch.exit_code(await running.wait()) == 0
        other = await launch.launch(engine(tmp_path, "--port", "none"), templates)
        assert launch.exit_code(await other.wait()) == 2
        assert running.pid != other.pid

    run(test)
    said = (tmp_path / "log").read_text()
    assert "usage: " in said
    assert "--port" in said.splitlines()[-1]


@pytest.mark.heavy
def test_a_signal_ends_an_engine_and_no_other(tmp_path: Path) -> None:
    async def test(templates: Templates) -> None:
        command = engine(tmp_path, "tiny", "--port", "0", STANDIN_STARTUP_SECONDS="600")
        first, second = await asyncio.gather(*(launch.launch(command, templates) for _ in range(2)))
        assert (os.getsid(first.pid), os.getsid(second.pid)) == (first.pid, second.pid)
        launch.send(first.pid, signal.SIGKILL)
        assert launch.exit_code(await first.wait()) == 137
        assert process.alive(second.pid)
        launch.send(second.pid, signal.SIGTERM)
        await second.wait()

    run(test)


@pytest.mark.heavy
def test_a_template_that_ends_takes_its_engines_along_and_another_begins(tmp_path: Path) -> None:
    async def test(templates: Templates) -> None:
        running = await launch.launch(engine(tmp_path, "tiny", "--port", "0"), templates)
        os.kill(parent(running.pid), signal.SIGKILL)
        assert launch.exit_code(await running.wait()) == 137
        await asyncio.to_thread(wait_for, lambda: None if process.alive(running.pid) else True, "the engine to end")
        again = await launch.launch(engine(tmp_path, "--help"), templates)
        assert await again.wait() == 0

    run(test)


@pytest.mark.heavy
def test_many_are_asked_for_before_the_template_has_begun(tmp_path: Path) -> None:
    async def test(templates: Templates) -> None:
        command = engine(tmp_path, "--help", FILLS="x" * 20_000)
        some = await asyncio.gather(*(launch.launch(command, templates) for _ in range(20)))
        assert [await each.wait() for each in some] == [0] * 20

    run(test)


def test_what_cannot_begin_is_an_error(tmp_path: Path) -> None:
    async def test(templates: Templates) -> None:
        missing = engine(tmp_path, "--help")
        with pytest.raises(OSError, match="no folder"):
            await launch.launch(Command(missing.argv, {}, tmp_path / "none", missing.log), templates)
        with pytest.raises(OSError, match="at most 100000"):
            await launch.launch(engine(tmp_path, FILLS="x" * 100_000), templates)

    run(test)


@pytest.mark.heavy
def test_a_container_that_chooses_its_authorities_is_no_fork(tmp_path: Path) -> None:
    async def test(templates: Templates) -> None:
        command = engine(tmp_path, "--help", SSL_CERT_FILE="/dev/null")
        running = await launch.launch(command, templates)
        assert parent(running.pid) == os.getpid()
        assert await running.wait() == 0

    run(test)


@pytest.mark.heavy
def test_programs_have_a_template_each_and_one_for_each_choice_of_authorities(tmp_path: Path) -> None:
    async def test(templates: Templates) -> None:
        others = {
            "operator": [sys.executable, "-m", "promptgroup_operator", "run", "--health-port=none"],
            "router": [sys.executable, "-m", "promptgroup_router", "--admin-port=none"],
        }
        made = [
            engine(tmp_path, "tiny", "--port", "0", STANDIN_STARTUP_SECONDS="600"),
            engine(tmp_path, "tiny", "--port", "0", STANDIN_STARTUP_SECONDS="600"),
            Command(
                [*ENGINE[2:], "tiny", "--port", "0"], {"STANDIN_STARTUP_SECONDS": "600"}, tmp_path, tmp_path / "log"
            ),
        ]
        first, second, other = [await launch.launch(each, templates) for each in made]
        assert parent(first.pid) == parent(second.pid) != parent(other.pid)
        for name, argv in others.items():
            refused = await launch.launch(Command(argv, {}, tmp_path, tmp_path / name), templates)
            assert await refused.wait() == 2

    run(test)
    assert "--health-port" in (tmp_path / "operator").read_text()
    assert "--admin-port" in (tmp_path / "router").read_text()
