"""What a process and its children have used of the machine, by /proc and `perf stat`, and which machine it is."""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ATTACH_SECONDS = 0.5
"""Time in which `perf` begins to count."""


def tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def cpu_seconds(pid: int) -> float:
    """Return the time that a process tree was on a CPU, by the scheduler's own count where there is one."""
    return sum(_of_one(each) for each in tree(pid))


def memory_bytes(pid: int) -> int:
    """Return the memory of a process tree; what several share is divided among them."""
    total = 0
    for each in tree(pid):
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)
    return total


def about() -> str:
    """Return which machine this is: processor, cores that this process may use, kernel, and what else runs on it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    load = " ".join(f"{minutes:.1f}" for minutes in os.getloadavg())
    cores = len(os.sched_getaffinity(0))
    return f"{models[0] if models else platform.machine()}, {cores} cores, {platform.release()}, load {load}"


@contextlib.contextmanager
def counted(pid: int, events: Sequence[str]) -> Iterator[dict[str, float]]:
    """Count events of a process tree while the context is open, by `perf stat`.

    Yields:
        Event → how often it happened, once the context is closed; empty where `perf` is not installed or not allowed,
        and without what this processor does not count, as most virtual machines do not.
    """
    result: dict[str, float] = {}
    binary = shutil.which("perf")
    if binary is None:
        yield result
        return
    with tempfile.NamedTemporaryFile("r") as told:
        pids = ",".join(map(str, tree(pid)))
        command = [binary, "stat", "-x", ";", "-o", told.name, "-e", ",".join(events), "-p", pids]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(ATTACH_SECONDS)
        try:
            yield result
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
        for line in told:
            words = line.split(";")
            if len(words) > 2 and words[0].isdigit():
                result[words[2].partition(":u")[0]] = float(words[0])


def _of_one(pid: int) -> float:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        nanoseconds = [int((task / "schedstat").read_text().split()[0]) for task in tasks]
        if any(nanoseconds):
            return sum(nanoseconds) / 1e9
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
