from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_contract.table import Sleep
from promptgroup_operator.api.starts import SHOWN
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.plan import status
from promptgroup_operator.plan.plan import decide
from promptgroup_operator.plan.status import Condition, build, conditions, events, rejected, rescaled
from promptgroup_operator.rollout.release import RevisionPhase, RevisionStep
from promptgroup_operator.sizing.diagnosis import Diagnosis
from promptgroup_operator.sizing.recommend import Aspect, SizingDecision
from promptgroup_operator.world.effects import Event
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.pod_start import PodStart
from promptgroup_operator.world.snapshot import Host, PodCondition, PoolAnswers, Problem, RolledBack
from support.builders import FINGERPRINT, NOW, ago, cold, group, pod, restarted, revision, starting, world

B = revision("b").fingerprint
SIZE = {n: SizingDecision(n, "FixedReplicas", f"spec.replicas asks for {n}", active=False) for n in range(4)}


def step(replicas=1, phase=RevisionPhase.SERVING, fingerprint=FINGERPRINT):
    weight = 100 if phase is RevisionPhase.SERVING else 0
    return RevisionStep(fingerprint, phase, weight, frozenset(range(replicas)), due=replicas)


def said(
    pods=(), *, wanted=1, due=None, phase=RevisionPhase.SERVING, others=(), others_ready=0, deployed=None, waits=None
):
    """Condition → fact of a group whose target has these pods; a warm one in the ring is routed."""
    target = revision(pods=pods, replicas=wanted if deployed is None else deployed)
    own = step(wanted, phase)
    plan = {FINGERPRINT: own if due is None else replace(own, due=due)} | {each.fingerprint: each for each in others}
    ready = {each.fingerprint: others_ready for each in others}
    ready[FINGERPRINT] = sum(each.is_warm and each.slot in range(wanted) for each in pods)
    found = conditions(world([target]), plan, FINGERPRINT, SIZE[wanted], serving=FINGERPRINT, ready=ready, waits=waits)
    return {each.type: each for each in found}


def brief(facts):
    return {kind: (fact.status, fact.reason) for kind, fact in facts.items()}


def failing(reason, name="p0", message="why"):
    return cold(name, warm=PodCondition("False", reason, message, None))


