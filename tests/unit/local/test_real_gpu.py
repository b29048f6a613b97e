import re

import pytest

from promptgroup_contract.encoding import decode_table, encode_table
from promptgroup_local.load.counters import Measured
from promptgroup_local.load.summary import Summary
from promptgroup_local.real import gpu
from promptgroup_local.real.gpu import FirstTokens, Kit, compared, markdown, table_of, text_of


def test_a_length_is_a_row_with_what_the_warm_prefix_saves():
    row = FirstTokens(8000, 0.4, 0.02, 7936).row()
    assert row == ("8,000", "400 ms", "20 ms", "20.0", "7,936", "20,000")
    assert markdown(gpu._HEADS, [row])[-1] == "| 8,000 | 400 ms | 20 ms | 20.0 | 7,936 | 20,000 |"


def test_both_ways_of_routing_are_columns():
    measured = Measured(0.9, 1.0, None, {})
    rows = [Summary(name, 10, {}, 0.05, None, 0.2, measured, 1.0) for name in ("round robin", "PromptGroup router")]
    heads, lines = compared(rows)
    assert heads[1:] == ("round robin", "PromptGroup router")
    assert ("TTFT p50", "50 ms", "50 ms") in lines
    assert ("TTFT p99", "-", "-") in lines


def test_texts_of_two_seeds_share_nothing_and_have_their_length():
    assert len(text_of(1000, 1)) == 1000
    assert text_of(1000, 1)[:20] != text_of(1000, 2)[:20]
    assert text_of(1000, 1) == text_of(1000, 1)


def test_a_router_takes_the_table():
    (group,) = decode_table(encode_table(table_of(["127.0.0.1:1", "127.0.0.1:2"]))).groups
    assert [slot.address for slot in group.revisions[0].slots] == ["127.0.0.1:1", "127.0.0.1:2"]
    assert group.revisions[0].prompt.fingerprint == group.revisions[0].fingerprint


def test_vllm_gets_random_weights_and_its_share_of_the_memory(tmp_path):
    command = Kit(tmp_path, "/opt/vllm", standin=False).command(8000, 0.42)
    assert command[:2] == ["/opt/vllm", "serve"]
    assert {"--load-format=dummy", "--gpu-memory-utilization=0.42"} <= set(command)


def test_a_folder_has_the_program_in_its_environment(tmp_path):
    assert Kit(tmp_path, str(tmp_path), standin=False).command(1, 0.5)[0] == f"{tmp_path}/venv/bin/vllm"


def test_a_program_that_is_not_there_is_an_error_in_a_line(capsys):
    assert gpu.main(["--vllm", "/no/such/vllm"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.slow
def test_the_whole_kit_runs_with_stand_ins(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "LENGTHS", (2_000, 8_000))
    assert gpu.main(["--standin", "--repeat=1", f"--out={tmp_path / 'gpu.md'}"]) == 0
    text = (tmp_path / "gpu.md").read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    assert re.search(r"\| prompt tokens found in cache \| [\d.]+% \| [\d.]+% \|", text)
    assert "| requests (failed) | 256 (0) | 256 (0) |" in text
