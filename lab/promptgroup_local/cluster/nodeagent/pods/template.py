"""A process that has imported the modules that many containers run, and forks for each of these containers.

A fork takes a tenth of the CPU time of a start. Only programs of this project may be started this way: forks share the
state that their imports have computed, and a fork's `/proc/PID/cmdline` and `environ` are the template's. There is one
template for each program, and for each set of variables that an image gives it.

Over a socket the agent sends one message for each container, JSON with the file for its output, and receives two:
`{"pid": 12}` in the order of requests, and `{"ended": 12, "status": 0}` when it has ended, as `os.waitpid` reports it.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from promptgroup_local.cluster import process

PROGRAMS = {
    "promptgroup_local.engine": ("promptgroup_local.engine.server", "uvloop"),
    "promptgroup_operator": ("promptgroup_operator.handlers", "promptgroup_operator.telemetry.metrics_server"),
    "promptgroup_router": ("promptgroup_router.server", "uvloop"),
}
"""Modules that templates run → modules that they import. None of these starts a thread."""
READ_AT_IMPORT = frozenset(("SSL_CERT_FILE", "SSL_CERT_DIR"))
"""Variables that matter when modules are imported: aiohttp reads CA certificates then. A container that has one is
started without a template, since the file may have changed by the next start."""
MOST_BYTES = 100_000
"""Longest message: a Unix socket takes some 200 kB at once."""
FULL_SECONDS = 0.01
"""Time after which a message is sent again to a template that has not read earlier ones yet."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command that a template can run."""

    module: str
    arguments: Sequence[str]
    variables: Mapping[str, str]
    """Variables in addition to those of the container."""


def program(argv: Sequence[str]) -> Program | None:
    """Return the program of a command; None if a template cannot run it."""
    variables, rest = {}, list(argv)
    if rest[:1] == ["/usr/bin/env"]:
        rest = rest[1:]
        while rest and "=" in rest[0]:
            name, _, value = rest.pop(0).partition("=")
            variables[name] = value
    if rest[:2] != [sys.executable, "-m"] or len(rest) < 3 or rest[2] not in PROGRAMS:
        return None
    return Program(rest[2], rest[3:], variables)


class Forked:
    """A container's process that a template has forked; as `asyncio.subprocess.Process`, as far as it is used."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        """Return the exit status; that of a signal is negative."""
        return await asyncio.shield(self.ended)


def _message(subject: Program, environment: Mapping[str, str], folder: Path) -> bytes:
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    variables = {**environment, **subject.variables}
    result = {"module": subject.module, "arguments": subject.arguments, "environment": variables, "folder": str(folder)}
    message = json.dumps(result).encode()
    if len(message) > MOST_BYTES:
        raise OSError(f"arguments and variables have {len(message)} bytes, at most {MOST_BYTES} are possible")
    return message


class Templates:
    """The templates of all programs. Each starts when it is first used."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start nothing yet; modules are imported in the environment, and with the variables that their image adds."""
        self._environment = {name: value for name, value in environment.items() if name not in READ_AT_IMPORT}
        self._kept: dict[tuple[str, frozenset[tuple[str, str]]], Template] = {}

    async def fork(self, subject: Program, environment: Mapping[str, str], folder: Path, log: int) -> Forked:
        """Run a program, as `Template.fork` does."""
        key = subject.module, frozenset(subject.variables.items())
        if key not in self._kept:
            self._kept[key] = Template(subject.module, {**self._environment, **subject.variables})
        return await self._kept[key].fork(subject, environment, folder, log)

    async def close(self) -> None:
        """End all templates, and with them their forks."""
        for template in self._kept.values():
            await template.close()