# condition → (status, reason); what is not named: Accepted, ResolvedRefs, ScalingActive, which are always the same
STATES = {
    "every wanted replica is warm and routed": (
        said([pod("a", 0)]),
        {
            "Ready": (True, "Warm"),
            "Progressing": (False, "Settled"),
            "Degraded": (False, "AsExpected"),
            "PrefixWarm": (True, "PrefixCached"),
            "RouterProgrammed": (True, "Programmed"),
        },
    ),
    "there is nothing yet": (
        said([]),
        {
            "Ready": (False, "Warming"),
            "Progressing": (True, "ReplicasWarming"),
            "Degraded": (False, "AsExpected"),
            "PrefixWarm": (False, "WaitingForContainers"),
            "RouterProgrammed": (False, "NoReplica"),
        },
    ),
    "a replica is missing": (
        said([pod("a", 0), cold("b")], wanted=2),
        {
            "Ready": (False, "Warming"),
            "Progressing": (True, "ReplicasWarming"),
            "Degraded": (False, "AsExpected"),
            "PrefixWarm": (False, "Warming"),
            "RouterProgrammed": (True, "Programmed"),
        },
    ),
    "a replica that is warm and has no slot is missing": (
        said([pod("a", 0), pod("b", None)], wanted=2),
        {"Ready": (False, "Warming"), "PrefixWarm": (False, "WaitingForContainers")},
    ),
    "a warm replica above the ring does not stand for a missing one": (
        said([pod("a", 0), pod("b", 2)], wanted=2, deployed=3),
        {"Ready": (False, "Warming"), "Progressing": (True, "ReplicasWarming")},
    ),
    "a container restarted": (
        said([restarted("a", 0)]),
        {
            "Ready": (False, "Warming"),
            "Progressing": (True, "ReplicasWarming"),
            "Degraded": (False, "AsExpected"),
            "PrefixWarm": (False, "ContainerRestarted"),
            "RouterProgrammed": (False, "NoReplica"),
        },
    ),
    "a warm container is not ready for a while": (
        said([pod("a", 0, containers_ready=False)]),
        {
            "Ready": (False, "Warming"),
            "Degraded": (False, "AsExpected"),
            "PrefixWarm": (False, "WaitingForContainers"),
        },
    ),
    "warmth cannot be proven": (
        said([failing("PrefixCachingDisabled")]),
        {
            "Ready": (False, "PrefixCachingDisabled"),
            "Progressing": (False, "PrefixCachingDisabled"),
            "Degraded": (True, "PrefixCachingDisabled"),
            "PrefixWarm": (False, "PrefixCachingDisabled"),
            "RouterProgrammed": (False, "NoReplica"),
        },
    ),
    "one of two cannot be proven: the fault is said before what time mends": (
        said([starting("a"), failing("PrefixNotCached", "b")], wanted=2),
        {"Ready": (False, "PrefixNotCached"), "Degraded": (True, "PrefixNotCached")},
    ),
    "a pod does not start": (
        said([starting("a", trouble="container engine: ImagePullBackOff: no such image")]),
        {
            "Ready": (False, "PodNotStarting"),
            "Progressing": (False, "PodNotStarting"),
            "Degraded": (True, "PodNotStarting"),
            "PrefixWarm": (False, "PodNotStarting"),
        },
    ),
    "a terminating pod is nobody's trouble": (
        said([pod("a", 0), starting("b", trouble="x", deleting=True)]),
        {"Ready": (True, "Warm"), "Degraded": (False, "AsExpected")},
    ),
    "a replica was let through without proof": (
        said([pod("a", 0, warm=PodCondition("True", "ProceededWithoutProof", "serves cold", None))]),
        {
            "Ready": (True, "Warm"),
            "Degraded": (False, "AsExpected"),
            "PrefixWarm": (False, "ProceededWithoutProof"),
            "RouterProgrammed": (True, "Programmed"),
        },
    ),
    "one that was let through and terminates is forgotten": (
        said(
            [
                pod("a", 0),
                pod("b", None, deleting=True, warm=PodCondition("True", "ProceededWithoutProof", "", None)),
            ]
        ),
        {"PrefixWarm": (True, "PrefixCached")},
    ),
    "the prefix is too short to be cached": (
        said([pod("a", 0, warm=PodCondition("True", "PrefixShorterThanBlock", "9 tokens", None))]),
        {"Ready": (True, "Warm"), "PrefixWarm": (True, "PrefixShorterThanBlock")},
    ),
    "the group asks for engines without prefix caching": (
        said([pod("a", 0, warm=PodCondition("True", "CachingOffByChoice", "nothing to keep warm", None))]),
        {
            "Ready": (True, "Warm"),
            "Degraded": (False, "AsExpected"),
            "PrefixWarm": (True, "CachingOffByChoice"),
        },
    ),
    "more than wanted drain": (
        said([pod("a", 0), pod("b", 1)], deployed=2),
        {"Ready": (True, "Warm"), "Progressing": (True, "ReplicasDraining")},
    ),
    "a new revision comes up": (
        said(
            [],
            phase=RevisionPhase.COMING,
            others=[step(1, RevisionPhase.SERVING, B)],
            others_ready=1,
            waits=Problem("RevisionComing", "b comes up"),
        ),
        {
            "Ready": (False, "RevisionComing"),
            "Progressing": (True, "RevisionComing"),
            "RouterProgrammed": (True, "Programmed"),
        },
    ),
    "a release has been undecided for long": (
        said(
            [pod("a", 0)],
            phase=RevisionPhase.CANARY,
            others=[step(1, RevisionPhase.SERVING, B)],
            others_ready=1,
            waits=Problem("Inconclusive", "which one is better?"),
        ),
        {
            "Ready": (False, "Inconclusive"),
            "Progressing": (False, "Inconclusive"),
            "Degraded": (False, "AsExpected"),
        },
    ),
    "the old revision waits out its time": (
        said([pod("a", 0)], others=[step(1, RevisionPhase.SUPERSEDED, B)]),
        {"Ready": (True, "Warm"), "Progressing": (False, "Settled")},
    ),
    "the old revision goes": (
        said([pod("a", 0)], others=[step(0, RevisionPhase.RETIRING, B)]),
        {"Ready": (True, "Warm"), "Progressing": (True, "RevisionRetiring")},
    ),
    "a canary cannot be warmed": (
        said(
            [failing("PrefixNotCached")],
            phase=RevisionPhase.COMING,
            others=[step(1, RevisionPhase.SERVING, B)],
            others_ready=1,
            waits=Problem("RevisionComing", "b comes up"),
        ),
        {"Ready": (False, "PrefixNotCached"), "Degraded": (True, "PrefixNotCached")},
    ),
    "others serve in place of a replica that comes": (
        said([pod("a", 0)], wanted=2, others=[step(1, RevisionPhase.SUPERSEDED, B)], others_ready=1),
        {"Ready": (True, "Warm"), "PrefixWarm": (False, "WaitingForContainers")},
    ),
    "sessions of an old revision do not stand in for one": (
        said(
            [pod("a", 0)],
            wanted=2,
            others=[replace(step(1, RevisionPhase.SUPERSEDED, B), stands_in=False)],
            others_ready=1,
        ),
        {"Ready": (False, "Warming"), "Progressing": (True, "ReplicasWarming")},
    ),
    "traffic keeps a replica at an old revision": (
        said([pod("a", 0)], wanted=2, due=1, others=[step(1, RevisionPhase.SUPERSEDED, B)], others_ready=1),
        {"Ready": (True, "Warm"), "Progressing": (True, "ReplicasShared")},
    ),
    "no replica is wanted": (
        said([], wanted=0),
        {
            "Ready": (False, "ScaledToZero"),
            "Progressing": (False, "Settled"),
            "Degraded": (False, "AsExpected"),
            "RouterProgrammed": (False, "NoReplica"),
        },
    ),
}


@pytest.mark.parametrize("case", STATES)
def test_conditions(case):
    facts, expected = STATES[case]
    found = brief(facts)
    assert {kind: found[kind] for kind in expected} == expected


@pytest.mark.parametrize("case", STATES)
def test_every_condition_is_always_there(case):
    facts, _ = STATES[case]
    assert sorted(facts) == [
        "Accepted",
        "Degraded",
        "PrefixWarm",
        "Progressing",
        "Ready",
        "ResolvedRefs",
        "RouterProgrammed",
        "ScalingActive",
    ]
    assert facts["Accepted"].status
    assert facts["ResolvedRefs"].status


def facts(ready=False, progressing=False, degraded=("PodNotStarting", ""), accepted=True):
    reason, message = degraded or ("AsExpected", "")
    return [
        Condition("Ready", ready, "x", ""),
        Condition("Progressing", progressing, "x", ""),
        Condition("Degraded", degraded is not None, reason, message),
        Condition("Accepted", accepted, "x", ""),
    ]


