import json

import pytest

from promptgroup_research.simulator.trace import BATCH, BLOCK, Row, TraceError, read, sessions, synthetic, written


def line(**other):
    fields = {"timestamp": 3000, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
    return json.dumps(fields | other)


def test_a_row_has_its_full_blocks_only(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{line(timestamp=6000)}\n\n{line()}\n")
    assert read(path) == [Row(3.0, 1100, 5, (0, 1)), Row(6.0, 1100, 5, (0, 1))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "trace.jsonl:1: not JSON"),
        ("[1]", "an object is expected"),
        (line(input_length=-1), "input_length is -1: a number of 0 or more is expected"),
        (line(output_length=True), "output_length is True"),
        (line(timestamp=None), "timestamp is None"),
        (line(hash_ids=[1, "2"]), "hash_ids is"),
        ("", "no request in it"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said(tmp_path, text, said):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=said.replace("[", r"\[")):
        read(path)


def test_a_trace_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"nowhere\.jsonl"):
        read(tmp_path / "nowhere.jsonl")


def test_requests_that_share_more_than_the_first_block_are_one_session():
    rows = [
        Row(0.0, 1100, 5, (0, 1)),
        Row(3.0, 1100, 5, (0, 2)),
        Row(6.0, 1700, 5, (0, 1, 3)),
        Row(9.0, 2100, 5, (0, 1, 3, 4)),
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
