"""All rules together: the report, its order, what is left out, and that the page names every rule."""

import re
from pathlib import Path

from promptgroup_cli.lint import linter
from promptgroup_cli.lint.finding import Severity
from promptgroup_cli.lint.linter import RULES, Linter
from support.lints import STATIC, chat, declared, found, report

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "cli.md"


def test_every_rule_is_in_the_pages_table_with_its_severity():
    rows = re.findall(r"^\| `([a-z-]+)` \| (error|warning|note) \| ", PAGE.read_text(), re.MULTILINE)
    assert rows == [(rule.id, rule.severity.name.lower()) for rule in RULES]
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_a_clean_prompt_has_no_finding():
    clean = report(declared(STATIC), *[chat(STATIC)] * 20)
    assert (clean.prompts, clean.findings, clean.worst, clean.more) == (21, (), None, ())


def test_the_worst_comes_first():
    text = f"Open at 9:00. Time: 18:11:05. Today is 2026-11-21. {STATIC}"
    assert [severity for _, severity, *_ in found(declared(text))] == ["error", "warning", "note"]
    assert report(declared(text)).worst is Severity.ERROR


def test_what_is_left_out_is_counted_and_still_decides(monkeypatch):
    monkeypatch.setattr(linter, "MOST_FINDINGS", 2)
    found = report(declared(f"{STATIC} 10:00:00, 11:00:00, 12:00:00, 13:00:00, 14:00, {{now}}"))
    assert [each.rule.id for each in found.findings].count("time") == 3
    assert found.more == (("time", 2),)


def test_a_line_that_is_no_request():
    run = Linter(16)
    run.unreadable("log", 3, "not JSON")
    (finding,) = run.report().findings
    assert (finding.rule.id, finding.place.line, finding.message) == ("unreadable-request", 3, "not JSON")


def test_a_pod_template_is_told_of_at_its_line():
    run = Linter(16)
    run.template("a.yaml", 9, ["spec.x is not a field"], ["spec.y is null"])
    report = run.report()
    assert [(each.rule.id, each.place.line, each.message) for each in report.findings] == [
        ("template-types", 9, "spec.x is not a field"),
        ("template-null", 9, "spec.y is null"),
    ]