UNPULLED = ("PodNotStarting", "container engine: ImagePullBackOff: no such image")
STALLED = {
    "an image that is not there": (facts(degraded=UNPULLED), True),
    "a spec that is refused": (facts(degraded=("ObjectRefused", "no"), accepted=False), True),
    "a pod that waits for a node": (facts(degraded=("PodNotStarting", "Unschedulable: no GPU")), False),
    "a write that failed": (facts(degraded=("WriteFailed", "no answer")), False),
    "a prompt that is not there yet": (facts(degraded=("PromptNotFound", "no")), False),
    "it serves": (facts(ready=True, degraded=UNPULLED), False),
    "a release goes on beside it": (facts(progressing=True, degraded=UNPULLED), False),
    "all is well": (facts(ready=True, degraded=None), False),
}


@pytest.mark.parametrize("case", STALLED)
def test_a_group_is_stalled_where_time_alone_mends_nothing(case):
    found, expected = STALLED[case]
    assert [each.type for each in status.stalled(found)] == ["Stalled"] * expected


def test_a_pod_of_another_revision_that_does_not_start_is_named():
    stuck = replace(starting("old-1"), trouble="container engine: ImagePullBackOff: no such image")
    superseded = revision("b", [stuck], weight=0)
    plan = {FINGERPRINT: step(), B: step(phase=RevisionPhase.SUPERSEDED, fingerprint=B)}
    of = world([revision(pods=[pod("a", 0)]), superseded])
    told = {"serving": FINGERPRINT, "ready": {FINGERPRINT: 1}, "waits": None}
    found = {each.type: each for each in conditions(of, plan, FINGERPRINT, SIZE[1], **told)}
    assert (found["Degraded"].status, found["Degraded"].reason) == (True, "PodNotStarting")
    assert "pod old-1 of" in found["Degraded"].message
    assert "(Superseded) does not start: container engine: ImagePullBackOff" in found["Degraded"].message
    assert found["Ready"].status is True, "what is wanted serves"


SINCE = "2026-11-03T11:00:00Z"
ROUTED = {FINGERPRINT: 0}
ASLEEP = replace(SIZE[0], reason="Asleep", active=True)


@pytest.mark.parametrize(
    ("size", "sleep", "status", "words"),
    [
        (SIZE[0], Sleep(0, SINCE), False, "spec.replicas is 0: nothing serves the group"),
        (SIZE[0], Sleep(60, SINCE), False, "routers hold requests for 60 s (routing.wakeTimeout)"),
        (ASLEEP, Sleep(300, SINCE, start=40), True, f"sleeps since {SINCE}: a request wakes it"),
    ],
)
def test_a_group_of_no_replicas_says_who_serves_it(size, sleep, status, words):
    plan = {FINGERPRINT: step(0)}
    found = conditions(
        world([revision()]), plan, FINGERPRINT, size, serving=FINGERPRINT, ready=ROUTED, waits=None, sleep=sleep
    )
    told = {each.type: each for each in found}
    assert (told["Ready"].status, told["Ready"].reason) == (status, "Asleep" if status else "ScaledToZero")
    assert words in told["Ready"].message
    assert told["RouterProgrammed"].status is status
    assert told["Degraded"].status is False
    assert told["Progressing"].status is False


@pytest.mark.parametrize(("host", "status"), [(Sleep(300, SINCE), True), (Sleep(300, woken=SINCE), False)])
def test_a_guest_sleeps_with_its_host(host, status):
    seen = replace(world([revision()], of=group(replicas=0)), host=Host("pool", sleep=host))
    plan = {FINGERPRINT: step(0)}
    found = conditions(seen, plan, FINGERPRINT, SIZE[0], serving=FINGERPRINT, ready=ROUTED, waits=None, sleep=host)
    (told,) = [each for each in found if each.type == "Ready"]
    assert told.status is status
    assert "PromptGroup pool" in told.message


def test_messages_say_how_many_and_of_what():
    assert said([pod("a", 0), cold("b")], wanted=2)["Ready"].message == f"1 of 2 replicas of {FINGERPRINT[:8]} are warm"
    assert said([failing("PrefixNotCached", message="the cause")])["Ready"].message == "the cause"
    assert said([starting("a", trouble="no image")])["Degraded"].message == "no image"


REJECTED = {
    "a missing reference": (Problem("PromptNotFound", "waits for x"), True, False),
    "bad tools": (Problem("InvalidTools", "x"), True, False),
    "an empty prompt": (Problem("EmptyPrompt", "x"), True, False),
    "a pin that does not hold": (Problem("FingerprintMismatch", "x"), False, True),
    "a conflict": (Problem("Conflict", "x"), False, True),
    "a name that is taken": (Problem("NameTaken", "x"), False, True),
    "a template that cannot be merged": (Problem("InvalidTemplate", "x"), False, True),
}


@pytest.mark.parametrize("case", REJECTED)
def test_a_spec_that_cannot_be_acted_on(case):
    problem, accepted, resolved = REJECTED[case]
    facts = {each.type: each for each in rejected(world(), problem)}
    assert (facts["Accepted"].status, facts["ResolvedRefs"].status) == (accepted, resolved)
    for kind in ("Ready", "Progressing", "PrefixWarm", "RouterProgrammed"):
        assert not facts[kind].status
        assert facts[kind].reason == problem.reason
    assert facts["Degraded"] == Condition("Degraded", True, problem.reason, "waits for x" if "missing" in case else "x")


