import random
from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_contract.fingerprint import fingerprint, short
from promptgroup_contract.table import SlotState
from promptgroup_operator.base import timestamps
from promptgroup_operator.rollout import rollout
from promptgroup_operator.rollout.release import RevisionPhase
from promptgroup_operator.world.samples import Flow, Histogram, Stratum, StratumKey, Traffic
from promptgroup_operator.world.snapshot import Problem, Progress, RolledBack
from support.builders import NOW, SETTINGS, ago, cold, goal, pod, restarted, revision, starting

A, B, C = (fingerprint(text) for text in "abc")
SERVING, COMING, CANARY, SUPERSEDED = (
    RevisionPhase.SERVING,
    RevisionPhase.COMING,
    RevisionPhase.CANARY,
    RevisionPhase.SUPERSEDED,
)
RETIRING, RETIRED, ROLLED_BACK = RevisionPhase.RETIRING, RevisionPhase.RETIRED, RevisionPhase.ROLLED_BACK
STEPS = [{"weight": 10, "pause": "10m"}, {"weight": 40, "pause": "10m"}]


def warm(count, *, first=0):
    return [pod(f"p{i}", i) for i in range(first, first + count)]


def serves(text, pods, **fields):
    return revision(text, pods, **{"weight": 100, **fields})


def comes(text, pods, come_to=0, since=None, **fields):
    return revision(text, pods, **{"weight": 0, "progress": Progress(come_to, since), **fields})


def old(text, pods, **fields):
    """Superseded, within its time."""
    return revision(text, pods, **{"weight": 0, "superseded_at": ago(minutes=1), **fields})


ENOUGH = Stratum(200)


def counted(new=ENOUGH, before=ENOUGH, *, named=1.0, known=True):
    """Routers that compared so many requests of b with those of a."""
    samples = {short(B): {StratumKey(): new}, short(A): {StratumKey(): before}}
    flows = {name: Flow(100, 100 * named) for name in samples}
    return Traffic(known, flows, samples)


def found(revisions, *, of):
    """Fingerprint → (phase, weight)."""
    return {name: (step.phase, step.weight) for name, step in rollout.decide(revisions, of).steps.items()}


PHASES = {
    "the first revision serves from the start": ([], "a", {A: (SERVING, 100)}),
    "one revision serves, warm or not": ([serves("a", [starting("p")])], "a", {A: (SERVING, 100)}),
    "a new prompt comes up beside the old one": ([serves("a", warm(2))], "b", {B: (COMING, 0), A: (SERVING, 100)}),
    "a replica carries its share of the new sessions": (
        [serves("a", warm(2)), comes("b", warm(1))],
        "b",
        {B: (CANARY, 50), A: (SERVING, 50)},
    ),
    "all of them, all sessions": (
        [serves("a", warm(2), weight=50), comes("b", warm(2), weight=50)],
        "b",
        {B: (CANARY, 100), A: (SERVING, 0)},
    ),
    "it takes over once the route says so": (
        [serves("a", warm(1), weight=0), comes("b", warm(2), weight=100)],
        "b",
        {B: (SERVING, 100), A: (SUPERSEDED, 0)},
    ),
    "it keeps the traffic when a replica dies afterwards": (
        [old("a", warm(2)), serves("b", warm(1))],
        "b",
        {B: (SERVING, 100), A: (SUPERSEDED, 0)},
    ),
    "it takes over at once when the old one never served": (
        [serves("a", [starting("p")], progress=Progress(0, None))],
        "b",
        {B: (SERVING, 100), A: (SUPERSEDED, 0)},
    ),
    "an old one whose pods are all replaced serves on": (
        [serves("a", [starting("p")]), comes("b", [cold("q", reason="WarmupRefused")])],
        "b",
        {B: (COMING, 0), A: (SERVING, 100)},
    ),
    "so does one that has no pod at all": (
        [serves("a", [], replicas=1), comes("b", [cold("q", reason="WarmupRefused")])],
        "b",
        {B: (COMING, 0), A: (SERVING, 100)},
    ),
    "whoever is warm first serves when both have lost their pods": (
        [serves("a", [starting("p")], weight=50), comes("b", warm(1), weight=50)],
        "b",
        {B: (CANARY, 50), A: (SERVING, 50)},
    ),
    "one that has lost its replicas before it took over gives all back": (
        [serves("a", warm(2), weight=0), comes("b", [starting("q")], weight=100)],
        "b",
        {B: (COMING, 0), A: (SERVING, 100)},
    ),
    "and waits when the old one lost them, too": (
        [serves("a", [starting("p")], weight=0), comes("b", [starting("q")], weight=100)],
        "b",
        {B: (COMING, 0), A: (SERVING, 100)},
    ),
    "one that took over keeps its traffic without a warm replica": (
        [old("a", warm(2)), serves("b", [starting("q")])],
        "b",
        {B: (SERVING, 100), A: (SUPERSEDED, 0)},
    ),
    "so it does when the route is lost": (
        [old("a", warm(2)), serves("b", warm(2), weight=0, slots={})],
        "b",
        {B: (SERVING, 100), A: (SUPERSEDED, 0)},
    ),
    "A to B to A without a warm replica of A: it loses nothing": (
        [serves("a", [starting("p")], weight=60), comes("b", warm(1), weight=40)],
        "a",
        {A: (CANARY, 60), B: (SERVING, 40)},
    ),
    "a canary that served is no heir while the one that took over is there": (
        [serves("a", [starting("p")], weight=40), comes("b", warm(1), weight=60)],
        "c",
        {C: (COMING, 0), A: (SERVING, 100), B: (SUPERSEDED, 0)},
    ),
    "an old one whose container restarts serves on": (
        [serves("a", [restarted("p")]), comes("b", warm(1))],
        "b",
        {B: (CANARY, 50), A: (SERVING, 50)},
    ),
    "A to B to A before B took over: A takes back what it carries": (
        [serves("a", warm(2), weight=50), comes("b", warm(1), weight=50)],
        "a",
        {A: (CANARY, 100), B: (SERVING, 0)},
    ),
    "A to B to C while B comes: A serves, B goes when it is quiet": (
        [serves("a", warm(2), weight=50), comes("b", warm(1), weight=50)],
        "c",
        {C: (COMING, 0), A: (SERVING, 100), B: (SUPERSEDED, 0)},
    ),
    "A to B to C: B, which never had anything warm, goes at once": (
        [serves("a", warm(2)), comes("b", [starting("q")])],
        "c",
        {C: (COMING, 0), A: (SERVING, 100), B: (RETIRING, 0)},
    ),
    "one that was marked superseded before the route was written serves still": (
        [serves("a", warm(2), superseded_at=ago(seconds=1)), comes("b", [])],
        "b",
        {B: (COMING, 0), A: (SERVING, 100)},
    ),
    "one that retired comes up again": (
        [serves("b", warm(2)), old("a", [], superseded_at=ago(days=1))],
        "a",
        {A: (COMING, 0), B: (SERVING, 100)},
    ),
}


