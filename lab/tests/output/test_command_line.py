import argparse

import pytest
from rich.console import Console

from promptgroup_research.experiments.report import Sheet
from promptgroup_research.output.command_line import add_flags, watched, write


def chosen(*flags):
    parser = argparse.ArgumentParser()
    add_flags(parser, quick="less")
    return parser.parse_args(flags)


@pytest.mark.parametrize("jobs", ["0", "-2", "many"])
def test_a_number_of_processes_that_cannot_be_is_refused_with_its_flag(jobs, capsys):
    with pytest.raises(SystemExit):
        chosen(f"--jobs={jobs}")
    assert "argument --jobs" in capsys.readouterr().err


def test_results_come_in_the_order_of_jobs():
    assert watched(Console(quiet=True), abs, [-3, 2, -1], 1) == [3, 2, 1]


def test_only_what_is_asked_for_is_written(tmp_path):
    sheet = Sheet("Hits", ("policy", "hits"), [("ours", "95 %")])
    write(chosen(), [sheet], lambda: pytest.fail("nobody asked"), {"a": "<svg/>"})
    assert list(tmp_path.iterdir()) == []
    flags = (f"--markdown={tmp_path}/t.md", f"--json={tmp_path}/f.json", f"--plots={tmp_path}/new/plots")
    write(chosen(*flags), [sheet], lambda: "{}", {"a": "<svg/>"})
    assert "ours" in (tmp_path / "t.md").read_text()
    assert (tmp_path / "f.json").read_text() == "{}"
    assert (tmp_path / "new/plots/a.svg").read_text() == "<svg/>"