def test_a_rejected_spec_beside_a_revision_that_serves():
    facts = {each.type: each for each in rejected(world([revision(pods=[pod()])]), Problem("Conflict", "x"))}
    assert (facts["RouterProgrammed"].status, facts["RouterProgrammed"].reason) == (True, "EarlierRevision")
    assert not facts["Ready"].status


GONE = Problem("PromptNotFound", "the ConfigMap is gone")


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod("a", 0), pod("b", 1)], (True, "PrefixCached", f"2 of 2 replicas of {FINGERPRINT[:8]} are warm")),
        ([pod("a", 0), cold("b", 1)], (False, "Warming", "a reason")),
        ([], (False, "WaitingForContainers", f"0 of 2 replicas of {FINGERPRINT[:8]} are warm")),
    ],
)
def test_the_warmth_of_what_is_kept_is_told_while_its_prompt_is_gone(pods, expected):
    todo = decide(world([revision(pods=pods, replicas=2)], of=group(replicas=2), prompt=GONE), NOW)
    facts = {each["type"]: each for each in todo.status["conditions"]}
    found = facts["PrefixWarm"]
    assert (found["status"] == "True", found["reason"], found["message"]) == expected
    assert facts["RouterProgrammed"]["status"] == str(any(each.is_warm for each in pods))
    assert {facts[kind]["reason"] for kind in ("Ready", "Progressing", "Degraded", "ResolvedRefs")} == {GONE.reason}


def test_replicas_that_start_are_listed_with_their_phases_and_only_so_many():
    pods = [starting(f"p{n}", start=PodStart(ago(minutes=n))) for n in range(12)]
    found = built(revisions=[revision(pods=[*pods, pod("warm")])])
    assert found["starting"] == "12 Scheduled"
    assert len(found["startingReplicas"]) == SHOWN
    assert found["startingReplicas"][0] == {"pod": "p11", "phase": "Scheduled", "since": rfc3339(ago(minutes=11))}
    assert "start" not in found


def test_what_starts_took_stays_in_the_status_when_their_pods_are_gone():
    times = PodStart(ago(minutes=59), ago(minutes=58), ago(minutes=55))
    first = built(revisions=[revision(pods=[pod("p0", start=times)])])
    assert (first["start"]["seconds"], "starting" in first) == (660, False)
    assert built({"start": first["start"]})["start"] == first["start"]


def test_a_guest_has_no_starts_of_its_own():
    seen = replace(world([revision(pods=[starting()])]), host=Host("pool"))
    found = build(seen, [READY], {}, {}, target=FINGERPRINT, wanted=1, now=NOW)
    assert not {"starting", "startingReplicas", "start"} & found.keys()


def test_where_nothing_is_kept_nothing_can_be_warmed():
    facts = {each["type"]: each for each in decide(world(prompt=GONE), NOW).status["conditions"]}
    assert facts["PrefixWarm"]["message"] == "no replica can be warmed for this prompt"


# --- the object --------------------------------------------------------------------------------------------


def built(status=None, *, facts=(), revisions=(), plan=None, ready=None, wanted=1, hit_rate=None, generation=1):
    of = group(status=status, generation=generation)
    snapshot = world(revisions, of=of, hit_rate=hit_rate)
    return build(snapshot, facts, plan or {}, ready or {}, target=FINGERPRINT, wanted=wanted, now=NOW)


READY = Condition("Ready", True, "Warm", "1/1")
STANDS = {
    "type": "Ready",
    "status": "True",
    "reason": "Warm",
    "message": "1/1",
    "lastTransitionTime": "2026-11-03T11:00:00Z",
    "observedGeneration": 1,
}


def test_a_condition_that_did_not_turn_keeps_its_time():
    assert built({"conditions": [STANDS]}, facts=[READY])["conditions"] == [STANDS]


def test_a_reason_may_change_without_turning_it():
    (found,) = built({"conditions": [STANDS | {"reason": "Other"}]}, facts=[READY])["conditions"]
    assert found == STANDS


def test_a_condition_that_turned_has_the_time_of_the_pass():
    (found,) = built({"conditions": [STANDS | {"status": "False"}]}, facts=[READY])["conditions"]
    assert found["lastTransitionTime"] == "2026-11-03T12:00:00Z"


def test_a_condition_without_a_past_has_the_time_of_the_pass():
    (found,) = built({}, facts=[READY])["conditions"]
    assert found["lastTransitionTime"] == "2026-11-03T12:00:00Z"


def test_the_generation_is_that_of_the_spec():
    found = built({}, facts=[READY], generation=7)
    assert found["observedGeneration"] == found["conditions"][0]["observedGeneration"] == 7


def test_the_same_world_gives_the_same_status():
    first = built({}, facts=[READY], revisions=[revision(pods=[pod()])], hit_rate=0.5)
    assert built(first, facts=[READY], revisions=[revision(pods=[pod()])], hit_rate=0.5) == first


def test_numbers_of_replicas():
    pods = [pod("a", 0), pod("b", 2), restarted("c", 1), starting("d"), pod("e", None, deleting=True)]
    plan, ready = {FINGERPRINT: step(2)}, {FINGERPRINT: 1}
    found = built({}, revisions=[revision(pods=pods, replicas=3)], plan=plan, ready=ready, wanted=2)
    assert (found["replicas"], found["warm"]) == (4, "1/2")
    assert (found["readyReplicas"], found["warmReplicas"]) == (1, 1)
    assert found["revisions"] == [
        {
            "fingerprint": FINGERPRINT,
            "deployment": f"support-{FINGERPRINT[:8]}",
            "replicas": 3,
            "warm": 2,
            "ready": 1,
            "weight": 100,
            "phase": "Serving",
        }
    ]


