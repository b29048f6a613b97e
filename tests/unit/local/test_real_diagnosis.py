from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from promptgroup_contract.table import Prompt
from promptgroup_local.load.counters import Measured
from promptgroup_local.real.diagnosis import DECLARED, LOADS, REPLICAS, RESET, TOUCHED, Row, report
from promptgroup_operator.plan.status import conditions
from promptgroup_operator.rollout.release import RevisionPhase, RevisionStep
from promptgroup_operator.sizing.diagnosis import diagnose
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.warmth.refresh import due_refresh, judge_answer
from promptgroup_operator.world.load import PromptDrift
from promptgroup_operator.world.snapshot import LastSeen, PodCondition, Spent
from promptgroup_operator.world.warming import RefreshAnswer
from support.builders import FINGERPRINT, NOW, TEXT, ago, pod, reading, revision, spec, world
from support.loads import load

HEALTHY, DRIFT, THRASH = LOADS
SEEN = (
    (HEALTHY, load()),
    (DRIFT, load(hit_rate=0.1, drift=PromptDrift(0.9, 0, DECLARED))),
    (THRASH, load(hit_rate=0.85, sessions=1000, history=3500)),
)


def test_the_operator_says_what_each_load_waits_for():
    for step, seen in SEEN:
        found = diagnose(seen, None, "")
        assert (str(found.status), found.reason) == (step.status, step.reason)
        assert step.says in found.message


def test_the_operator_says_of_prefixes_what_the_first_steps_wait_for():
    plan = {FINGERPRINT: RevisionStep(FINGERPRINT, RevisionPhase.SERVING, 100, frozenset(range(REPLICAS)))}
    seen = world([revision(pods=[pod(str(slot), slot) for slot in range(REPLICAS)], replicas=REPLICAS)])
    size = SizingDecision(REPLICAS, "FixedReplicas", "", active=False)
    told = conditions(seen, plan, FINGERPRINT, size, serving=FINGERPRINT, ready={FINGERPRINT: REPLICAS}, waits=None)
    (found,) = (each for each in told if each.type == TOUCHED.condition)
    assert (str(found.status), found.reason) == (TOUCHED.status, TOUCHED.reason)
    assert TOUCHED.says in found.message
    warm = PodCondition("True", TOUCHED.reason, "", NOW)
    touched = pod(warm=warm, last_seen=LastSeen(ago(hours=1), reading(), reading(), None))
    touch = due_refresh(touched, Prompt(TEXT), spec(), timedelta(minutes=5), NOW)
    outcome = judge_answer(touch, RefreshAnswer(reading(10), 0, 96, Spent(100, 0)), NOW)
    assert outcome.reason == RESET.reason
    assert RESET.says in outcome.message


MORE = f"the load asks for {REPLICAS + 1} (WorkingSetOutgrewCache): utilisation 41%"
FEWER = f"the load asks for {REPLICAS - 1} (DemandFell): utilisation 1%"


def row(step, *, hit_rate=0.5, size="utilisation 41%", **said) -> Row:
    told = {"status": step.status, "reason": step.reason, "message": f"50% found: {step.says}: move it"}
    return Row(step, (), Measured(hit_rate, 1.0, None, {}), told | said, {"reason": "TooManyReplicas", "message": size})


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
    assert row(THRASH, size=MORE).kept
    assert not row(THRASH, size=FEWER).kept
    assert row(DRIFT, size=FEWER).kept
    assert not row(DRIFT, size=MORE).kept


def test_the_table_says_which_step_is_not_as_promised():
    console = Console(file=StringIO(), width=80)
    console.print(report([row(DRIFT), row(HEALTHY, reason="Unexplained")], "vLLM"))
    (drift,) = (line for line in console.file.getvalue().splitlines() if DRIFT.name in line)
    (healthy,) = (line for line in console.file.getvalue().splitlines() if "NO" in line)
    assert "PromptDrift" in drift
    assert "yes" in drift
    assert "Unexplained" in healthy
    assert HEALTHY.name in healthy
