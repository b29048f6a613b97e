"""Processes that end with the one that started them, and whose output is stored."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

MARK = "PROMPTGROUP_LOCAL_PODS"
"""Variable that names the folder of pods for which a process runs: it marks the processes of a killed agent."""

STOP_SECONDS = 10.0
"""Time for a process to end on SIGTERM before SIGKILL."""


def die_with_parent() -> None:
    """Runs in the child before exec: the kernel kills it when its parent's thread ends (prctl(2))."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a process that dies with the calling thread; its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env) if env is not None else None,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken in it
        )


def stop(process: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> None:
    """End a process, gently first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def alive(pid: int) -> bool:
    """Return True if a process of that id runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(pid: int, seconds: float) -> None:
    """End a process that is not our child: SIGTERM, then SIGKILL after `seconds`."""
    deadline = time.monotonic() + seconds
    number = signal.SIGTERM
    while alive(pid):
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        time.sleep(0.1)


def end_all_in(folder: Path) -> None:
    """Kill every process of this user that was started for the pods in `folder`, or runs there without a terminal.

    A program may overwrite its environment (setproctitle does); a user may have opened a shell in the folder.
    """
    mark = f"{MARK}={folder}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # another user's, or has ended
            terminal = (entry / "stat").read_text().rpartition(")")[2].split()[4]  # tty_nr of proc(5)
            inside = terminal == "0" and (entry / "cwd").readlink().is_relative_to(folder)
            if inside or mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