def test_an_autoscaler_is_not_told_of_the_surge():
    pods = [pod(name, slot) for slot, name in enumerate("abc")]
    told = {wanted: built({}, revisions=[revision(pods=pods, replicas=3)], wanted=wanted) for wanted in (2, 3, 5)}
    assert [(found["replicas"], found["scaleReplicas"]) for found in told.values()] == [(3, 2), (3, 3), (3, 3)]


def test_the_selector_is_that_of_all_revisions_for_a_release_is_no_small_group():
    assert built({})["selector"] == "promptgroup.dev/group=support"


MARK = RolledBack(NOW, "", Problem("ErrorRate", "25% of requests failed, 0% with the old revision"))


def test_a_rolled_back_revision_is_told_while_the_old_one_serves():
    old, new = revision("b", [pod("a", 0)]), revision(pods=[], weight=0)
    taken = RevisionStep(FINGERPRINT, RevisionPhase.RETIRED, 0, rolled_back=MARK)
    plan = {FINGERPRINT: taken, B: step(1, RevisionPhase.SERVING, B)}
    found = conditions(world([old, new]), plan, FINGERPRINT, SIZE[1], serving=B, ready={B: 1}, waits=MARK.why)
    facts = {each.type: each for each in found}
    assert (facts["Ready"].status, facts["Progressing"].status) == (True, False)
    assert facts["Degraded"].reason == facts["Progressing"].reason == "RolledBack"
    assert "25% of requests failed" in facts["Degraded"].message


def test_revisions_stand_newest_first():
    found = built({}, revisions=[revision("a", created="2026-11-03T10:00:00Z"), revision("b")])
    assert [each["fingerprint"] for each in found["revisions"]] == [B, revision("a").fingerprint]


RATES = [(None, None, None), (0.0, None, "0%"), (0.961, None, "96%"), (1.0, "50%", "100%"), (None, "50%", "50%")]


@pytest.mark.parametrize(("rate", "before", "expected"), RATES)
def test_an_unknown_hit_rate_leaves_the_last_known_one(rate, before, expected):
    assert built({"hitRate": before} if before else {}, hit_rate=rate).get("hitRate") == expected


def test_without_a_target_there_is_nothing_to_select():
    found = build(world(), [READY], {}, {}, target=None, wanted=0, now=NOW)
    assert "selector" not in found
    assert (found["replicas"], found["warm"], found["revisions"]) == (0, "0/0", [])


# --- events ------------------------------------------------------------------------------------------------

TOLD = {
    "a group that becomes ready": (("Ready", "False", "Warming"), Condition("Ready", True, "Warm", "m"), "Normal"),
    "a group that is ready still": (("Ready", "True", "Warm"), Condition("Ready", True, "Warm", "m"), None),
    "a group that warms": (("Ready", "True", "Warm"), Condition("Ready", False, "Warming", "m"), "Normal"),
    "a group that cannot": (
        ("Ready", "False", "Warming"),
        Condition("Ready", False, "PrefixNotCached", "m"),
        "Warning",
    ),
    "a fault": (("Degraded", "False", "AsExpected"), Condition("Degraded", True, "Conflict", "m"), "Warning"),
    "a fault that is mended": (
        ("Degraded", "True", "Conflict"),
        Condition("Degraded", False, "AsExpected", "m"),
        "Normal",
    ),
    "a new group without a fault": (None, Condition("Degraded", False, "AsExpected", "m"), None),
    "a new group with a fault": (None, Condition("Degraded", True, "Conflict", "m"), "Warning"),
    "a replica whose container restarted": (
        ("PrefixWarm", "True", "PrefixCached"),
        Condition("PrefixWarm", False, "ContainerRestarted", "m"),
        "Normal",
    ),
    "a replica that was let through": (
        ("PrefixWarm", "False", "Warming"),
        Condition("PrefixWarm", False, "ProceededWithoutProof", "m"),
        "Warning",
    ),
    "a group scaled to nothing": (("Ready", "True", "Warm"), Condition("Ready", False, "ScaledToZero", "m"), "Normal"),
    "a release that begins": (
        ("Ready", "True", "Warm"),
        Condition("Ready", False, "RevisionComing", "m"),
        "Normal",
    ),
    "a release that goes on": (
        ("Ready", "False", "TooFewRequests"),
        Condition("Ready", False, "Undecided", "m"),
        None,
    ),
    "a release that waits for a person": (
        ("Ready", "False", "StepPause"),
        Condition("Ready", False, "AwaitsPromotion", "m"),
        "Normal",
    ),
    "a release that stays undecided": (
        ("Ready", "False", "Undecided"),
        Condition("Ready", False, "Inconclusive", "m"),
        "Normal",
    ),
    "a release that ends": (("Ready", "False", "RevisionGrowing"), Condition("Ready", True, "Warm", "m"), "Normal"),
    "a condition that is for machines": (
        ("Progressing", "False", "Settled"),
        Condition("Progressing", True, "ReplicasWarming", "m"),
        None,
    ),
}


@pytest.mark.parametrize("case", TOLD)
def test_events(case):
    before, fact, expected = TOLD[case]
    standing = [dict(zip(("type", "status", "reason"), before, strict=True))] if before else []
    found = events(group(status={"conditions": standing}), [fact])
    status = "True" if fact.status else "False"
    assert found == ([Event(expected, fact.reason, f"{fact.type}={status}: m")] if expected else [])