@pytest.mark.parametrize("case", PHASES)
def test_phases(case):
    revisions, target, expected = PHASES[case]
    assert found(revisions, of=goal(target)) == expected
    assert sum(weight for _, weight in expected.values()) == 100


HELD = {
    "paused": {"paused": True},
    "awaits promotion": {"autoPromote": False},
    "awaits promotion after its steps": {"autoPromote": False, "steps": STEPS},
}


@pytest.mark.parametrize("case", HELD)
@pytest.mark.parametrize("pods", [[], [starting("p")], [cold("p", 0)]], ids=["gone", "starting", "cold"])
def test_a_release_that_is_held_supersedes_nobody(case, pods):
    """Whatever became of the pods that serve, and however far the new revision had come."""
    for weight, new, replicas in ((0, [cold("q")], 2), (0, warm(2), 2), (100, warm(2), 2), (0, [], 0)):
        revisions = [serves("a", pods if replicas else [], weight=100 - weight), comes("b", new, weight=weight)]
        steps = rollout.decide(revisions, goal("b", replicas, **HELD[case])).steps
        assert steps[A].phase is SERVING
        assert steps[A].superseded_at is None
        assert steps[B].progress is not None


def test_a_group_of_no_replicas_changes_its_prompt_at_once():
    assert found([serves("a", [])], of=goal("b", 0)) == {B: (SERVING, 100), A: (RETIRED, 0)}
    assert found([serves("a", warm(1))], of=goal("b", 0)) == {B: (COMING, 0), A: (SERVING, 100)}


def test_the_first_revision_has_taken_over_when_something_of_it_was_warm():
    def told(pods):
        return rollout.decide([serves("a", pods, progress=Progress(0, None))], goal("a")).steps[A].progress

    assert rollout.decide([], goal("a")).steps[A].progress == told([]) == told([cold("p", 0)]) == Progress(0, None)
    assert told(warm(1)) is told([restarted("p")]) is told([pod("p", deleting=True)]) is None
    assert rollout.decide([serves("a", [starting("p")])], goal("a")).steps[A].progress is None


def test_one_that_never_took_over_is_known_as_such_and_begins_anew():
    revisions = [serves("a", warm(2)), comes("b", warm(1), 40, ago(minutes=3), weight=0)]
    assert rollout.decide(revisions, goal("c", steps=STEPS)).steps[B].progress == Progress(0, None)
    assert rollout.decide([serves("b", warm(2)), old("a", warm(2))], goal("b")).steps[A].progress is None


