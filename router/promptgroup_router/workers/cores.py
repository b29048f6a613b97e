"""Decides how many workers a router runs by itself: as many as it surely has cores and memory for.

More workers than cores only cost memory, and exchange what they do with each other in vain. So a machine's cores count
only where this process may use them to the full: by a CPU limit (the quota of its cgroup) or by its affinity.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from promptgroup_router.base.settings import Settings

MOST = 8
"""Most workers by default: each tells each other what it does, so that the exchange grows with their square."""
WORKER_BYTES = 256 * 2**20
"""Memory of a worker beside bodies."""
PARSE_FACTOR = 8
"""A body takes up to 8 times its size while it is parsed."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The cores and the memory that this process may use."""

    present: int
    """Cores of the machine."""
    allowed: int
    """Cores that the process may run on (its affinity)."""
    quota: float | None = None
    """Cores' worth of time that its cgroups allow; None without a limit."""
    memory: int | None = None
    """Bytes that its cgroups allow; None without a limit."""


def default_workers(machine: Machine, settings: Settings) -> int:
    """Return the number of workers where `--workers` is not given; 1 where cores are not surely this process' own."""
    if machine.quota is not None:
        cores = min(int(machine.quota), machine.allowed)
    elif machine.allowed < machine.present:
        cores = machine.allowed
    else:
        return 1
    found = min(cores, MOST)
    if settings.peers:
        # each needs a port that the other routers look at, and one is for a worker that replaces another
        found = min(found, settings.peer_ports - 1)
    if machine.memory is not None:
        each = PARSE_FACTOR * settings.max_body_bytes + WORKER_BYTES
        found = min(found, (machine.memory - 2 * settings.body_memory_bytes) // each)
    return max(1, found)


def read_machine(system: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> Machine:
    """Read what this process may use; what cannot be read is taken for no limit."""
    folders = _cgroups(system, membership)
    quotas = [quota for folder in folders if (quota := _quota(folder)) is not None]
    limits = [limit for folder in folders if (limit := _number(_text(folder / "memory.max"))) is not None]
    allowed = len(os.sched_getaffinity(0))
    return Machine(
        present=os.cpu_count() or allowed,
        allowed=allowed,
        quota=min(quotas, default=_quota_v1(system / "cpu")),
        memory=min(limits, default=None),
    )


def _cgroups(system: Path, membership: Path) -> list[Path]:
    """Return the folders of the process' cgroup and of those above it, as far as they can be seen (cgroup v2)."""
    own = next((line[3:] for line in _text(membership).splitlines() if line.startswith("0::")), "/")
    path = system / own.strip("/")
    found = [path]
    while path != system and system in path.parents:
        path = path.parent
        found.append(path)
    return found


def _quota(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    return _cores(_number(quota), _number(period))


def _quota_v1(folder: Path) -> float | None:
    return _cores(_number(_text(folder / "cpu.cfs_quota_us")), _number(_text(folder / "cpu.cfs_period_us")))


def _cores(quota: int | None, period: int | None) -> float | None:
    return quota / period if quota is not None and period else None


def _number(text: str) -> int | None:
    """Return a limit; `max` and -1 stand for none."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
