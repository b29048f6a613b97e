"""Runs many inputs through a target, and asserts what must hold for each:

- nothing is raised but the parser's own error;
- the result is the same for the whole, for random parts, and byte by byte;
- CPU time grows with the length and no faster;
- a second reader reads the same (see `targets`);
- memory does not grow with the number of inputs.
"""

import gc
import itertools
import random
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz.mutate import Mutator
from fuzz.targets import TARGETS, Target
from promptgroup_router.http11 import http1, lines

FOUND = Path(".cache/fuzz")
"""Where an input that breaks a promise is written; it belongs into the corpus, with the mend."""
SINGLE_BYTES = 512
"""Longest input that is also read byte by byte."""
SINGLE_ONE_IN = 8
PARTS = 6
SLOWER = 16.0
"""Most CPU time for a byte, in units of the corpus' own: a square at the largest input is a hundred and more."""
OVERHEAD = 256
"""Bytes that reading any input at all is worth."""
TRIES = 7
"""Times that an input which seemed slow is measured: noise only adds."""
BLOCKS = 6000
"""Most growth of allocated blocks, once a tenth of the inputs was read and caches are nearly full: orjson
remembers the last 2,048 names of fields; what parsers of HTTP remember is forgotten first. A block that is lost for one
input in ten exceeds it in 10^5 inputs."""
RESIDENT = 32 << 20
"""Most growth of the process in bytes, from there on."""


@dataclass(slots=True)
class Report:
    """What a campaign saw."""

    kind: str
    seed: int
    inputs: int = 0
    bytes: int = 0
    readings: int = 0
    compared: int = 0
    """Inputs that a second reader read, too."""
    slowest: float = 0.0
    """Most CPU time for a byte, in units of the corpus' own."""
    cpu_seconds: float = 0.0
    blocks: int = 0
    """Growth of the interpreter's allocated blocks."""
    resident: int = 0
    """Growth of the process, in bytes."""

    def __str__(self) -> str:
        return (
            f"{self.kind}: seed {self.seed}, {self.inputs:,} inputs of {self.bytes / max(1, self.inputs):,.0f} bytes, "
            f"{self.readings:,} readings, {self.compared:,} compared, slowest {self.slowest:.1f} x, "
            f"{self.cpu_seconds:.0f} s of CPU, {self.blocks:+,} blocks, {self.resident / 2**20:+.1f} MiB"
        )


def run(kind: str, seed: int, count: int, first: int = 0) -> Report:
    """Read `count` inputs from number `first` on.

    Raises:
        AssertionError: a promise is broken; names the input, which lies in FOUND.
    """
    target, mutator, report = TARGETS[kind], Mutator(kind), Report(kind, seed)
    unit = max(_cpu(target, [data]) / (len(data) + OVERHEAD) for data in mutator.corpus)
    began = time.process_time()
    blocks = resident = 0
    for number in range(first, first + count):
        if number - first == count // 10:
            blocks, resident = _memory()
        data, chooser = mutator.make(seed, number)
        try:
            _check(target, data, chooser, report, unit)
        except Exception as error:
            FOUND.mkdir(parents=True, exist_ok=True)
            file = FOUND / f"{kind}-{seed}-{number}.txt"
            file.write_bytes(data)
            again = f"python -m fuzz {kind} --seed {seed} --first {number} --count 1"
            raise AssertionError(f"{type(error).__name__}: {error}\n{file}; again: {again}") from error
    report.cpu_seconds = time.process_time() - began
    now = _memory()
    report.blocks, report.resident = now[0] - blocks, now[1] - resident
    assert report.blocks <= BLOCKS, report
    assert report.resident <= RESIDENT, report
    return report


def _check(target: Target, data: bytes, chooser: random.Random, report: Report, unit: float) -> None:
    before = time.thread_time()
    whole = target.observe([data])
    slowness = (time.thread_time() - before) / unit / (len(data) + OVERHEAD)
    if slowness > report.slowest:
        slowness = min(slowness, _cpu(target, [data]) / unit / (len(data) + OVERHEAD))
        assert slowness <= SLOWER, f"{slowness:.1f} times the CPU time of the corpus for a byte"
        report.slowest = max(report.slowest, slowness)
    readings = [_parts(data, chooser)]
    if len(data) <= SINGLE_BYTES and chooser.randrange(SINGLE_ONE_IN) == 0:
        readings.append([bytes((each,)) for each in data])
    for parts in readings:
        assert target.observe(parts) == whole, f"another result in {len(parts)} parts"
    report.inputs += 1
    report.bytes += len(data)
    report.readings += 1 + len(readings)
    report.compared += target.compare(data)


def _parts(data: bytes, chooser: random.Random) -> list[bytes]:
    places = sorted({0, len(data), *(chooser.randint(0, len(data)) for _ in range(chooser.randint(1, PARTS)))})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def _cpu(target: Target, parts: Sequence[bytes]) -> float:
    """Return the least CPU time of several readings, in seconds."""
    least = float("inf")
    for _ in range(TRIES):
        began = time.thread_time()
        target.observe(parts)
        least = min(least, time.thread_time() - began)
    return least


def _memory() -> tuple[int, int]:
    for remembered in (lines._request_lines, lines._status_lines, lines._fields, lines._names, http1._answers):
        remembered.clear()
    gc.collect()
    return sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
