"""CPU that processes and the machine took, from /proc (proc(5)), and whether there was enough of it."""

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of processes, all their threads, ended ones included."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


@dataclass(frozen=True, slots=True)
class Machine:
    """Ticks of all cores since boot."""

    busy: int
    all: int

    def busy_since(self, before: "Machine") -> float:
        """Share of all cores that was busy, 0 to 1."""
        return (self.busy - before.busy) / max(1, self.all - before.all)


def machine() -> Machine:
    """As of now; what the host takes away counts as busy."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return Machine(sum(ticks) - idle, sum(ticks))


BEAT = 0.02


class Punctuality:
    """How late a timer of this process fires: what a saturated machine does to every process of a run."""

    def __init__(self) -> None:
        self.late: list[float] = []
        """Seconds, one for each beat."""

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + BEAT
            await asyncio.sleep(BEAT)
            self.late.append(time.monotonic() - due)