def test_a_step_that_is_passed_is_told_of_with_its_figures():
    assert status.passed(Problem("NotWorse", "b passed")) == [Event("Normal", "NotWorse", "b passed")]
    assert status.passed(None) == []


LOSSES = {
    "one that was lost": (["PrefixCached", "PrefixEvicted"], "PrefixEvicted", "Normal"),
    "a cache that is too small": (
        ["PrefixEvictedUnderPressure", "PrefixEvicted"],
        "PrefixEvictedUnderPressure",
        "Warning",
    ),
    "one that was let through": (["PrefixEvicted", "ProceededWithoutProof"], "ProceededWithoutProof", "Warning"),
}


@pytest.mark.parametrize("case", LOSSES)
def test_prefixes_that_were_lost_are_told_of_and_take_nothing_out_of_service(case):
    reasons, reason, kind = LOSSES[case]
    pods = [
        pod(f"p{slot}", slot, warm=PodCondition("True", each, f"said by {each}", None))
        for slot, each in enumerate(reasons)
    ]
    facts = said(pods, wanted=2)
    fact = facts["PrefixWarm"]
    assert (fact.status, fact.reason, fact.message) == (reason != "ProceededWithoutProof", reason, f"said by {reason}")
    assert (facts["Ready"].status, facts["Ready"].reason) == (True, "Warm")
    before = {"type": "PrefixWarm", "status": "True", "reason": "PrefixCached"}
    (event,) = events(group(status={"conditions": [before]}), [fact])
    assert (event.type, event.reason) == (kind, reason)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0.83, "80%"), (0.849, "85%"), (0.85, "85%"), (0.76, "80%"), (0.754, "75%"), (None, "80%")],
)
def test_a_hit_rate_that_hardly_moves_is_no_reason_to_write(rate, expected):
    standing = built({}, facts=[READY], revisions=[revision(pods=[pod()])], hit_rate=0.8)
    assert built(standing, facts=[READY], revisions=[revision(pods=[pod()])], hit_rate=rate)["hitRate"] == expected


def test_what_is_written_anyway_has_the_hit_rate_of_the_moment():
    standing = built({}, facts=[READY], revisions=[revision(pods=[pod()])], hit_rate=0.8)
    assert built(standing, facts=[READY], revisions=[], hit_rate=0.81)["hitRate"] == "81%"


def test_a_standing_hit_rate_of_another_form_is_replaced():
    assert built({"hitRate": "0.8"}, hit_rate=0.8)["hitRate"] == "80%"


# --- sizing ------------------------------------------------------------------------------------------------

SIZED = SizingDecision(
    2, "WithinTarget", "2 replicas: utilisation 40%", active=True,
    able=Aspect(True, "ReadyForNewScale", "a"), limited=Aspect(False, "DesiredWithinRange", "b"),
)  # fmt: skip
CACHE = Diagnosis(True, "Healthy", "94% found")


def sized(size=SIZED, cache=CACHE):
    target = revision(pods=[pod("a", 0), pod("b", 1)])
    plan = {FINGERPRINT: step(2)}
    return conditions(
        world([target]), plan, FINGERPRINT, size, cache, serving=FINGERPRINT, ready={FINGERPRINT: 2}, waits=None
    )


def test_a_group_that_is_sized_has_the_conditions_of_an_autoscaler_and_of_its_caches():
    found = brief({each.type: each for each in sized()})
    assert found["ScalingActive"] == (True, "WithinTarget")
    assert found["AbleToScale"] == (True, "ReadyForNewScale")
    assert found["ScalingLimited"] == (False, "DesiredWithinRange")
    assert found["CacheEffective"] == (True, "Healthy")
    assert not {"AbleToScale", "ScalingLimited", "CacheEffective"} & said().keys()


def test_what_is_unknown_is_said_so():
    facts = sized(cache=Diagnosis(None, "ScalingWave", "it recovers"))
    (found,) = (each for each in built({}, facts=facts)["conditions"] if each["type"] == "CacheEffective")
    assert found["status"] == "Unknown"


def test_measured_numbers_alone_are_no_reason_to_write():
    standing = built({}, facts=sized())
    moved = sized(replace(SIZED, message="2 replicas: utilisation 41%"), replace(CACHE, message="93% found"))
    assert built(standing, facts=moved) == standing


def test_numbers_replace_a_message_without_any_and_stay():
    quiet = built({}, facts=sized(cache=replace(CACHE, message="no request reached an engine")))
    measured = built(quiet, facts=sized())
    assert {each["type"]: each["message"] for each in measured["conditions"]}["CacheEffective"] == "94% found"
    assert built(measured, facts=sized(cache=replace(CACHE, message="no request reached an engine"))) == measured


def test_with_another_reason_all_numbers_are_those_of_the_moment():
    standing = built({}, facts=sized())
    moved = sized(replace(SIZED, message="2 replicas: utilisation 41%"), Diagnosis(False, "Thrashing", "40% found"))
    said_now = {each["type"]: each["message"] for each in built(standing, facts=moved)["conditions"]}
    assert said_now["ScalingActive"] == "2 replicas: utilisation 41%"
    assert said_now["CacheEffective"] == "40% found"


