from io import StringIO

import pytest
from rich.console import Console

from promptgroup_local.load.counters import Measured
from promptgroup_local.real.diagnosis import LOADS, RESET, Row, report

HEALTHY, DRIFT, THRASH = LOADS


def row(step, *, hit_rate=0.5, size="WithinTarget", **said) -> Row:
    told = {"status": step.status, "reason": step.reason, "message": f"50% found: {step.says}: move it"}
    return Row(step, (), Measured(hit_rate, 1.0, None, {}), told | said, {"reason": size})


def test_a_step_is_kept_when_the_condition_says_what_it_must():
    assert row(DRIFT).kept


@pytest.mark.parametrize("said", [{"status": "Unknown"}, {"reason": "Thrashing"}, {"message": "at byte 7 of 9"}])
def test_another_status_reason_or_place_is_not_as_promised(said):
    assert not row(DRIFT, **said).kept


@pytest.mark.parametrize("hit_rate", [None, 0.5])
def test_a_prefix_that_the_engines_did_not_find_is_not_as_promised_whatever_is_said(hit_rate):
    assert not row(RESET, hit_rate=hit_rate).kept
    assert row(RESET, hit_rate=0.95).kept


def test_more_replicas_are_asked_for_where_they_help_and_nowhere_else():
    assert not row(THRASH).kept
    assert row(THRASH, size="TooManyReplicas").kept
    assert not row(DRIFT, size="TooManyReplicas").kept


def test_the_table_says_which_step_is_not_as_promised():
    console = Console(file=StringIO(), width=80)
    console.print(report([row(DRIFT), row(HEALTHY, reason="Unexplained")], "vLLM"))
    (drift,) = (line for line in console.file.getvalue().splitlines() if DRIFT.name in line)
    (healthy,) = (line for line in console.file.getvalue().splitlines() if "NO" in line)
    assert "PromptDrift" in drift
    assert "yes" in drift
    assert "Unexplained" in healthy
    assert HEALTHY.name in healthy
