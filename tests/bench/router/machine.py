"""What a process and its children have used of the machine, by /proc."""

import os
from pathlib import Path


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
