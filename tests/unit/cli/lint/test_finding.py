"""Severities: their order, and the words that SARIF has for them."""

from promptgroup_cli.lint.finding import Severity


def test_severities_are_ordered_and_named_as_sarif_names_levels():
    assert sorted(Severity, reverse=True) == [Severity.ERROR, Severity.WARNING, Severity.NOTE]
    assert {each.name.lower() for each in Severity} == {"error", "warning", "note"}