def test_a_step_that_began_in_the_future_begins_now():
    """The clock of the operator that wrote it was ahead by days; so was it when it took a revision back."""
    step, ahead = STEPS[0]["weight"], ago(days=-400)
    canary = comes("b", warm(2), step, ahead, weight=step)
    steps = rollout.decide([serves("a", warm(2), weight=100 - step), canary], goal("b", steps=STEPS)).steps
    assert steps[B].progress == Progress(step, NOW)
    back = replace(canary, weight=0, rolled_back=RolledBack(ahead, SETTINGS, Problem("ErrorRate", "worse")))
    steps = rollout.decide([serves("a", warm(2)), back], goal("b", steps=STEPS)).steps
    assert steps[B].superseded_at == NOW


RETURNS = {
    "it takes back what it carries, whatever the steps are": ({"weight": 60}, (CANARY, 100), None),
    "so does one that was marked superseded before the route was written": (
        {"weight": 60, "superseded_at": ago(seconds=1)}, (CANARY, 100), None,
    ),
    "one that has all serves": ({"weight": 100, "superseded_at": ago(seconds=1)}, (SERVING, 100), None),
    "one that has lost all takes the steps": ({"weight": 0}, (CANARY, 10), Progress(0, None)),
}  # fmt: skip


@pytest.mark.parametrize("case", RETURNS)
def test_who_comes_back_before_another_took_over(case):
    fields, expected, progress = RETURNS[case]
    revisions = [serves("a", warm(2), **fields), comes("b", warm(1), weight=100 - fields["weight"])]
    step = rollout.decide(revisions, goal("a", traffic=counted(), steps=STEPS)).steps[A]
    assert ((step.phase, step.weight), step.progress) == (expected, progress)


