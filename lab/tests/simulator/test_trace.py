import pytest

from promptgroup_cli.reach.trace import BLOCK, TraceRow, read
from promptgroup_research.simulator.trace import BATCH, sessions, synthetic, written


def test_requests_that_share_more_than_the_first_block_are_one_session():
    rows = [
        TraceRow(0.0, 1100, 5, (0, 1)),
        TraceRow(3.0, 1100, 5, (0, 2)),
        TraceRow(6.0, 1700, 5, (0, 1, 3)),
        TraceRow(9.0, 2100, 5, (0, 1, 3, 4)),
    ]
    found = sessions(rows, 1.0, seed=1)
    assert found[0].key == found[2].key == found[3].key != found[1].key
    assert [session.turns[0].number for session in found] == [0, 0, 1, 2]
    assert [session.turns[0].history for session in found] == [0, 0, 2 * BLOCK, 3 * BLOCK]
    assert [session.tier1 for session in found] == [BLOCK] * 4
    for session, row in zip(found, rows, strict=True):
        assert session.turns[0].prompt == row.prompt


def test_requests_stay_in_their_batch_and_come_at_the_rate():
    rows = synthetic(1, count=400)
    rate = len(rows) / (rows[-1].when + BATCH - rows[0].when)
    found = sessions(rows, rate, seed=1)
    for session, row in zip(found, rows, strict=True):
        assert 0 <= session.began - (row.when - rows[0].when) < BATCH
    twice = sessions(rows, 2 * rate, seed=1)
    assert [each.began for each in twice] == pytest.approx([each.began / 2 for each in found])


def test_the_synthetic_trace_is_one_in_the_same_format(tmp_path):
    rows = synthetic(1, count=2000)
    assert len(rows) == pytest.approx(2000, rel=0.3)
    path = tmp_path / "trace.jsonl"
    path.write_text(written(rows))
    assert read(path) == rows
    later = [session.turns[0] for session in sessions(rows, 4.0, 1) if session.turns[0].number]
    assert len(later) > 50