class Template:
    """The agent's side of a template. The process starts at the first fork, and ends with the agent's thread."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        """Start nothing yet; the environment is that in which the module is imported."""
        self._module = module
        self._environment = environment
        self._channel: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._asked: deque[asyncio.Future[Forked]] = deque()
        self._running: dict[int, Forked] = {}

    async def fork(self, subject: Program, environment: Mapping[str, str], folder: Path, log: int) -> Forked:
        """Run a program.

        Args:
            subject: the program.
            environment: the container's variables.
            folder: working directory.
            log: descriptor of the file that gets its output.

        Raises:
            OSError: there is no such folder, the arguments are too long, or the template ends.
        """
        message = _message(subject, environment, folder)
        channel = self._channel or await self._open()
        while True:
            with contextlib.suppress(BlockingIOError):
                socket.send_fds(channel, [message], [log])
                break
            await asyncio.sleep(FULL_SECONDS)
        create_future: asyncio.Future[Forked] = asyncio.get_running_loop().create_future()
        self._asked.append(create_future)
        return await asyncio.shield(create_future)

    async def close(self) -> None:
        """End the process, and with it its forks."""
        if self._channel is not None:
            self._lose(self._channel)
        if self._process is not None:
            await self._process.wait()

    async def _open(self) -> socket.socket:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = mine
        mine.setblocking(False)
        asyncio.get_running_loop().add_reader(mine.fileno(), self._hear, mine)
        with its:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __name__, self._module, str(its.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                env=dict(self._environment),
                pass_fds=(its.fileno(),),
                start_new_session=True,
                preexec_fn=process.die_with_parent,  # one prctl, no lock is taken in it
            )
        return mine

    def _hear(self, channel: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while message := channel.recv(MOST_BYTES):
                result = json.loads(message)
                if "ended" in result:
                    self._running.pop(result["ended"]).ended.set_result(os.waitstatus_to_exitcode(result["status"]))
                else:
                    forked = self._running[result["pid"]] = Forked(result["pid"])
                    self._asked.popleft().set_result(forked)
            self._lose(channel)

    def _lose(self, channel: socket.socket) -> None:
        """Close the channel, and end all forks and requests, since they end with the template."""
        asyncio.get_running_loop().remove_reader(channel.fileno())
        channel.close()
        self._channel = None
        running, self._running = self._running, {}
        for forked in running.values():
            forked.ended.set_result(-signal.SIGKILL)
        while self._asked:
            self._asked.popleft().set_exception(
                OSError(f"what starts {self._module} has ended: see the agent's output")
            )


# --- The template's process --------------------------------------------------------------------------------------


def main() -> None:
    """Import, and fork on request until the agent has exited."""
    channel = socket.socket(fileno=int(sys.argv[2]))
    for name in PROGRAMS[sys.argv[1]]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # memory that forks share is not written to
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                selector.unregister(key.fd)
                os.close(key.fd)
                result = {"ended": key.data, "status": os.waitpid(key.data, 0)[1]}
            else:
                message, files, _, _ = socket.recv_fds(channel, MOST_BYTES, 1)
                if not message:
                    return
                result = {"pid": _fork(json.loads(message), files[0])}
                os.close(files[0])
                selector.register(os.pidfd_open(result["pid"]), selectors.EVENT_READ, result["pid"])
            channel.send(json.dumps(result).encode())


def _fork(subject: Mapping[str, Any], log: int) -> int:
    """Return the process of a fork that leads a session of its own."""
    started, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        process.die_with_parent()
        os.write(begins, b".")
        _become(subject, log)
    os.close(begins)
    os.read(started, 1)  # from here on it gets the signals that are sent to its session, and ends with this process
    os.close(started)
    return pid


def _become(subject: Mapping[str, Any], log: int) -> NoReturn:
    """Run a module as a process of its own does."""
    for output in (1, 2):
        os.dup2(log, output)
    os.closerange(3, 1024)
    os.chdir(subject["folder"])
    os.environ.clear()
    os.environ.update(subject["environment"])
    random.seed()  # that of the template would be everybody's
    sys.argv = ["", *subject["arguments"]]
    runpy.run_module(subject["module"], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    main()
