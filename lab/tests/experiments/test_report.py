import json
from dataclasses import replace
from xml.etree import ElementTree as ET

from promptgroup_research.experiments import report
from promptgroup_research.experiments.gates import Gate
from promptgroup_research.experiments.report import Sheet
from promptgroup_research.experiments.runs import Cell
from promptgroup_research.experiments.scenarios import Outcome
from promptgroup_research.output import plots
from promptgroup_research.simulator.measure import Figures

BASE = Figures(
    requests=9, hit=0.85, mean=0.1, p50=0.05, p95=0.3, p99=1.5, imbalance=1.1, refused=0, unfinished=0, wait=0, own=0
)
CELLS = [Cell("chat", "oracle", 0.75, BASE), Cell("chat", "promptgroup", 0.75, replace(BASE, p99=2.0))]


def test_a_sheet_is_markdown():
    text = Sheet("T", ("name", "a"), (("x", "1"),)).markdown()
    assert text == "**T**\n\n| name | a |\n| --- | ---: |\n| x | 1 |\n"


def test_figures_are_shown_in_milliseconds_and_shares():
    (sheet,) = report.comparisons(CELLS, {"chat": "chat"})
    assert sheet.rows[0] == ("oracle", "85.0%", "100", "50", "300", "1,500", "1.10", "0", "0")
    assert len(sheet.columns) == len(sheet.rows[0])


def test_a_missed_gate_is_seen():
    rows = report.verdicts([Gate("a", "b", 1.0, 2.0), Gate("a", "b", 1.0, 2.0, at_least=True)]).rows
    assert [row[-2:] for row in rows] == [("<= 2", "met"), (">= 2", "MISSED")]


def test_json_has_cells_and_gates():
    document = json.loads(report.as_json(CELLS, [Gate("a", "b", 1.0, 2.0)]))
    assert document["cells"][1]["figures"]["p99"] == 2.0
    assert document["gates"][0]["met"] is True


def test_plots_are_well_formed_and_cut_what_is_off_the_scale():
    drawn = plots.comparison([*CELLS, Cell("chat", "a & b", 0.75, replace(BASE, p99=99.0))], "title <")
    for text in drawn.values():
        ET.fromstring(text)
    assert "»" in drawn["p99"]
    bars = [each for each in ET.fromstring(drawn["p99"]).iter() if each.tag.endswith("rect")][1:]
    assert [float(bar.get("width")) for bar in bars] == [55.0, 73.3, 330.0]


def test_a_line_over_time_is_well_formed():
    line = Outcome(
        "lost", "chat", "promptgroup", 1.0, 2.0, 0.0, 0.0, 0.0, ((-10.0, 1.0, 0.8), (0.0, 2.0, 0.7), (10.0, 1.0, 0.8))
    )
    root = ET.fromstring(plots.over_time([line, line], "title"))
    assert sum(each.tag.endswith("polyline") for each in root.iter()) == 2
