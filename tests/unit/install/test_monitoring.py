"""Alerts and dashboard use series that exist; other tests hold the page of series equal to the code."""

import json
import re
from pathlib import Path

import pytest

from support.yamlfiles import document

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "manifests/monitoring"
RULES = [rule for group in document((FOLDER / "rules.yaml").read_text())["spec"]["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
DISCOVERED = {"namespace", "pod"}
"""Labels that scraping adds."""


def series():
    """Name → labels, of every series on the page; a histogram by the names of its parts."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE
    )
    found = {}
    for name, kind, labels in rows:
        known = {*re.findall(r"`(\w+)`", labels), *DISCOVERED}
        found[name] = known
        if kind == "histogram":
            found |= {f"{name}_bucket": {*known, "le"}, f"{name}_sum": known, f"{name}_count": known}
    return found


SERIES = series()
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
]
VARIABLES = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *VARIABLES])
def test_every_series_and_label_that_is_asked_for_exists(expression):
    used = re.findall(r"(promptgroup_\w+)(?:\{([^}]*)\})?", expression)
    assert used
    for name, matchers in used:
        assert name in SERIES, expression
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", matchers)) <= SERIES[name], expression
    grouped = re.findall(r"\b(?:by|on|without) \(([^)]*)\)", expression)
    known = set.union(*(SERIES[name] for name, _ in used))
    assert {label.strip() for each in grouped for label in each.split(",")} <= known, expression


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do_and_its_labels_are_there(rule):
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description"}
    told = " ".join(rule["annotations"].values())
    known = set.union(*(SERIES[name] for name in re.findall(r"promptgroup_\w+", rule["expr"])))
    assert set(re.findall(r"\$labels\.(\w+)", told)) <= known


def test_the_page_has_every_alert_with_its_severity():
    page = (ROOT / "docs/how-to/monitoring.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE) == [
        (rule["alert"], rule["labels"]["severity"]) for rule in RULES
    ]


def test_panels_have_places_of_their_own():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