NEWS = {
    "caches that were well thrash": (("True", "Healthy"), CACHE, (False, "Thrashing"), "Warning"),
    "caches that thrashed are well": (("False", "Thrashing"), CACHE, (True, "Healthy"), "Normal"),
    "another cause": (("False", "Thrashing"), CACHE, (False, "PromptDrift"), "Warning"),
    "the same cause": (("False", "Thrashing"), CACHE, (False, "Thrashing"), None),
    "well at first": (None, CACHE, (True, "Healthy"), None),
    "a wave": (("True", "Healthy"), CACHE, (None, "ScalingWave"), None),
    "the load cannot be observed": (("True", "WithinTarget"), SIZED, (False, "FailedGetMetrics"), "Warning"),
    "an operator begins": (("True", "WithinTarget"), SIZED, (None, "AwaitingMetrics"), None),
    "it goes on": (("Unknown", "AwaitingMetrics"), SIZED, (True, "WithinTarget"), None),
    "it cannot": (("Unknown", "AwaitingMetrics"), SIZED, (False, "FailedGetMetrics"), "Warning"),
    "nothing was observed at first": (None, SIZED, (False, "FailedGetMetrics"), None),
    "another reason": (("True", "WithinTarget"), SIZED, (True, "DemandRose"), None),
    "fixed by the user": (("True", "WithinTarget"), SIZED, (False, "FixedReplicas"), None),
}


@pytest.mark.parametrize("case", NEWS)
def test_causes_are_told_once(case):
    old, what, (status, reason), kind = NEWS[case]
    name = "CacheEffective" if what is CACHE else "ScalingActive"
    before = [{"type": name, "status": old[0], "reason": old[1]}] if old is not None else []
    told = events(group(status={"conditions": before}), [Condition(name, status, reason, "why")])
    assert [(each.type, each.reason) for each in told] == ([(kind, reason)] if kind else [])


def test_a_change_of_size_is_told_as_an_autoscaler_does():
    rose = replace(SIZED, value=3, reason="DemandRose", message="2 to 3: why")
    assert rescaled(2, rose) == [
        Event("Normal", "SuccessfulRescale", "New size: 3; reason: DemandRose: 2 to 3: why"),
    ]
    assert rescaled(3, rose) == rescaled(None, rose) == rescaled(2, SIZE[3]) == []


def test_a_stored_spec_that_cannot_be_read_turns_one_condition_and_leaves_the_rest():
    ready = {"type": "Ready", "status": "True", "reason": "Warm", "message": "x", "lastTransitionTime": "t"}
    known = {"conditions": [ready], "warm": "2/2", "observedGeneration": 1}
    first = status.unreadable(known, 2, "spec.model: Field required", NOW)
    assert (first["warm"], first["observedGeneration"]) == ("2/2", 2)
    accepted, kept = first["conditions"]
    assert kept == ready
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert "spec.model: Field required" in accepted["message"]
    assert status.unreadable(first, 2, "spec.model: Field required", NOW + timedelta(hours=1)) == first


@pytest.mark.parametrize(("status", "ready"), [({}, True), ({"observedGeneration": 1}, False), (None, True)])
def test_a_group_is_ready_once_its_deployment_counts_the_replicas_available(status, ready):
    counted = {"observedGeneration": 1, "availableReplicas": 1} if status is None else status
    target = revision(pods=[pod("a", 0)])
    live = {("Deployment", target.deployment): {"status": counted}}
    plan = {FINGERPRINT: step(1)}
    found = conditions(
        world([target], live=live), plan, FINGERPRINT, SIZE[1], serving=FINGERPRINT, ready={FINGERPRINT: 1}, waits=None
    )
    assert next(each.status for each in found if each.type == "Ready") is ready


# --- KV tiers ----------------------------------------------------------------------------------------------

POOL = {"pool": {"type": "LMCache", "address": "kv:5555", "monitor": "kv:8080"}}


def tiered(status=None, *, hit_rate=None, tier_hit_rate=None, answers=None, cache=POOL, by_source=None):
    of = group(status=status, cache=cache)
    snapshot = replace(
        world([revision(pods=[pod()])], of=of, hit_rate=hit_rate),
        tier_hit_rate=tier_hit_rate,
        tier_hit_rates=by_source or {},
        pool_answers=answers,
    )
    return build(snapshot, [READY], {}, {}, target=FINGERPRINT, wanted=1, now=NOW)


def test_tiers_are_told_with_what_each_holds():
    assert tiered()["cache"] == {
        "tiers": [{"tier": "GPU", "capacity": "400000 tokens"}, {"tier": "Pool", "source": "LMCache kv:5555"}],
        "prefillTokensPerSecond": 9800,
    }
    assert "cache" not in tiered(cache=None)


def test_a_copy_is_told_beside_what_a_replica_computes():
    of = group(cache=POOL)
    slow, quick = (
        pod(f"p{index}", index, measured=Measured(400_000, 9_000, 900, rate))
        for index, rate in enumerate((50_000, 71_000))
    )
    found = build(world([revision(pods=[slow, quick])], of=of), [READY], {}, {}, target=FINGERPRINT, wanted=2, now=NOW)
    assert found["cache"]["copyTokensPerSecond"] == 50_000
    assert found["cache"]["prefillTokensPerSecond"] == 9_000


def test_the_hit_rate_is_told_by_tier():
    found = tiered(hit_rate=0.97, tier_hit_rate=0.48)["cache"]
    assert (found["gpuHitRate"], found["tierHitRate"]) == ("49%", "48%")


@pytest.mark.parametrize(("tier", "expected"), [(0.5, "48%"), (0.6, "60%"), (None, "48%")])
def test_rates_by_tier_that_hardly_move_are_no_reason_to_write(tier, expected):
    standing = tiered(hit_rate=0.97, tier_hit_rate=0.48)
    assert tiered(standing, hit_rate=0.97, tier_hit_rate=tier)["cache"]["tierHitRate"] == expected


OFFLOAD = {"offload": {"memory": "8Gi", "claimName": "kv"}}


