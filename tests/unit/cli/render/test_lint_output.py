"""The three forms of a report."""

import json

from promptgroup_cli.render import lint_output
from support.lints import STATIC, chat, declared, report

DATED = report(declared(f"Time: 18:11:05. {STATIC}\n18:11:06", lines=True), show=20)
LOG = report(*[chat(STATIC)] * 3, chat(f"{STATIC} It is short."))


def test_text_explains_each_rule_once():
    lines = lint_output.text(DATED).splitlines()
    assert lines[0] == (
        f"file:1: warning time at byte 6 of system: a time of day, followed by {len(STATIC) + 11} bytes: '18:11:05'"
    )
    assert lines[1].startswith("    why: ")
    assert lines[2].startswith("    fix: ")
    assert lines[-2].startswith("file:2: warning time at byte ")
    assert lines[-1] == "1 prompt examined: 2 warnings"
    assert [line for line in lines if "why:" in line] == [lines[1]]
    assert max(map(len, lines)) <= lint_output.WIDTH


def test_text_has_a_table_of_prefixes():
    lines = lint_output.text(LOG).splitlines()
    assert lines[1].split() == ["hash", "bytes", "tokens", "requests", "share", "then"]
    assert lines[2].split()[1:5] == [str(len(STATIC)), str(len(STATIC) // 4), "4", "100%"]
    assert lines[2].endswith(f"2 prompts, from byte {len(STATIC)} of system")
    assert lines[-1] == "4 prompts examined: nothing found"


def test_json():
    found = json.loads(lint_output.document(DATED))
    assert found["prompts"] == 1
    first = found["findings"][0]
    assert {key: value for key, value in first.items() if key not in ("message", "why", "wayOut")} == {
        "rule": "time", "severity": "warning", "file": "file", "line": 1, "field": "system", "offset": 6, "requests": 1,
        "excerpt": "18:11:05",
    }  # fmt: skip
    assert json.loads(lint_output.document(LOG))["prefixes"][0] == {
        "model": "m", "hash": LOG.prefixes[0].hash, "bytes": len(STATIC), "tokens": len(STATIC) // 4, "requests": 4,
        "share": 1.0, "prompts": 2, "field": "system", "offset": len(STATIC),
    }  # fmt: skip


def test_sarif():
    (run,) = json.loads(lint_output.sarif(DATED))["runs"]
    known = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} <= known
    assert [result["locations"][0]["physicalLocation"]["region"]["startLine"] for result in run["results"]] == [1, 2]
    assert {result["level"] for result in run["results"]} == {"warning"}