STAGES = {
    # come to, since, weight in the route, traffic, fields of spec.rollout → weight, come to, since when, reason
    "the first weight": (0, None, 0, None, {}, (10, 0, None, "RevisionGrowing")),
    "its time runs once the route has it": (0, None, 10, counted(), {}, (10, 10, NOW, "TooFewRequests")),
    "the pause is not over": (10, ago(minutes=9), 10, counted(), {}, (10, 10, ago(minutes=9), "StepPause")),
    "the next weight, as far as it is carried": (
        10, ago(minutes=10), 10, counted(), {}, (25, 40, None, "RevisionGrowing"),
    ),
    "too few requests": (
        10, ago(hours=9), 10, counted(Stratum(49)), {}, (10, 10, ago(hours=9), "TooFewRequests"),
    ),
    "no router to ask": (10, ago(hours=9), 10, None, {}, (10, 10, ago(hours=9), "NoMetrics")),
    "paused": (10, ago(hours=9), 10, counted(), {"paused": True}, (10, 10, ago(hours=9), "Paused")),
    "paused before it had anything": (0, None, 0, None, {"paused": True}, (0, 0, None, "Paused")),
    "after the last step it takes over": (40, ago(hours=1), 40, counted(), {}, (40, 100, None, "RevisionGrowing")),
    "a time that somebody noted for the take-over": (
        100, ago(hours=1), 25, counted(), {}, (25, 100, None, "RevisionGrowing"),
    ),
    "but not by itself": (
        40, ago(hours=1), 40, counted(), {"autoPromote": False}, (40, 40, ago(hours=1), "AwaitsPromotion"),
    ),
    "without steps it waits for consent at no weight": (
        0, None, 0, None, {"steps": [], "autoPromote": False}, (0, 0, None, "AwaitsPromotion"),
    ),
    "who brings the prompt needs no weight, and the take-over the replicas that the traffic leaves": (
        100, None, 25, counted(named=0.0), {}, (99, 100, None, "RevisionGrowing"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STAGES)
def test_steps_of_a_canary_with_one_of_four_replicas(case):
    come_to, since, weight, traffic, fields, expected = STAGES[case]
    revisions = [serves("a", warm(4), weight=100 - weight), comes("b", warm(1), come_to, since, weight=weight)]
    release = rollout.decide(revisions, goal("b", 4, traffic=traffic, **{"steps": STEPS, **fields}))
    there = release.steps[B]
    assert (there.weight, there.progress.weight, there.progress.since, release.waits.reason) == expected
    assert release.steps[A].weight == 100 - there.weight


@pytest.mark.parametrize(
    ("hours", "reason"), [(3.9, "Undecided"), (4, "Inconclusive")], ids=["a while", "four times retireAfter"]
)
def test_a_step_that_looks_worse_says_since_when_by_which_limit_and_how_to_end_it(hours, reason):
    since, traffic = ago(hours=hours), counted(Stratum(60, 2), Stratum(60, 0))
    revisions = [serves("a", warm(4), weight=90), comes("b", warm(1), 10, since, weight=10)]
    release = rollout.decide(revisions, goal("b", 4, traffic=traffic, steps=STEPS))
    assert (release.steps[B].weight, release.waits.reason) == (10, reason)
    told = release.waits.message
    assert f"at step 1 of 2 since {timestamps.rfc3339(since)}: 3.3% of requests failed, 0.0%" in told
    assert "more than rollout.judge.maxErrorRisePercent allows, and not significant after 60 requests" in told
    assert "set rollout.steps to []" in told
    assert "apply the previous prompt" in told


LATE = {
    # rollout, come to, since when it grows, warm of four → weight, since when it grows, since when it is at the step
    "it is noted": ({}, 100, None, 2, (50, NOW, None)),
    "sessions of the old one hold up the take-over": ({}, 100, ago(hours=3), 2, (50, ago(hours=3), None)),
    "for four times retireAfter": ({}, 100, ago(hours=4), 2, (100, ago(hours=4), None)),
    "unless another time is set": ({"retireDeadline": "5h"}, 100, ago(hours=4), 2, (50, ago(hours=4), None)),
    "not while its own are not warm": ({}, 100, ago(hours=4), 1, (50, ago(hours=4), None)),
    "nor while it is paused": ({"paused": True}, 100, ago(hours=4), 2, (50, ago(hours=4), None)),
    "a step begins with what it has": (
        {"steps": [{"weight": 80, "pause": "1m"}]},
        0,
        ago(hours=4),
        2,
        (50, ago(hours=4), NOW),
    ),
    "not before its time": ({"steps": [{"weight": 80, "pause": "1m"}]}, 0, ago(hours=3), 2, (50, ago(hours=3), None)),
    "a clock was ahead": ({}, 100, ago(days=-9), 2, (50, NOW, None)),
}


@pytest.mark.parametrize("case", LATE)
def test_sessions_of_the_old_revision_hold_up_a_step_for_a_while(case):
    fields, come_to, grows, ready, expected = LATE[case]
    pods = [*warm(ready), *(cold(f"p{slot}", slot) for slot in range(ready, 2))]
    new = comes("b", pods, weight=50, progress=Progress(come_to, None, grows))
    revisions = [serves("a", warm(3), weight=50), new]
    step = rollout.decide(revisions, goal("b", 4, traffic=counted_by(0.4, 1.0), **fields)).steps[B]
    stands = 25 if ready == 1 and len(new.routed) > ready else expected[0]
    assert (step.weight, step.progress.grows, step.progress.since) == (stands, *expected[1:])


def steps(*weights):
    return [{"weight": each, "pause": "10m"} for each in weights]


EDITS = {
    # steps before, weight that it has come to, steps after → weight, come to, since when
    "nothing": ((5, 25), 25, (5, 25), (25, 25, ago(minutes=9))),
    "the first one is taken away": ((5, 25), 25, (25,), (25, 25, ago(minutes=9))),
    "one is put in front": ((5, 25), 25, (1, 5, 25), (25, 25, ago(minutes=9))),
    "others behind": ((5, 25), 25, (5, 25, 50), (25, 25, ago(minutes=9))),
    "all become one of a greater weight": ((10, 50), 50, (90,), (90, 50, None)),
    "one between": ((5, 25), 5, (10, 25), (10, 5, None)),
    "its own is taken away": ((5, 25, 50), 25, (5, 50), (50, 25, None)),
    "only lesser ones are left": ((5, 25, 50), 50, (5, 25), (25, 25, NOW)),
    "after the last it takes over whatever they are": ((5, 25), 100, (90,), (100, 100, None)),
    "there were none": ((), 0, (5, 25), (5, 5, NOW)),
    "all are taken away, which is consent": ((5, 25), 25, (), (100, 25, None)),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_of_steps_leads_to_the_step_of_the_same_weight_or_the_next(case):
    before, come_to, after, expected = EDITS[case]
    stood = 50 if come_to == 0 else min(come_to, 50)
    new = comes("b", warm(10), come_to, ago(minutes=9) if come_to in before else None, weight=stood)
    revisions = [serves("a", warm(10), weight=100 - stood), new]
    step = rollout.decide(revisions, goal("b", 10, traffic=counted(), steps=steps(*after))).steps[B]
    assert (step.weight, step.progress.weight, step.progress.since) == expected


def test_a_step_that_only_edits_led_to_is_analysed_like_any_other():
    """Steps become fewer again and again, and each time the last one begins anew."""
    revisions = [serves("a", warm(10), weight=50), comes("b", warm(10), 50, ago(hours=9), weight=50)]
    for weights in ((5, 25, 40), (5, 25), (5,)):
        release = rollout.decide(revisions, goal("b", 10, traffic=counted(), steps=steps(*weights)))
        step = release.steps[B]
        assert (step.weight, step.progress, release.waits.reason) == (
            weights[-1], Progress(weights[-1], NOW, NOW), "TooFewRequests",
        )  # fmt: skip
        revisions[1] = replace(revisions[1], weight=step.weight, progress=step.progress)


def test_a_step_that_is_passed_says_its_figures_once():
    revisions = [serves("a", warm(4), weight=90), comes("b", warm(1), 10, ago(minutes=10), weight=10)]
    passed = rollout.decide(revisions, goal("b", 4, traffic=counted(), steps=STEPS)).passed
    assert passed == Problem(
        "NotWorse",
        f"{short(B)} passed step 1 of 2: 0.0% of requests failed, 0.0% with the old revision (first turns by name, "
        "streamed)",
    )
    for fields in ({"paused": True}, {"traffic": counted(Stratum(49))}, {"steps": [{"weight": 10, "pause": "11m"}]}):
        release = rollout.decide(revisions, goal("b", 4, **{"traffic": counted(), "steps": STEPS, **fields}))
        assert release.passed is None


BAD = counted(Stratum(200, 50))


def canary(**fields):
    return [serves("a", warm(4), weight=90), comes("b", warm(1), 10, ago(minutes=2), weight=10, **fields)]


@pytest.mark.parametrize("paused", [False, True])
def test_a_worse_revision_is_rolled_back_with_both_figures(paused):
    release = rollout.decide(canary(), goal("b", 4, traffic=BAD, steps=STEPS, paused=paused))
    assert found(canary(), of=goal("b", 4, traffic=BAD, steps=STEPS)) == {B: (ROLLED_BACK, 0), A: (SERVING, 100)}
    mark = release.steps[B].rolled_back
    assert (mark.at, mark.settings, mark.why.reason) == (NOW, SETTINGS, "ErrorRate")
    assert release.steps[B].progress == Progress(0, None), "it never took over"
    assert "25.0% of requests failed, 0.0% with the old revision" in mark.why.message


MARK = RolledBack(ago(minutes=5), SETTINGS, Problem("ErrorRate", "25 % failed"))


def taken_back(**fields):
    return [serves("a", warm(4)), old("b", warm(1), **{"rolled_back": MARK, **fields})]


def test_it_is_not_tried_again_until_its_engine_changes():
    assert found(taken_back(), of=goal("b", 4)) == {B: (ROLLED_BACK, 0), A: (SERVING, 100)}
    release = rollout.decide(taken_back(), goal("b", 4, settings="another"))
    assert release.steps[B].phase is CANARY
    assert release.steps[B].rolled_back is None


def test_it_retires_when_its_sessions_are_over():
    gone = taken_back(superseded_at=ago(hours=1))
    assert found(gone, of=goal("b", 4))[B] == (RETIRING, 0)
    gone[1] = old("b", [], superseded_at=ago(hours=1), rolled_back=MARK)
    assert found(gone, of=goal("b", 4))[B] == (RETIRED, 0)


def test_another_prompt_forgets_that_it_was_rolled_back():
    release = rollout.decide(taken_back(), goal("a", 4))
    assert release.steps[B].rolled_back is None
    assert release.steps[A].phase is SERVING


def test_the_old_one_serves_a_rolled_back_group_of_no_replicas_too():
    revisions = [serves("a", []), old("b", [], rolled_back=MARK)]
    assert found(revisions, of=goal("b", 0))[B] == (RETIRED, 0)


def test_a_revision_that_all_have_left_for_the_new_one_is_not_waited_for():
    revisions = canary()
    revisions[0] = serves("a", warm(4), weight=90, quiet_since=ago(hours=1))
    few = counted(Stratum(3), Stratum(0), named=0.0)
    busy = rollout.decide(revisions, goal("b", 4, traffic=few, steps=STEPS))
    assert busy.steps[B].progress.weight == 10, "its engines were read before that"
    few = replace(few, flows={short(B): Flow(3, 0)})
    release = rollout.decide(revisions, goal("b", 4, traffic=few, steps=STEPS))
    assert (release.steps[B].weight, release.steps[B].progress.weight) == (100, 100)
    nobody = Traffic(True, {}, {})
    still = rollout.decide(revisions, goal("b", 4, traffic=nobody, steps=STEPS))
    assert still.steps[B].progress.weight == 10, "nobody came to the new one either"


def test_a_pause_holds_a_release_whose_old_revision_all_have_left():
    """It stays at its step, with the replicas that its traffic needs, and goes on from there if clients come back."""
    three = steps(10, 40, 70)
    revisions = canary()
    revisions[0] = serves("a", warm(4), weight=90, quiet_since=ago(hours=1))
    left = replace(counted(Stratum(30), Stratum(0), named=0.0), flows={short(B): Flow(30, 0)})
    held = rollout.decide(revisions, goal("b", 4, traffic=left, steps=three, paused=True))
    assert (held.steps[B].weight, held.steps[B].progress, held.most) == (10, Progress(10, ago(minutes=2)), 4)
    assert held.waits.reason == "Paused"
    goes_on = rollout.decide(revisions, goal("b", 4, traffic=left, steps=three))
    assert (goes_on.steps[B].weight, goes_on.steps[B].progress, goes_on.most) == (99, Progress(100, None), 4)
    assert goes_on.passed is None, "it was not analysed"


@pytest.mark.parametrize(("replicas", "weights"), [(1, [100]), (2, [50, 100]), (3, [34, 67, 100]), (40, [3, 5, 8])])
def test_weight_rises_with_the_replicas(replicas, weights):
    for count, weight in enumerate(weights, 1):
        assert rollout.carried(revision("b", warm(count)), goal("b", replicas)) == weight


def test_without_a_surge_the_last_replica_of_the_old_one_is_not_waited_for():
    for wanted, count, weight in ((1, 1, 100), (2, 1, 100), (3, 1, 50), (3, 2, 100)):
        assert rollout.carried(revision("b", warm(count)), goal("b", wanted, maxSurge=0)) == weight
    revisions = [serves("a", warm(1), weight=50), comes("b", warm(2), weight=50)]
    assert found(revisions, of=goal("b", 3, maxSurge=0))[B] == (CANARY, 100)
    revisions = [serves("a", warm(1), weight=0), comes("b", warm(2), weight=100)]
    assert found(revisions, of=goal("b", 3, maxSurge=0)) == {A: (SUPERSEDED, 0), B: (SERVING, 100)}
    revisions[0] = replace(revisions[0], superseded_at=NOW)
    assert found(revisions, of=goal("b", 3, maxSurge=0)) == {A: (RETIRING, 0), B: (SERVING, 100)}


def test_how_many_replicas_a_step_may_have():
    for come_to, most in ((0, 1), (10, 1), (11, 2), (40, 2), (100, 4)):
        revisions = [serves("a", warm(4)), comes("b", warm(1), come_to)]
        assert rollout.decide(revisions, goal("b", 4, steps=STEPS)).most == most


@pytest.mark.parametrize(("ready", "begins"), [(1, False), (2, True)])
def test_a_step_begins_when_the_replicas_for_clients_that_bring_the_prompt_are_warm(ready, begins):
    flows = {short(A): Flow(54, 54), short(B): Flow(46, 6)}
    new = comes("b", warm(ready), weight=10)
    aim = goal("b", 4, traffic=replace(counted(), flows=flows), steps=STEPS, maxSurge=2)
    release = rollout.decide([serves("a", warm(4), weight=90), new], aim)
    assert (release.steps[B].progress.since == NOW, release.most) == (begins, 2)
    if not begins:
        assert release.waits.reason == "RevisionGrowing"
        assert "clients that bring its prompt need 1 more of its replicas before step 1 of 2 begins" in (
            release.waits.message
        )
        late = replace(new, progress=Progress(0, None, ago(hours=4)))
        assert rollout.decide([serves("a", warm(4), weight=90), late], aim).steps[B].progress.since == NOW


SLOWER = Stratum(200, first_token=Histogram((0.1, 0.2, 0.4), (0, 0, 200, 0)))
FASTER = Stratum(200, first_token=Histogram((0.1, 0.2, 0.4), (200, 0, 0, 0)))
BROUGHT, NAMED = {short(A): Flow(54, 54), short(B): Flow(46, 6)}, {short(A): Flow(90, 90), short(B): Flow(10, 10)}
WITHIN = {
    # what clients do, samples of the new and the old revision, warm replicas, minutes since it grows → how it goes on
    "clients bring it and it is too busy": (BROUGHT, SLOWER, FASTER, 1, 10, "anew"),
    "it is as fast all the same": (BROUGHT, FASTER, FASTER, 1, 10, "anew"),
    "requests fail": (BROUGHT, replace(SLOWER, errors=150), FASTER, 1, 10, "rolled back"),
    "it has the replicas": (BROUGHT, SLOWER, FASTER, 2, 10, "rolled back"),
    "it has had its time": (BROUGHT, SLOWER, FASTER, 1, 240, "rolled back"),
    "clients name the group": (NAMED, SLOWER, FASTER, 1, 10, "rolled back"),
}


@pytest.mark.parametrize("case", WITHIN)
def test_a_step_begins_anew_with_the_replicas_for_what_clients_bring_within_it(case):
    flows, after, before, ready, minutes, expected = WITHIN[case]
    new = comes("b", warm(ready), weight=10, progress=Progress(10, ago(minutes=5), ago(minutes=minutes)))
    aim = goal("b", 4, traffic=replace(counted(after, before), flows=flows), steps=STEPS, maxSurge=2)
    release = rollout.decide([serves("a", warm(4), weight=90), new], aim)
    step = release.steps[B]
    if expected == "rolled back":
        assert step.rolled_back is not None
        return
    assert (step.weight, step.progress, release.most) == (10, Progress(10, None, ago(minutes=minutes)), 2)
    assert release.waits.reason == "RevisionGrowing"
    new = replace(new, pods=tuple(warm(2)), progress=step.progress)
    step = rollout.decide([serves("a", warm(4), weight=90), new], aim).steps[B]
    assert (step.rolled_back, step.progress.since) == (None, NOW)  # the samples are of the time before


@pytest.mark.parametrize("trouble", ["", "ImagePullBackOff"])
def test_a_step_waits_for_no_replica_that_cannot_start_longer_than_the_deadline(trouble):
    pods = [*warm(1), replace(starting("p1"), trouble=trouble)]
    new = comes("b", pods, weight=10, progress=Progress(10, None, ago(hours=4)))
    aim = goal("b", 4, traffic=replace(counted(), flows=BROUGHT), steps=STEPS, maxSurge=2)
    step = rollout.decide([serves("a", warm(4), weight=90), new], aim).steps[B]
    assert (step.progress.since is not None) == bool(trouble)


def test_clients_that_bring_the_prompt_and_no_other_to_compare_with_end_a_step_at_the_deadline():
    def step(age, **fields):
        new = {StratumKey("first", "content"): Stratum(60, **fields), StratumKey("other", "content"): Stratum(20)}
        traffic = Traffic(True, {short(A): Flow(1, 0), short(B): Flow(80, 0)}, {short(B): new, short(A): {}})
        revisions = [serves("a", warm(1), weight=90), comes("b", warm(4), 10, age, weight=10)]
        return rollout.decide(revisions, goal("b", 4, traffic=traffic, steps=STEPS))

    waits = step(ago(hours=3))
    assert (waits.waits.reason, waits.passed) == ("TooFewRequests", None)
    assert step(ago(hours=4)).passed.reason == "NotCompared"
    assert step(ago(hours=4)).steps[B].progress.weight == 40
    assert step(ago(hours=4), errors=9).passed is None


def test_idle_revisions_make_room_for_a_release_the_oldest_first():
    kept = [old(text, warm(1), superseded_at=ago(minutes=age)) for text, age in (("c", 3), ("d", 2))]
    revisions = [serves("a", warm(2)), *kept]
    assert found(revisions, of=goal("b", 2))[C] == (RETIRING, 0)
    assert found(revisions, of=goal("b", 2))[fingerprint("d")] == (RETIRING, 0)
    assert found(revisions, of=goal("b", 2, maxSurge=2))[fingerprint("d")] == (SUPERSEDED, 0)
    busy = [serves("a", warm(2)), old("c", warm(1), superseded_at=ago(minutes=3), quiet_since=ago(seconds=59))]
    assert found(busy, of=goal("b", 2))[C] == (SUPERSEDED, 0)
    assert found(busy, of=goal("a", 2))[C] == (SUPERSEDED, 0)


def test_sessions_hold_the_surge_and_none_of_the_replicas_of_what_serves():
    kept = [old(text, warm(1), superseded_at=ago(minutes=age), quiet_since=NOW) for text, age in (("c", 3), ("d", 2))]
    steps = rollout.decide([serves("a", warm(2)), *kept], goal("a", 3)).steps
    assert [steps[fingerprint(each)].phase for each in "cd"] == [RETIRING, SUPERSEDED]
    assert "rollout.maxSurge" in steps[C].moves
    steps = rollout.decide([serves("a", warm(3)), *kept], goal("a", 3, maxSurge=2)).steps
    assert [steps[fingerprint(each)].phase for each in "cd"] == [SUPERSEDED, SUPERSEDED]
    more = [replace(kept[0], replicas=2), kept[1]]
    steps = rollout.decide([serves("a", warm(2)), *more], goal("a", 3)).steps
    assert [steps[fingerprint(each)].phase for each in "cd"] == [SUPERSEDED, RETIRING], "traffic asks for two of it"


@pytest.mark.parametrize(("age", "phase"), [(9, SUPERSEDED), (10, RETIRING)])
def test_sessions_that_do_not_end_move_when_the_deadline_has_passed(age, phase):
    """Whatever the release does: the next one waits for them no longer."""
    kept = old("c", warm(1), superseded_at=ago(minutes=age), quiet_since=NOW)
    for target in "ab":
        steps = rollout.decide([serves("a", warm(2)), kept], goal(target, 2, retireDeadline="10m")).steps
        assert steps[C].phase is phase
        assert ("rollout.retireDeadline" in steps[C].moves) == (phase is RETIRING)
    mark = replace(kept, rolled_back=MARK)
    step = rollout.decide([serves("a", warm(2)), mark], goal("c", 2, retireDeadline="10m")).steps[C]
    assert step.phase is (RETIRING if phase is RETIRING else ROLLED_BACK)


def counted_by(share, named):
    """Traffic of which b has a share, and of which a share names the group."""
    flows = {
        short(A): Flow(1000 * (1 - share), 1000 * (1 - share) * named),
        short(B): Flow(1000 * share, 1000 * share * named),
    }
    return Traffic(True, flows)


def test_a_weight_falls_only_when_replicas_are_lost():
    def weight(named, pods, stands):
        revisions = [serves("a", warm(2), weight=100 - stands), comes("b", pods, 100, NOW, weight=stands)]
        return rollout.decide(revisions, goal("b", 3, traffic=counted_by(0.6, named))).steps[B].weight

    assert weight(0.72, warm(2), 0) == 93
    assert weight(0.72, warm(2), 98) == 98, "the share of those that name the group is noise"
    assert weight(0.68, warm(2), 98) == 99
    lost = revision("b", [pod("p0", 0)], weight=98, slots={0: SlotState.READY, 1: SlotState.READY})
    lost = replace(lost, progress=Progress(100, NOW))
    steps = rollout.decide([serves("a", warm(2), weight=2), lost], goal("b", 3, traffic=counted_by(0.6, 0.72))).steps
    assert steps[B].weight == 47


def test_noise_in_the_share_of_those_that_name_the_group_writes_few_weights():
    """A minute of passes at the end of the steps, with two of three warm: the weight never falls, and soon stands."""
    draw, stands, written = random.Random(1), 0, []
    for _ in range(60):
        revisions = [serves("a", warm(2), weight=100 - stands), comes("b", warm(2), 100, NOW, weight=stands)]
        traffic = counted_by(0.6, draw.uniform(0.66, 0.76))
        stands = rollout.decide(revisions, goal("b", 3, traffic=traffic)).steps[B].weight
        if not written or stands != written[-1]:
            written.append(stands)
    assert written == sorted(written)
    assert len(written) <= 6
    assert written[-1] == 99


@pytest.mark.parametrize("named", [0.2, 0.5, 0.66, 0.68, 0.9])
def test_whether_it_takes_over_does_not_hang_on_the_moments_share_of_those_that_name_the_group(named):
    """Two of three are warm, and the third one comes: traffic leaves it."""
    revisions = [serves("a", warm(1), weight=10), comes("b", warm(2), 100, NOW, weight=90)]
    step = rollout.decide(revisions, goal("b", 3, traffic=counted_by(0.8, named))).steps[B]
    assert 90 <= step.weight <= 99
    revisions[1] = comes("b", warm(3), 100, NOW, weight=99)
    assert rollout.decide(revisions, goal("b", 3, traffic=counted_by(0.8, named))).steps[B].weight == 100


def test_one_that_is_superseded_in_this_pass_takes_no_room_from_those_before():
    revisions = [
        serves("a", warm(1), weight=0),
        comes("b", warm(2), weight=100),
        old("c", warm(1), superseded_at=ago(minutes=3)),
    ]
    assert found(revisions, of=goal("b", 2)) == {B: (SERVING, 100), A: (SUPERSEDED, 0), C: (SUPERSEDED, 0)}


@pytest.mark.parametrize(
    ("minutes", "phases"), [(5, (ROLLED_BACK, RETIRING, RETIRING)), (60, (RETIRING, RETIRING, SUPERSEDED))]
)
def test_idle_revisions_make_room_for_what_serves_after_a_roll_back(minutes, phases):
    kept = [old(text, warm(1), superseded_at=ago(minutes=age)) for text, age in (("c", 3), ("d", 2))]
    back = old("b", warm(1), superseded_at=ago(minutes=minutes), rolled_back=MARK)
    revisions = [serves("a", warm(2)), back, *kept]
    steps = rollout.decide(revisions, goal("b", 2)).steps
    assert tuple(steps[fingerprint(text)].phase for text in "bcd") == phases


def test_a_replica_gone_lowers_the_weight_and_keeps_the_step():
    revisions = [serves("a", warm(2), weight=60), comes("b", [restarted("p")], 40, ago(minutes=3), weight=40)]
    release = rollout.decide(revisions, goal("b", 2, steps=STEPS, traffic=counted()))
    assert (release.steps[B].phase, release.steps[B].weight) == (COMING, 0)
    assert release.steps[B].progress == Progress(40, ago(minutes=3))


def test_waiting_says_the_way_out():
    for fields in ({"paused": True}, {"autoPromote": False, "steps": []}):
        waits = rollout.decide(canary(), goal("b", 4, **fields)).waits
        assert "set rollout." in waits.message
    late = rollout.decide(
        canary(), goal("b", 4, steps=STEPS, traffic=counted(Stratum(1)), now=NOW + timedelta(hours=1))
    )
    assert "set rollout.steps to []" in late.waits.message


@pytest.mark.parametrize("ready", range(4))
def test_a_pause_gives_no_more_than_what_is_warm_carries(ready):
    pods = [*warm(ready), *(cold(f"p{i}", i) for i in range(ready, 4))]
    revisions = [serves("a", warm(4)), comes("b", pods, 40, weight=40)]
    moves, stands = (
        found(revisions, of=goal("b", 4, traffic=counted(), steps=STEPS, paused=paused))[B] for paused in (False, True)
    )
    assert stands[1] <= min(moves[1], 40)
    assert (stands[1] > 0) == (ready > 0)


def test_of_a_group_that_wants_replicas_nothing_cold_takes_over_though_what_served_has_none():
    revisions = [serves("a", [], replicas=0), comes("b", [starting("p")])]
    assert found(revisions, of=goal("b", 2)) == {A: (SERVING, 100), B: (COMING, 0)}
    assert found(revisions, of=goal("b", 0))[B] == (SERVING, 100)