def test_the_hit_rate_of_each_tier_is_told_where_engines_tell_them_apart():
    sources = {"memory": 0.3, "volume": 0.1, "pool": 0.08}
    first = tiered(hit_rate=0.97, tier_hit_rate=0.4, cache=OFFLOAD, by_source=sources)
    assert [each.get("hitRate") for each in first["cache"]["tiers"]] == [None, "30%", "10%"]
    again = tiered(first, hit_rate=0.97, tier_hit_rate=0.4, cache=OFFLOAD, by_source=sources | {"memory": 0.31})
    assert again == first
    moved = tiered(first, hit_rate=0.97, tier_hit_rate=0.4, cache=OFFLOAD, by_source=sources | {"volume": 0.2})
    assert moved["cache"]["tiers"][2]["hitRate"] == "20%"
    assert tiered(moved, cache=OFFLOAD)["cache"]["tiers"] == moved["cache"]["tiers"]  # nothing is known: it stands


def test_a_pool_has_the_capacity_that_its_servers_tell_and_keeps_it_while_they_do_not():
    first = tiered(answers=PoolAnswers(2, capacity=16 << 30))
    assert first["cache"]["tiers"][1] == {"tier": "Pool", "capacity": "16.0Gi", "source": "LMCache kv:5555"}
    assert tiered(first, answers=PoolAnswers(2))["cache"] == first["cache"]


def test_tiers_of_a_spec_that_is_refused_stand_as_they_were():
    of = group(status={"cache": {"tiers": []}}, cache=POOL)
    refused = [Condition("Accepted", False, "InvalidCache", "")]
    found = build(world(of=of), refused, {}, {}, target=None, wanted=1, now=NOW)
    assert found["cache"] == {"tiers": []}


POOLS = {
    "nobody looks": (None, None, "NotMonitored", "monitor is not set"),
    "all are there": (PoolAnswers(2), True, "PoolReady", "all 2 servers"),
    "the name leads nowhere": (PoolAnswers(0), False, "PoolUnreachable", "kv:8080 resolves to no server"),
    "one is away": (PoolAnswers(2, {"10.0.0.2:8080": "refused"}), False, "PoolUnreachable", "1 of 2 servers"),
    "one stores nothing": (PoolAnswers(1, {}, ("10.0.0.2:8080",)), False, "PoolStoresNothing", "Restart the server"),
}


@pytest.mark.parametrize("case", POOLS)
def test_a_pool_is_a_condition(case):
    answers, status, reason, said = POOLS[case]
    snapshot = replace(world([revision(pods=[pod()])], of=group(cache=POOL)), pool_answers=answers)
    facts = conditions(
        snapshot, {FINGERPRINT: step()}, FINGERPRINT, SIZE[1], serving=FINGERPRINT, ready={FINGERPRINT: 1}, waits=None
    )
    (found,) = (each for each in facts if each.type == "CachePoolReady")
    assert (found.status, found.reason) == (status, reason)
    assert said in found.message


def test_a_pool_that_goes_and_comes_back_is_an_event():
    def told(before, now):
        old = {"type": "CachePoolReady", "status": before[0], "reason": before[1]}
        fact = Condition("CachePoolReady", now[0], now[1], "")
        return [(each.type, each.reason) for each in events(group(status={"conditions": [old]}), [fact])]

    assert told(("True", "PoolReady"), (False, "PoolUnreachable")) == [("Warning", "PoolUnreachable")]
    assert told(("False", "PoolUnreachable"), (True, "PoolReady")) == [("Normal", "PoolReady")]
    assert told(("True", "PoolReady"), (True, "PoolReady")) == []


CAUSE = "container engine: CrashLoopBackOff"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"PrefixWarm": False, "Ready": False, "Degraded": True}, [("Warning", f"Ready=False: {CAUSE}")]),
        ({"PrefixWarm": False, "Degraded": True}, [("Warning", f"Degraded=True: {CAUSE}")]),
        ({"PrefixWarm": False}, [("Warning", f"PrefixWarm=False: {CAUSE}")]),
        ({}, []),
    ],
)
def test_a_cause_is_one_event_of_the_condition_that_says_most(changed, expected):
    facts = [Condition(kind, value, "PodNotStarting", CAUSE) for kind, value in changed.items()]
    found = events(group(status={}), [*facts, Condition("Accepted", True, "Accepted", "the spec is valid")])
    assert [(each.type, each.message) for each in found] == expected


def test_causes_that_come_together_are_told_each():
    facts = [Condition("Degraded", True, "RolledBack", "worse"), Condition("Ready", False, "Warming", "1 of 2")]
    found = events(group(status={}), facts)
    assert [(each.type, each.reason) for each in found] == [("Normal", "Warming"), ("Warning", "RolledBack")]


# --- why a replica does not serve -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "reason", "words"),
    [
        (failing("NotInCache", message="0 of 96"), "NotInCache", "0 of 96"),
        (replace(failing("NotInCache"), trouble="ImagePullBackOff"), "PodNotStarting", "ImagePullBackOff"),
        (pod(settling=True), "WaitingForContainers", "gateways have seen it"),
        (restarted(), "ContainerRestarted", "restarted after it was warmed"),
        (pod(warm=None), "WaitingForContainers", "once the containers are ready"),
        (pod(containers_ready=False), "WaitingForContainers", "its container is not ready"),
    ],
)
def test_the_first_cause_tells_why_a_replica_does_not_serve(seen, reason, words):
    found = status.why_cold(seen)
    assert found.reason == reason
    assert words in found.message
