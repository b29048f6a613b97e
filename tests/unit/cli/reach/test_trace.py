import json

import pytest

from promptgroup_cli.reach.trace import TraceError, TraceRow, read


def line(**other):
    fields = {"timestamp": 3000, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
    return json.dumps(fields | other)


def test_a_row_has_its_full_blocks_only(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{line(timestamp=6000)}\n\n{line()}\n")
    assert read(path) == [TraceRow(3.0, 1100, 5, (0, 1)), TraceRow(6.0, 1100, 5, (0, 1))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "trace.jsonl:1: not JSON"),
        ("[1]", "an object is expected"),
        (line(input_length=-1), "input_length is -1: a number from 0 to 100,000,000 is expected"),
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
