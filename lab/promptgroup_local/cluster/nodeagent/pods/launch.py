"""Processes of containers: each a session of its own, which ends with the agent."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from promptgroup_local.cluster import process
from promptgroup_local.cluster.nodeagent.pods.template import READ_AT_IMPORT, Templates, program


@dataclass(frozen=True, slots=True)
class Command:
    """The command of a container."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    """Its working directory."""
    log: Path
    """Where its output is appended."""


class Running(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its number, which is that of its session, too."""

    async def wait(self) -> int:
        """Return the exit status; that of a signal is negative."""


async def launch(command: Command, templates: Templates | None = None) -> Running:
    """Start it, by a template if there can be one of its program.

    Raises:
        OSError: there is no such program, or no such folder.
    """
    known = program(command.argv) if READ_AT_IMPORT.isdisjoint(command.environment) else None
    with command.log.open("ab") as output:
        if templates is not None and known is not None:
            return await templates.fork(known, command.environment, command.folder, output.fileno())
        return await asyncio.create_subprocess_exec(
            *command.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=command.folder,
            env=dict(command.environment),
            start_new_session=True,
            preexec_fn=process.die_with_parent,  # one prctl, no lock is taken in it
        )


async def execute(command: Command) -> int:
    """Run a program beside a container, as exec probes and hooks do; it is killed on cancellation."""
    running = await launch(command)
    try:
        return await running.wait()
    finally:
        send(running.pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    """Signal a container: the process and all that it started in its session."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def exit_code(returncode: int) -> int:
    """An exit code as container runtimes report it: 128 + the signal's number for a process that a signal ended."""
    return 128 - returncode if returncode < 0 else returncode
