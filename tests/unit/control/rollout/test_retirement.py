import pytest

from promptgroup_contract.fingerprint import fingerprint, short
from promptgroup_operator.rollout import retirement
from promptgroup_operator.rollout.release import RevisionPhase, RevisionStep
from promptgroup_operator.world.samples import Traffic
from promptgroup_operator.world.snapshot import Progress
from support.builders import NOW, ago, goal, pod, restarted, revision, starting

SUPERSEDED, RETIRING = RevisionPhase.SUPERSEDED, RevisionPhase.RETIRING

RETIRED = {
    "not before its time": ({"superseded_at": ago(minutes=59)}, SUPERSEDED),
    "when its time has come": ({"superseded_at": ago(minutes=60)}, RETIRING),
    "not while its engines work for somebody": (
        {"superseded_at": ago(minutes=90), "quiet_since": ago(minutes=59)},
        SUPERSEDED,
    ),
    "when they have been quiet as long": (
        {"superseded_at": ago(minutes=90), "quiet_since": ago(minutes=60)},
        RETIRING,
    ),
    "quiet from before it was superseded does not count": (
        {"superseded_at": ago(minutes=30), "quiet_since": ago(minutes=90)},
        SUPERSEDED,
    ),
    "unknown quiet is counted from when it was superseded": (
        {"superseded_at": ago(minutes=61), "quiet_since": None},
        RETIRING,
    ),
    "it is superseded from this pass on": ({}, SUPERSEDED),
}


@pytest.mark.parametrize("case", RETIRED)
def test_the_old_revision_retires(case):
    fields, expected = RETIRED[case]
    step = retirement.superseded(revision("a", [pod()], weight=0, **fields), goal("b"))
    assert step.phase is expected
    assert step.superseded_at == fields.get("superseded_at", NOW)


def test_a_time_that_has_not_come_is_taken_for_now():
    """The clock of the operator that wrote it was ahead by days: nobody waits for days because of that."""
    step = retirement.superseded(revision("a", [pod()], weight=0, superseded_at=ago(days=-400)), goal("b"))
    assert (step.phase, step.superseded_at) == (SUPERSEDED, NOW)


def test_one_that_loses_all_its_replicas_is_not_retired_for_that():
    one = revision("a", [restarted()], superseded_at=ago(minutes=1))
    assert retirement.superseded(one, goal("b")).phase is SUPERSEDED


def test_one_that_never_took_over_and_has_nothing_warm_retires_at_once():
    assert retirement.superseded(revision("a", [starting()], weight=0), goal("b")).phase is RETIRING


def test_a_canary_that_never_took_over_and_has_nothing_warm_retires_at_once_when_it_is_replaced():
    canary = {"weight": 5, "progress": Progress(5, NOW), "superseded_at": ago(minutes=1)}
    assert retirement.superseded(revision("a", [starting()], **canary), goal("b")).phase is RETIRING
    assert retirement.superseded(revision("a", [pod()], **canary), goal("b")).phase is SUPERSEDED


def test_one_that_never_took_over_begins_anew_if_it_is_wanted_again():
    one = revision("a", [starting()], weight=0, progress=Progress(40, NOW))
    assert retirement.superseded(one, goal("b")).progress == Progress(0, None)
    assert retirement.superseded(revision("a", [pod()], weight=0), goal("b")).progress is None


def test_what_routers_say_of_its_requests_goes_before_what_its_engines_do():
    one = revision("a", [pod()], weight=0, superseded_at=ago(hours=3), quiet_since=ago(minutes=1))
    quiet = Traffic(True, last_requests={short(one.fingerprint): ago(hours=2)}, watched_since=ago(hours=3))
    assert retirement.superseded(one, goal("b", traffic=quiet)).phase is RETIRING
    assert retirement.superseded(one, goal("b", traffic=Traffic(True))).phase is SUPERSEDED


def test_one_without_replicas_has_retired():
    step = retirement.superseded(revision("a", superseded_at=ago(hours=2)), goal("b"))
    assert step.phase is RevisionPhase.RETIRED
    waiting = revision("a", [pod(deleting=True)], superseded_at=ago(hours=2), replicas=0)
    assert retirement.superseded(waiting, goal("b")).phase is RETIRING


def test_the_history_keeps_those_that_were_superseded_last_and_the_target_whatever_it_is():
    ages = {"a": 4, "b": 1, "c": 3, "d": 2}
    revisions = [revision(name, superseded_at=ago(days=age)) for name, age in ages.items()]
    steps = {each.fingerprint: RevisionStep(each.fingerprint, RevisionPhase.RETIRED, 0) for each in revisions}
    gone = retirement.forgotten(revisions, steps, fingerprint("a"), 1)
    assert [each.fingerprint for each in gone] == [fingerprint("d"), fingerprint("c")]
    assert retirement.forgotten(revisions, steps, fingerprint("a"), 3) == []
