"""Request traces in Mooncake's format.

One JSON object a line: `timestamp` (ms), `input_length`, `output_length` and `hash_ids`, one for each 512 tokens;
equal ids mean equal tokens up to there.

Qin et al.: "Mooncake: Trading More Storage for Less Computation", FAST 2025; traces in kvcache-ai/Mooncake. Time stamps
there are those of batches three seconds long, so each request is put somewhere in its batch. Requests come at their
time whatever became of those before (open loop). Who belongs together is not in a trace: a request continues the
session of the last one with which it shares more than its first block.
"""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptgroup_research.simulator.draws import geometric, lognormal, poisson
from promptgroup_research.simulator.turns import Session, Turn

BLOCK = 512
"""Tokens that a hash id stands for."""
BATCH = 3.0
"""Seconds that share a time stamp."""
_SHORTEST = 16
"""Tokens of a prompt that a trace gives none: one block of an engine."""


class TraceError(ValueError):
    """A trace that cannot be used: the message names file, line, field and what is expected."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace: seconds and tokens."""

    when: float
    prompt: int
    output: int
    blocks: tuple[int, ...]
    """Hash ids of the full blocks."""


def read(path: Path) -> list[Row]:
    """A trace file, in the order of its time stamps."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as problem:
        raise TraceError(f"{path}: {problem.strerror}: name a readable trace in Mooncake's format") from problem
    rows = [_row(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise TraceError(f"{path}: no request in it")
    return sorted(rows, key=lambda row: row.when)


def _row(where: str, line: str) -> Row:
    try:
        fields = json.loads(line)
    except ValueError as problem:
        raise TraceError(f"{where}: not JSON ({problem}): one object a line is expected") from problem
    if not isinstance(fields, dict):
        raise TraceError(f"{where}: {line[:40]!r}: an object is expected")
    numbers = []
    for name in ("timestamp", "input_length", "output_length"):
        value = fields.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
            raise TraceError(f"{where}: {name} is {value!r}: a number of 0 or more is expected")
        numbers.append(value)
    ids = fields.get("hash_ids")
    if not isinstance(ids, list) or not all(isinstance(each, int) and each >= 0 for each in ids):
        raise TraceError(f"{where}: hash_ids is {str(ids)[:40]!r}: a list of numbers of 0 or more is expected")
    prompt = max(_SHORTEST, int(numbers[1]))
    return Row(numbers[0] / 1000, prompt, max(1, int(numbers[2])), tuple(ids[: prompt // BLOCK]))


def sessions(rows: Sequence[Row], rate: float, seed: int) -> list[Session]:
    """The trace, its time stretched so that `rate` requests a second come on average; jitter and keys from the seed."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    first, last = rows[0].when, rows[-1].when + BATCH
    stretch = len(rows) / rate / (last - first)
    owner: dict[int, int] = {}
    count: dict[int, int] = {}
    found = []
    for number, row in enumerate(rows):
        shared = 0
        while shared < len(row.blocks) and row.blocks[shared] in owner:
            shared += 1
        key = owner[row.blocks[shared - 1]] if shared > 1 else draw.getrandbits(64)
        owner |= dict.fromkeys(row.blocks, key)
        session = _session(row, key, (row.when - first + draw.random() * BATCH) * stretch)
        rest = row.prompt - BLOCK * len(row.blocks)
        # what follows the full blocks is nobody else's
        own, own_size = ((-1 - number,), (rest,)) if rest else ((), ())
        turn = Turn(session, row.blocks + own, (BLOCK,) * len(row.blocks) + own_size, row.output, count.get(key, 0))
        turn.history = min(shared * BLOCK, row.prompt - 1) if shared > 1 else 0
        count[key] = turn.number + 1
        session.turns.append(turn)
        found.append(session)
    return found


def _session(row: Row, key: int, began: float) -> Session:
    """Block 0 is what all requests of one application share."""
    head = row.blocks[0] if row.blocks else key
    return Session(key, head, BLOCK if row.blocks else 0, began)


def synthetic(seed: int, count: int = 8000) -> list[Row]:
    """A stand-in for a recorded trace, of about `count` requests: long contexts, shared by the turns of sessions."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    fresh, answer = lognormal(draw, 5000, 1.2, 600, 100_000), lognormal(draw, 300, 0.7, 4, 2000)
    found: list[Row] = []
    mean_turns, rate, next_id = 3.0, 4.0, 1
    for began in poisson(draw, rate / mean_turns, count / rate):
        now, length = began, BLOCK
        blocks: tuple[int, ...] = (0,)
        for number in range(geometric(draw, mean_turns, 20)):
            length += fresh() // (4 if number else 1)
            new = length // BLOCK - len(blocks)
            blocks += tuple(range(next_id, next_id + new))
            next_id += new
            output = answer()
            found.append(Row(now // BATCH * BATCH, length, output, blocks))
            length += output
            now += 5 + draw.expovariate(1 / 55)
    found.sort(key=lambda row: row.when)
    return [row for row in found if row.when < count / rate]


def written(rows: Iterable[Row]) -> str:
    """Rows in the format that `read` takes."""
    lines = []
    for row in rows:
        ids = [*row.blocks] if row.prompt % BLOCK == 0 else [*row.blocks, 0]
        fields = {"timestamp": int(row.when * 1000), "input_length": row.prompt, "output_length": row.output}
        lines.append(json.dumps(fields | {"hash_ids": ids}))
    return "\n".join(lines) + "\n"
