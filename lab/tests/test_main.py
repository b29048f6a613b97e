import json
import sys

import pytest

from promptgroup_research import __main__ as command


def call(monkeypatch, *flags):
    monkeypatch.setattr(sys, "argv", ["sim", *flags])
    return command.main()


def test_a_quick_comparison_writes_what_was_asked_for(monkeypatch, tmp_path, capsys):
    flags = ("--quick", "--jobs", "1", "--workload", "agents", "--load", "0.2", "--policy", "promptgroup", "oracle")
    files = ("--json", str(tmp_path / "f.json"), "--markdown", str(tmp_path / "f.md"), "--plots", str(tmp_path / "p"))
    assert call(monkeypatch, *flags, *files) == 0
    assert "p99 TTFT, x oracle" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "f.json").read_text())["cells"]) == 2
    assert "| promptgroup |" in (tmp_path / "f.md").read_text()
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"agents-20-p99.svg", "agents-20-hit.svg"}


def test_a_missed_gate_is_an_error_only_when_asked(monkeypatch):
    monkeypatch.setattr(command, "gates", lambda *_: [command.Gate("a", "b", 2.0, 1.0)])
    flags = ("--quick", "--jobs", "1", "--workload", "agents", "--load", "0.1", "--policy", "oracle")
    assert call(monkeypatch, *flags) == 0
    assert call(monkeypatch, *flags, "--strict") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--trace", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--load", "85"), "0.85 for 85 %"),
        (("--jobs", "0"), "at least one process"),
        (("--policy", "best"), "invalid choice"),
    ],
)
def test_a_wrong_flag_is_named(monkeypatch, capsys, flags, said):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
