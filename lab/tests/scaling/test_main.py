import json
import sys

import pytest

from promptgroup_research.scaling import __main__ as command
from promptgroup_research.simulator.trace import synthetic, written


def call(monkeypatch, *flags):
    monkeypatch.setattr(sys, "argv", ["scaling", *flags])
    return command.main()


def test_a_quick_run_shows_and_writes_what_came(monkeypatch, tmp_path, capsys):
    names = ("--json", "f.json", "--markdown", "f.md", "--plots", "plots")
    files = [each if each.startswith("--") else str(tmp_path / each) for each in names]
    call(monkeypatch, "--quick", "--scene", "thrash", "--jobs", "1", *files)
    shown = capsys.readouterr().out
    assert "promptgroup" in shown
    assert "HPA, queue" in shown
    document = json.loads((tmp_path / "f.json").read_text())
    assert {course["scaler"] for course in document["thrash"]} >= {"promptgroup", "fixed at 4"}
    assert "| promptgroup |" in (tmp_path / "f.md").read_text()
    assert (tmp_path / "plots" / "thrash.svg").read_text().startswith("<svg")


def test_a_missed_gate_is_an_exit_status_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(command.judge, "RECOVERED", 2.0)
    flags = ("--quick", "--scene", "thrash", "--jobs", "1")
    assert call(monkeypatch, *flags) == 0
    assert call(monkeypatch, *flags, "--strict") == 1


def test_a_recorded_trace_is_played(monkeypatch, tmp_path, capsys):
    path = tmp_path / "recorded.jsonl"
    path.write_text(written(synthetic(1, 400)))
    assert call(monkeypatch, "--quick", "--ours", "--scene", "trace", "--jobs", "1", "--trace", str(path)) == 0
    assert "trace recorded" in capsys.readouterr().out


def test_a_trace_that_cannot_be_read_is_an_error_that_names_it(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        call(monkeypatch, "--trace", "/nowhere.jsonl")
    assert "/nowhere.jsonl" in capsys.readouterr().err
