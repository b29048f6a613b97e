"""Sessions of request traces in Mooncake's format, and synthetic traces.

Time stamps in the published traces are those of batches three seconds long, so each request gets a random time in its
batch. Requests arrive at their time regardless of earlier ones (open loop). A trace does not name sessions: a request
continues the session of the last one with which it shares more than its first block.
"""

import json
import random
from collections.abc import Iterable, Sequence

from promptgroup_cli.reach.trace import BLOCK, TraceRow
from promptgroup_research.simulator.draws import geometric, lognormal, poisson
from promptgroup_research.simulator.turns import Session, Turn

BATCH = 3.0
"""Seconds that share a time stamp."""


def sessions(rows: Sequence[TraceRow], rate: float, seed: int) -> list[Session]:
    """The trace, its time stretched to a mean of `rate` requests a second; jitter and keys from the seed."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    first, last = rows[0].when, rows[-1].when + BATCH
    stretch = len(rows) / rate / (last - first)
    owner: dict[int, int] = {}
    count: dict[int, int] = {}
    result = []
    for number, row in enumerate(rows):
        shared = 0
        while shared < len(row.blocks) and row.blocks[shared] in owner:
            shared += 1
        key = owner[row.blocks[shared - 1]] if shared > 1 else draw.getrandbits(64)
        owner |= dict.fromkeys(row.blocks, key)
        session = _session(row, key, (row.when - first + draw.random() * BATCH) * stretch)
        rest = row.prompt - BLOCK * len(row.blocks)
        # the tokens after the full blocks are shared with no other request
        own, own_size = ((-1 - number,), (rest,)) if rest else ((), ())
        turn = Turn(session, row.blocks + own, (BLOCK,) * len(row.blocks) + own_size, row.output, count.get(key, 0))
        turn.history = min(shared * BLOCK, row.prompt - 1) if shared > 1 else 0
        count[key] = turn.number + 1
        session.turns.append(turn)
        result.append(session)
    return result


def _session(row: TraceRow, key: int, began: float) -> Session:
    """A new session; all requests of one application share block 0."""
    head = row.blocks[0] if row.blocks else key
    return Session(key, head, BLOCK if row.blocks else 0, began)


def synthetic(seed: int, count: int = 8000) -> list[TraceRow]:
    """A stand-in for a recorded trace, of about `count` requests: long contexts, shared by the turns of sessions."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    fresh, answer = lognormal(draw, 5000, 1.2, 600, 100_000), lognormal(draw, 300, 0.7, 4, 2000)
    trace_rows: list[TraceRow] = []
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
            trace_rows.append(TraceRow(now // BATCH * BATCH, length, output, blocks))
            length += output
            now += 5 + draw.expovariate(1 / 55)
    trace_rows.sort(key=lambda row: row.when)
    return [row for row in trace_rows if row.when < count / rate]


def written(rows: Iterable[TraceRow]) -> str:
    """Rows in the format that `read` parses."""
    lines = []
    for row in rows:
        ids = [*row.blocks] if row.prompt % BLOCK == 0 else [*row.blocks, 0]
        fields = {"timestamp": int(row.when * 1000), "input_length": row.prompt, "output_length": row.output}
        lines.append(json.dumps(fields | {"hash_ids": ids}))
    return "\n".join(lines) + "\n"
