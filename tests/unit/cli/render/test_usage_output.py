import json
from datetime import UTC, datetime

from promptgroup_cli.reach.usage_prometheus import CallerUsage
from promptgroup_cli.render.usage_output import document, table

END = datetime(2026, 11, 2, tzinfo=UTC)


def test_one_caller_needs_no_total_and_no_prompt_has_no_rate():
    text = table([CallerUsage("a/b", "c", 1, 0, 0, 0)], END, 60)
    assert "total" not in text
    assert text.splitlines()[-1].split() == ["a/b", "c", "1", "0", "0", "-", "0", "0", "0"]


def test_the_document_says_the_period():
    assert json.loads(document([], END, 60)) == {
        "start": "2026-11-01T23:59:00Z",
        "end": "2026-11-02T00:00:00Z",
        "usage": [],
    }
