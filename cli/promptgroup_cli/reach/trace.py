"""Reads request traces in Mooncake's format.

One JSON object a line: `timestamp` (ms), `input_length`, `output_length` and `hash_ids`, one for each 512 tokens;
equal ids mean equal tokens up to there (Qin et al.: "Mooncake: Trading More Storage for Less Computation", FAST 2025;
traces in kvcache-ai/Mooncake).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import orjson

from promptgroup_cli.reach.files import unreadable

BLOCK = 512
"""Tokens that a hash id represents."""
MOST_LINE = 1 << 20
"""Bytes of a line: 50 million tokens have 100,000 ids."""
MOST_REQUESTS = 1_000_000
"""Requests of a trace: the published ones have 12,000 to 24,000."""
MOST_TOKENS = 100_000_000
"""Tokens of a prompt or an answer, and the largest id."""
_SHORTEST = 16
"""Tokens of a prompt that a trace gives none: one block of an engine."""


class TraceError(ValueError):
    """A trace that cannot be used: the message names file, line, field and what is expected."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace: seconds and tokens."""

    when: float
    prompt: int
    output: int
    blocks: tuple[int, ...]
    """Hash ids of the full blocks."""


def read(path: Path) -> list[TraceRow]:
    """Return the requests of a trace file, in the order of their time stamps.

    Raises:
        TraceError: the file cannot be read, or a line of it is no request.
    """
    name = str(path)
    try:
        with path.open("rb") as file:
            rows = list(_rows(name, file))
    except OSError as problem:
        raise TraceError(f"{name}: {unreadable(str(name), problem)}") from problem
    if not rows:
        raise TraceError(f"{name}: no request in it")
    return sorted(rows, key=lambda row: row.when)


def _rows(name: str, file: BinaryIO) -> Iterator[TraceRow]:
    number = 0
    while line := file.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            raise TraceError(f"{name}:{number}: longer than {MOST_LINE} bytes: one object a line is expected")
        if number > MOST_REQUESTS:
            raise TraceError(f"{name}: more than {MOST_REQUESTS:,} lines: give a part of it")
        if line.strip():
            yield _row(f"{name}:{number}", line)


def _row(where: str, line: bytes) -> TraceRow:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise TraceError(f"{where}: not JSON ({problem.msg}): one object a line is expected") from problem
    if not isinstance(fields, dict):
        raise TraceError(f"{where}: {line[:40]!r}: an object is expected")
    numbers: list[float] = []
    for name, most in (("timestamp", 1e15), ("input_length", MOST_TOKENS), ("output_length", MOST_TOKENS)):
        value = fields.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
            raise TraceError(f"{where}: {name} is {str(value)[:40]}: a number from 0 to {most:,.0f} is expected")
        numbers.append(value)
    ids = fields.get("hash_ids")
    if not isinstance(ids, list) or not all(type(id_) is int and id_ >= 0 for id_ in ids):
        raise TraceError(f"{where}: hash_ids is {str(ids)[:40]!r}: a list of whole numbers of 0 or more is expected")
    prompt = max(_SHORTEST, int(numbers[1]))
    return TraceRow(numbers[0] / 1000, prompt, max(1, int(numbers[2])), tuple(ids[: prompt // BLOCK]))
