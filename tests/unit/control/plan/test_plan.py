from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_contract import names
from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.plan import desired, plan
from promptgroup_operator.plan.plan import MOVING, REFERENCED, SETTLED, WAITING, decide, route_unwritten, unwritten
from promptgroup_operator.world.effects import PodUpdate
from promptgroup_operator.world.sizing_history import History, Past, Recommendation
from promptgroup_operator.world.snapshot import LastSeen, PoolAnswers, Problem, Progress, RolledBack, SeenPools
from support.builders import (
    FINGERPRINT,
    NOW,
    SETTINGS,
    ago,
    cold,
    group,
    pod,
    reading,
    restarted,
    revision,
    starting,
    text,
    world,
)
from support.loads import load

NAME = f"support-{FINGERPRINT[:8]}"
TOLD = {"draining_since": ago(seconds=9), "in_flight": 0}
"""A replica that routers left and that idles."""


def standing(snapshot):
    """The world once everything that its plan wants stands."""
    todo = decide(snapshot, NOW)
    manifests = [*todo.objects, *([todo.route] if todo.route is not None else [])]
    live = {(each["kind"], each["metadata"]["name"]): each for each in manifests}
    for key, each in live.items():
        live[key] = each | {"metadata": each["metadata"] | {"uid": f"uid-{key[0]}-{key[1]}"}}
    return replace(snapshot, live=live)


def deployments(todo):
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in todo.objects if each["kind"] == "Deployment"}


def slots_of(todo, index=0):
    return {slot["slot"]: (slot["state"], slot.get("pod")) for slot in todo.route["spec"]["revisions"][index]["slots"]}


def scaled(pods, wanted, *, deployed=None, routed=False):
    """A group of one revision; routed: its PromptRoute stands as when all its pods were wanted."""
    rev = revision(pods=pods, replicas=len(pods) if deployed is None else deployed)
    snapshot = world([rev], of=group(replicas=wanted))
    if routed:
        before = standing(replace(snapshot, group=group(replicas=len(pods))))
        return replace(snapshot, live=before.live)
    return snapshot


# --- creation ----------------------------------------------------------------------------------------------


def test_a_new_group_gets_a_deployment_then_its_prompt_then_a_route_without_replicas():
    todo = decide(world(), NOW)
    assert [each["kind"] for each in todo.objects] == ["Deployment", "PodDisruptionBudget", "ConfigMap"]
    assert {each["metadata"]["name"] for each in todo.objects} == {NAME}
    assert todo.route["spec"]["revisions"] == []
    assert not todo.pod_updates + todo.conditions + todo.deletions + todo.warmups
    assert todo.requeue_after == WAITING


def test_a_prompt_that_moves_to_a_secret_leaves_its_configmap():
    """The text is the same, and so is the revision. The copy in the ConfigMap goes first, and is never made anew."""
    moved = text(secret=True)
    snapshot = standing(world([revision(pods=[pod("p0", 0), pod("p1", 1)])]))
    owned = {"ownerReferences": [{"uid": "uid-support"}], "uid": "uid-copy", "name": NAME}
    live = {**snapshot.live, ("ConfigMap", NAME): {"metadata": owned, "data": {"system": moved.prompt.system}}}
    todo = decide(replace(snapshot, prompt=moved, live=live), NOW)
    assert [(each.kind, each.name, each.uid) for each in todo.deletions] == [("ConfigMap", NAME, "uid-copy")]
    assert {each["kind"] for each in todo.objects} == {"Deployment", "PodDisruptionBudget"}

    del live["ConfigMap", NAME]
    gone = replace(snapshot, prompt=moved, live=live, revisions=(replace(snapshot.revisions[0], prompt=None),))
    todo = decide(gone, NOW)
    assert todo.deletions == ()
    assert [each["kind"] for each in todo.objects] == ["Deployment", "PodDisruptionBudget", "Secret"]
    assert todo.objects[0]["metadata"]["annotations"][names.ANNOTATION_PROMPT] == "Secret"
    assert todo.route["spec"]["revisions"][0]["weight"] == 100


def test_a_prompt_from_a_secret_is_kept_in_one_and_shown_nowhere_else():
    secret = "the launch code is 12345"
    todo = decide(world(prompt=text(secret, secret=True)), NOW)
    deployment, _, kept = todo.objects
    assert kept["kind"] == "Secret"
    assert secret not in repr((deployment, kept, todo.route, todo.status, todo.events))


def test_the_text_at_hand_stands_in_for_a_copy_that_is_gone():
    todo = decide(world([revision(pods=[pod()], prompt=None)], of=group(replicas=1)), NOW)
    assert slots_of(todo) == {0: ("Ready", "p0")}
    assert "ConfigMap" in [each["kind"] for each in todo.objects]


def test_a_copy_of_another_kind_is_restored_as_that_kind():
    rev = revision(pods=[pod()], prompt=None, prompt_from=PromptRef("Secret", NAME))
    todo = decide(world([rev], of=group(replicas=1)), NOW)
    assert [each["kind"] for each in todo.objects] == ["Deployment", "PodDisruptionBudget", "Secret"]


def test_a_namespace_whose_routers_have_no_key_gets_one():
    assert decide(world(peers_key=False), NOW).peers_key
    assert not decide(world(peers_key=True), NOW).peers_key


def test_for_a_group_that_cannot_be_acted_on_no_key_is_made():
    assert not decide(world(prompt=Problem("ConfigMapNotFound", "why"), peers_key=False), NOW).peers_key


# --- at rest -----------------------------------------------------------------------------------------------


def test_at_rest_there_is_nothing_to_write():
    at_rest = standing(scaled([pod("a", 0), pod("b", 1)], 2))
    at_rest = replace(at_rest, group=replace(at_rest.group, status=decide(at_rest, NOW).status))
    todo = decide(at_rest, NOW + timedelta(hours=1))
    assert not todo.pod_updates + todo.conditions + todo.deletions + todo.warmups + todo.events
    assert not todo.peers_key
    assert unwritten(at_rest, todo) == []
    assert not route_unwritten(at_rest, todo)
    assert todo.status == at_rest.group.status
    assert todo.requeue_after == SETTLED


def test_what_somebody_changed_is_written_again():
    at_rest = standing(scaled([pod("a", 0)], 1))
    live = dict(at_rest.live)
    del live["ConfigMap", NAME]
    live["PromptRoute", "support"] = live["PromptRoute", "support"] | {"spec": {}}
    touched = replace(at_rest, live=live)
    todo = decide(touched, NOW)
    assert [each["kind"] for each in unwritten(touched, todo)] == ["ConfigMap"]
    assert route_unwritten(touched, todo)


def routed_before_its_record_was_removed():
    """The world of a process that ended between the route of a group's first warm replica and its Deployment."""
    begun = standing(world([revision(pods=[cold("a")], progress=Progress(0, None), weight=0)], of=group(replicas=1)))
    served = standing(scaled([pod("a", 0)], 1))
    (first,) = served.revisions
    deployment = {("Deployment", NAME): begun.live["Deployment", NAME]}
    return replace(served, revisions=(replace(first, progress=Progress(0, None)),), live=served.live | deployment)


def test_the_record_of_a_release_that_is_over_is_all_that_a_process_may_leave_behind():
    left = routed_before_its_record_was_removed()
    todo = decide(left, NOW)
    (manifest,) = unwritten(left, todo)
    assert manifest["kind"] == "Deployment"
    assert plan.is_complete(left, manifest)
    assert not route_unwritten(left, todo)


def test_a_revision_with_a_record_left_behind_serves_until_the_next_prompt_takes_over():
    left = routed_before_its_record_was_removed()
    todo = decide(replace(left, prompt=text("Another prompt.")), NOW)
    weights = {revision["fingerprint"]: revision["weight"] for revision in todo.route["spec"]["revisions"]}
    assert weights[FINGERPRINT] == 100


# --- slots -------------------------------------------------------------------------------------------------


def test_a_warm_pod_gets_a_slot_and_is_routed_in_the_same_pass():
    todo = decide(scaled([pod("a", 0), pod("b", None)], 2), NOW)
    assert todo.pod_updates == (PodUpdate("b", "uid-b", 1, None),)
    assert slots_of(todo) == {0: ("Ready", "a"), 1: ("Ready", "b")}


def test_a_terminating_pod_is_not_marked():
    assert decide(scaled([pod("a", 0), pod("b", None, deleting=True)], 1), NOW).pod_updates == ()


# --- drain -------------------------------------------------------------------------------------------------


def test_scaling_up_is_asked_for_at_once():
    assert deployments(decide(scaled([pod("a", 0)], 3), NOW)) == {NAME: 3}


def test_scaling_down_first_tells_the_routers():
    snapshot = scaled([pod("a", 0), pod("b", 1)], 1, routed=True)
    todo = decide(snapshot, NOW)
    assert slots_of(todo) == {0: ("Ready", "a"), 1: ("Draining", "b")}
    assert todo.pod_updates == ()
    assert deployments(todo) == {NAME: 2}
    assert todo.requeue_after == MOVING


def test_draining_begins_when_no_route_leads_to_the_replica():
    todo = decide(scaled([pod("a", 0), pod("b", 1)], 1), NOW)
    assert todo.pod_updates == (PodUpdate("b", "uid-b", 1, NOW),)
    assert deployments(todo) == {NAME: 2}


def test_the_time_of_draining_is_kept():
    todo = decide(scaled([pod("a", 0), pod("b", 1, draining_since=ago(seconds=1))], 1), NOW)
    assert todo.pod_updates == ()


SHRINKS = {
    "when the one that leaves has drained": ([pod("a", 0), pod("b", 1, **TOLD)], 1),
    "not while requests run on it": ([pod("a", 0), pod("b", 1, **TOLD | {"in_flight": 1})], 2),
    "not before it was told to leave": ([pod("a", 0), pod("b", 1, in_flight=0)], 2),
    "not before a cold one was told to leave": ([pod("a", 0), restarted("b", 1)], 2),
    "when a cold one was told": ([pod("a", 0), restarted("b", 1, draining_since=ago(seconds=9))], 1),
    "when one that never had a slot was told": ([pod("a", 0), starting("b", draining_since=ago(seconds=9))], 1),
    "not before one that never had a slot was told": ([pod("a", 0), starting("b")], 2),
    "not while one that stays would still go first": (
        [pod("a", 1, **TOLD), pod("b", None, **TOLD)],
        2,
    ),
    "when the one that leaves is terminating already": ([pod("a", 0), pod("b", 1, deleting=True)], 1),
}


@pytest.mark.parametrize("case", SHRINKS)
def test_a_deployment_shrinks(case):
    pods, expected = SHRINKS[case]
    assert deployments(decide(scaled(pods, 1), NOW)) == {NAME: expected}


@pytest.mark.parametrize(("seconds", "expected"), [(59, 2), (61, 1)])
def test_a_replica_whose_requests_take_longer_than_the_drain_timeout_goes(seconds, expected):
    pods = [pod("a", 0), pod("b", 1, draining_since=ago(seconds=seconds), in_flight=1)]
    snapshot = replace(scaled(pods, 1), group=group(replicas=1, rollout={"drainTimeout": "1m"}))
    assert deployments(decide(snapshot, NOW)) == {NAME: expected}


def test_all_that_leave_must_have_drained():
    pods = [pod("a", 0), pod("b", 1, **TOLD), pod("c", 2, **TOLD | {"in_flight": 1})]
    assert deployments(decide(scaled(pods, 1), NOW)) == {NAME: 3}


def test_a_replica_that_is_wanted_again_is_ready_again():
    todo = decide(scaled([pod("a", 0), pod("b", 1, **TOLD)], 2), NOW)
    assert todo.pod_updates == (PodUpdate("b", "uid-b", 1, None),)
    assert slots_of(todo)[1] == ("Ready", "b")


def test_a_number_raised_before_the_pods_went_holds_them_until_they_drain():
    pods = [pod(f"p{i}", i, **(TOLD if i else {})) for i in range(5)]
    assert deployments(decide(scaled(pods, 4, deployed=1), NOW)) == {NAME: 5}
    assert deployments(decide(scaled(pods, 4, deployed=5), NOW)) == {NAME: 5}, "p1 to p3 are marked still"


def test_an_update_of_the_pods_is_no_reason_to_drain():
    todo = decide(scaled([pod("a", 0), starting("b")], 1, deployed=1), NOW)
    assert todo.pod_updates == ()
    assert deployments(todo) == {NAME: 1}


# --- revisions ---------------------------------------------------------------------------------------------

NEXT = text("the next prompt")
NEXT_NAME = f"support-{NEXT.fingerprint[:8]}"


def test_a_new_prompt_comes_up_beside_the_old_one():
    todo = decide(world([revision(pods=[pod("a", 0)])], of=group(replicas=1), prompt=NEXT), NOW)
    assert deployments(todo) == {NEXT_NAME: 1, NAME: 1}
    assert [each["fingerprint"] for each in todo.route["spec"]["revisions"]] == [FINGERPRINT]
    assert todo.route["spec"]["revisions"][0]["weight"] == 100


def test_a_release_without_room_says_who_holds_it():
    held = revision("an older prompt", [pod("c", 0)], weight=0, superseded_at=NOW)
    todo = decide(world([revision(pods=[pod("a", 0)]), held], of=group(replicas=1), prompt=NEXT), NOW)
    (message,) = {each["message"] for each in todo.status["conditions"] if each["type"] == "Progressing"}
    assert f"no room for more replicas while others have theirs: 1 of {held.fingerprint[:8]} (Superseded, " in message
    assert "until 2026-11-03T14:00:00Z at the latest" in message
    assert "raise rollout.maxSurge" in message
    assert "lower rollout.retireDeadline" in message


def test_sessions_that_move_are_told_of_once():
    endless = revision("an older prompt", [pod("c", 0)], weight=0, superseded_at=ago(hours=3), quiet_since=NOW)
    seen = world([revision(pods=[pod("a", 0)]), endless], of=group(replicas=1))
    first = decide(seen, NOW)
    (event,) = [each for each in first.events if each.reason == "SessionsMoved"]
    assert event.message == (
        f"sessions of {endless.fingerprint[:8]} move to {FINGERPRINT[:8]}: rollout.retireDeadline has passed"
    )
    again = decide(replace(seen, group=replace(seen.group, status=first.status)), NOW)
    assert "SessionsMoved" not in {each.reason for each in again.events}


@pytest.mark.parametrize(("surge", "told"), [(1, True), ("25%", True), (0, False)])
def test_a_change_that_finds_no_gpu_says_the_way_out(surge, told):
    trouble = "it is not scheduled: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    comes = revision("the next prompt", [starting("b", trouble=trouble)], weight=0, progress=Progress(0, None))
    prompt_changes = [revision(pods=[pod("a", 0)]), comes]
    engine_changes = [revision(pods=[pod("a", 0, settings="another"), starting("b", trouble=trouble)])]
    for revisions, prompt in ((prompt_changes, NEXT), (engine_changes, None)):
        of = group(replicas=1, rollout={"maxSurge": surge})
        conditions = decide(world(revisions, of=of, prompt=prompt), NOW).status["conditions"]
        (degraded,) = [each for each in conditions if each["type"] == "Degraded"]
        assert degraded["reason"] == "PodNotStarting"
        assert ("set rollout.maxSurge to 0" in degraded["message"]) == told


@pytest.mark.parametrize(("serving", "ready"), [(2, "False"), (3, "True")])
def test_after_a_roll_back_the_group_is_ready_once_what_serves_has_all_of_its_replicas(serving, ready):
    back = RolledBack(NOW, SETTINGS, Problem("ErrorRate", "worse"))
    revisions = [
        revision(pods=[pod(f"p{slot}", slot) for slot in range(serving)]),
        revision("the next prompt", [pod("b", 0)], weight=0, rolled_back=back, superseded_at=NOW),
    ]
    todo = decide(world(revisions, of=group(replicas=3), prompt=NEXT), NOW)
    assert {each["type"]: each["status"] for each in todo.status["conditions"]}["Ready"] == ready
    assert (todo.status["fingerprint"], todo.status["warm"]) == (FINGERPRINT, f"{serving}/3")


def test_nobody_is_named_who_holds_no_room_that_the_target_needs():
    steps = [{"weight": 50, "pause": "1m"}]
    held = revision("the text before", [pod("c", 0)], weight=0, superseded_at=ago(minutes=5), quiet_since=NOW)
    comes = revision("the next prompt", [pod("b", 0)], weight=50, progress=Progress(0, None))
    old = revision(pods=[pod("a0", 0)], weight=50)
    todo = decide(world([old, comes, held], of=group(replicas=2, rollout={"steps": steps}), prompt=NEXT), NOW)
    assert deployments(todo)[NEXT_NAME] == 1
    assert "no room" not in {each["type"]: each["message"] for each in todo.status["conditions"]}["Progressing"]


@pytest.mark.parametrize(("sized", "seen", "told"), [
    (False, None, None), (True, None, "FailedGetMetrics"), (False, load(), "Healthy"), (True, load(), "Healthy"),
])  # fmt: skip
def test_caches_are_explained_where_a_load_is_observed_or_needed(sized, seen, told):
    of = group(replicas=None, sizing={"minReplicas": 1, "maxReplicas": 4}) if sized else group()
    todo = decide(replace(world([revision(pods=[pod("a", 0), pod("b", 1)])], of=of), load=seen), NOW)
    reasons = {each["type"]: each["reason"] for each in todo.status["conditions"]}
    assert reasons.get("CacheEffective") == told


@pytest.mark.parametrize(("gateway", "reason", "again"), [
    ({}, "NoCRD", WAITING), ({}, "PoolRefused", REFERENCED), ({}, None, REFERENCED), (None, "NoCRD", SETTLED),
])  # fmt: skip
def test_inference_pools_that_cannot_be_seen_are_looked_for_again_soon_where_one_is_asked_for(gateway, reason, again):
    snapshot = world([revision(pods=[pod("a", 0)])], of=group(replicas=1, gateway=gateway))
    pools = SeenPools({}, Problem(reason, "why") if reason is not None else None)
    assert decide(standing(replace(snapshot, inference_pools=pools)), NOW).requeue_after == again


def test_sizing_that_begins_while_two_revisions_have_replicas_takes_none_away():
    sized = group(replicas=None, sizing={"minReplicas": 2, "maxReplicas": 12})
    serves = revision(pods=[pod(f"a{i}", i) for i in range(8)])
    before = revision("the text before", [pod("b", 0)], weight=0, superseded_at=ago(minutes=5))
    todo = decide(world([serves, before], of=sized), NOW)
    assert todo.size.value >= 8
    assert deployments(todo)[NAME] >= 8
    assert not [each for each in todo.events if each.reason == "SuccessfulRescale"]
    comes = revision("the next prompt", [pod("c", 0), pod("d", 1)], weight=30, progress=Progress(30, ago(minutes=1)))
    assert decide(world([replace(serves, weight=70), comes], of=sized, prompt=NEXT), NOW).size.value == 10


def test_a_release_is_put_on_record_with_the_new_one():
    revisions = [revision(pods=[pod("a", 0)]), revision("the next prompt", [pod("b", 0)], weight=0)]
    of = group(replicas=1, rollout={"steps": [{"weight": 20, "pause": "1m"}]})
    todo = decide(world(revisions, of=of, prompt=NEXT), NOW)
    made = [each for each in todo.objects if each["kind"] == "Deployment"]
    records = {each["metadata"]["name"]: each["metadata"]["annotations"] for each in made}
    assert records[NEXT_NAME]["promptgroup.dev/release-step"] == "0"
    assert "promptgroup.dev/release-step" not in records[NAME]
    assert {each["fingerprint"]: each["weight"] for each in todo.route["spec"]["revisions"]} == {
        FINGERPRINT: 80,
        NEXT.fingerprint: 20,
    }
    assert {each["type"]: each["reason"] for each in todo.status["conditions"]}["Progressing"] == "RevisionGrowing"


def test_a_revision_that_is_not_wanted_keeps_its_pod_template():
    live = standing(scaled([pod("a", 0)], 1)).live
    of = group(replicas=1, engine={"image": "another"})
    todo = decide(world([revision(pods=[pod("a", 0)])], of=of, prompt=NEXT, live=live), NOW)
    templates = {
        each["metadata"]["name"]: each["spec"]["template"] for each in todo.objects if each["kind"] == "Deployment"
    }
    assert templates[NAME] == live["Deployment", NAME]["spec"]["template"]
    assert templates[NEXT_NAME]["spec"]["containers"][0]["image"] == "another"


def test_taking_over_is_put_on_record_with_the_old_one():
    revisions = [revision(pods=[pod("a", 0)], weight=0), revision("the next prompt", [pod("b", 0)])]
    todo = decide(world(revisions, of=group(replicas=1), prompt=NEXT), NOW)
    records = {
        each["metadata"]["name"]: each["metadata"]["annotations"]
        for each in todo.objects
        if each["kind"] == "Deployment"
    }
    assert records[NAME]["promptgroup.dev/superseded-at"] == "2026-11-03T12:00:00Z"
    assert "promptgroup.dev/superseded-at" not in records[NEXT_NAME]
    assert {each["fingerprint"]: each["weight"] for each in todo.route["spec"]["revisions"]} == {
        FINGERPRINT: 0,
        NEXT.fingerprint: 100,
    }


def retiring(pods, *, deployed, history=0):
    old = revision(pods=pods, replicas=deployed, weight=0, superseded_at=ago(hours=1), quiet_since=ago(hours=1))
    new = revision("the next prompt", [pod("n", 0)])
    owned = {"ownerReferences": [{"uid": "uid-support"}]}
    live = {
        (kind, NAME): {"metadata": owned | {"uid": f"uid-{kind}"}, "spec": {"template": {"spec": {}}}}
        for kind in ("Deployment", "ConfigMap")
    }
    of = group(replicas=1, rollout={"revisionHistoryLimit": history})
    return world([old, new], of=of, prompt=NEXT, live=live)


def test_a_retiring_revision_drains():
    todo = decide(retiring([pod("a", 0), pod("b", None)], deployed=2), NOW)
    assert todo.pod_updates == (PodUpdate("a", "uid-a", 0, NOW), PodUpdate("b", "uid-b", None, NOW))
    assert slots_of(todo) == {0: ("Draining", "a")}
    assert deployments(todo) == {NEXT_NAME: 1, NAME: 2}
    assert todo.deletions == ()
    assert todo.requeue_after == MOVING


def test_a_retiring_revision_that_has_drained_is_scaled_to_nothing():
    todo = decide(retiring([pod("a", 0, **TOLD)], deployed=1), NOW)
    assert deployments(todo) == {NEXT_NAME: 1, NAME: 0}
    assert todo.deletions == ()


def test_nothing_is_deleted_while_a_pod_is_left():
    assert decide(retiring([pod("a", 0, deleting=True)], deployed=0), NOW).deletions == ()


def test_a_retired_revision_is_kept_as_history_and_not_routed():
    todo = decide(retiring([], deployed=0, history=1), NOW)
    assert todo.deletions == ()
    assert deployments(todo) == {NEXT_NAME: 1, NAME: 0}
    assert [each["fingerprint"] for each in todo.route["spec"]["revisions"]] == [NEXT.fingerprint]
    assert todo.requeue_after == SETTLED


def test_what_is_left_of_a_retired_revision_is_deleted_the_record_last():
    todo = decide(retiring([], deployed=0), NOW)
    assert [(each.kind, each.name, each.uid) for each in todo.deletions] == [
        ("ConfigMap", NAME, "uid-ConfigMap"),
        ("Deployment", NAME, "uid-Deployment"),
    ]


def test_what_is_gone_already_is_not_deleted_again():
    snapshot = retiring([], deployed=0)
    without = replace(snapshot, live={key: each for key, each in snapshot.live.items() if key[0] == "Deployment"})
    assert [each.kind for each in decide(without, NOW).deletions] == ["Deployment"]


def test_the_budget_of_a_revision_goes_when_it_serves_no_more():
    snapshot = retiring([pod("a", 0)], deployed=1)
    budgets = {
        ("PodDisruptionBudget", each): {"metadata": {"uid": f"uid-{each}", "ownerReferences": [{"uid": "uid-support"}]}}
        for each in (NAME, NEXT_NAME)
    }
    todo = decide(replace(snapshot, live={**snapshot.live, **budgets}), NOW)
    assert [(each.kind, each.name) for each in todo.deletions] == [("PodDisruptionBudget", NAME)]


def test_a_budget_of_somebody_elses_is_not_deleted():
    theirs = {("PodDisruptionBudget", "mine"): {"metadata": {"uid": "x", "ownerReferences": [{"uid": "another"}]}}}
    snapshot = retiring([pod("a", 0)], deployed=1)
    assert decide(replace(snapshot, live={**snapshot.live, **theirs}), NOW).deletions == ()


# --- warm-ups ----------------------------------------------------------------------------------------------


def test_cold_pods_of_every_living_revision_are_warmed_with_its_own_text():
    revisions = [
        revision(pods=[pod("a", 0), cold("b")]),
        revision("the next prompt", [cold("c"), starting("d")], weight=0),
    ]
    todo = decide(world(revisions, prompt=NEXT), NOW)
    assert {job.pod: job.prompt for job in todo.warmups} == {
        "b": Prompt(revision().prompt.system),
        "c": Prompt("the next prompt"),
    }


def test_a_revision_without_text_is_not_warmed():
    old = revision("an old prompt", [cold("a")], prompt=None)
    assert decide(world([old], prompt=NEXT), NOW).warmups == ()


def test_a_retiring_revision_is_not_warmed():
    assert decide(retiring([cold("a", 0)], deployed=1), NOW).warmups == ()


@pytest.mark.parametrize(("policy", "proceed"), [("Block", False), ("Proceed", True)])
def test_a_warm_up_carries_the_policy_and_the_time_of_the_spec(policy, proceed):
    of = group(warmup={"failurePolicy": policy, "timeout": "10m"})
    (job,) = decide(world([revision(pods=[cold("a")])], of=of), NOW).warmups
    assert job.proceed is proceed
    assert job.deadline == ago(minutes=40)


def test_a_condition_that_speaks_of_another_container_is_taken_back():
    todo = decide(scaled([restarted("a", 0)], 1), NOW)
    assert [(each.pod, each.outcome.reason) for each in todo.conditions] == [("a", "ContainerRestarted")]
    assert slots_of(todo) == {0: ("Absent", None)}


# --- a spec that cannot be acted on ------------------------------------------------------------------------

MISSING = Problem("PromptNotFound", "waits for ConfigMap texts")


def test_without_anything_that_serves_nothing_is_made():
    todo = decide(world(prompt=MISSING), NOW)
    assert todo.objects == todo.pod_updates == todo.deletions == todo.warmups == ()
    assert todo.route is None
    assert todo.requeue_after == WAITING
    assert {each["type"]: each["reason"] for each in todo.status["conditions"]}["Ready"] == "PromptNotFound"


def test_a_route_that_stands_does_not_lead_to_what_is_gone():
    live = standing(scaled([pod("a", 0)], 1)).live
    todo = decide(world(prompt=MISSING, live=live), NOW)
    assert todo.route["spec"]["revisions"] == []


def test_what_serves_goes_on_with_its_size_and_its_slots():
    old = revision(pods=[pod("a", 0), pod("b", None)])
    todo = decide(world([old], of=group(replicas=2), prompt=MISSING), NOW)
    assert deployments(todo) == {NAME: 2}
    assert slots_of(todo) == {0: ("Ready", "a"), 1: ("Ready", "b")}
    assert [each["kind"] for each in todo.objects] == ["Deployment", "PodDisruptionBudget"]
    assert todo.status["fingerprint"] == FINGERPRINT


def test_what_has_the_traffic_goes_on_even_if_it_was_marked_superseded():
    revisions = [
        revision(pods=[pod("a", 0)], superseded_at=ago(seconds=1)),
        revision("the next prompt", [cold("b")], weight=0),
    ]
    todo = decide(world(revisions, of=group(replicas=1), prompt=MISSING), NOW)
    assert {each["fingerprint"]: each["weight"] for each in todo.route["spec"]["revisions"]}[FINGERPRINT] == 100


@pytest.mark.parametrize("known", [True, False])
def test_a_template_that_cannot_be_merged_is_not_written_and_the_number_of_replicas_is(known):
    of = group(replicas=3, engine={"template": {"spec": {"containers": ["engine"]}}})
    standing = revision(pods=[pod("a", 0)], replicas=1)
    live = desired.deployment(group(), FINGERPRINT, 1, standing.prompt_from, records={})
    todo = decide(world([standing], of=of, live={("Deployment", standing.deployment): live} if known else {}), NOW)
    applied = [each["spec"] for each in todo.objects if each["kind"] == "Deployment"]
    assert [(each["replicas"], each["template"]) for each in applied] == [(3, live["spec"]["template"])] * known
    assert slots_of(todo)[0] == ("Ready", "a")
    assert {each["type"]: each["reason"] for each in todo.status["conditions"]}["Ready"] == "InvalidTemplate"


def test_a_route_of_somebody_else_is_never_written():
    live = {("PromptRoute", "support"): {"metadata": {"ownerReferences": [{"uid": "other"}]}}}
    assert decide(world(live=live), NOW).route is None
    assert decide(world([revision(pods=[pod()])], live=live), NOW).route is None


# --- when to look again ------------------------------------------------------------------------------------

FROM = {"systemFrom": {"configMapKeyRef": {"name": "texts", "key": "system"}}}
SUPERSEDED = revision("an old prompt", [pod("o", 0)], weight=0, superseded_at=ago(minutes=29, seconds=40))

LOOKS = {
    "at rest": (scaled([pod("a", 0)], 1), SETTLED),
    "at rest with a prompt elsewhere": (
        world([revision(pods=[pod("a", 0)])], of=group(replicas=1, prompt=FROM)),
        REFERENCED,
    ),
    "while a replica is missing": (scaled([pod("a", 0)], 2), WAITING),
    "while a replica is cold": (scaled([pod("a", 0), cold("b")], 1, deployed=1), WAITING),
    "while replicas drain": (scaled([pod("a", 0), pod("b", 1)], 1), MOVING),
    "while the last pod of a revision ends": (
        world(
            [
                revision(pods=[pod("a", 0)]),
                revision(
                    "an old prompt", [pod("o", 0, deleting=True)], weight=0, replicas=0, superseded_at=ago(hours=2)
                ),
            ],
            of=group(replicas=1),
        ),
        MOVING,
    ),
    "while a problem stands": (world([revision(pods=[pod("a", 0)])], of=group(replicas=1), prompt=MISSING), WAITING),
    "while revisions share the traffic": (
        world([revision(pods=[pod("a", 0)]), SUPERSEDED], of=group(replicas=1)),
        WAITING,
    ),
}


@pytest.mark.parametrize("case", LOOKS)
def test_when_to_look_again(case):
    snapshot, expected = LOOKS[case]
    assert decide(snapshot, NOW).requeue_after == expected


def test_waits_are_in_order():
    assert MOVING < WAITING < REFERENCED < SETTLED == plan.Plan().requeue_after


def overdue(name="p0", slot=0, **fields):
    return pod(name, slot, last_seen=LastSeen(ago(minutes=5), reading(), reading()), **fields)


def test_a_pool_that_is_looked_at_is_looked_at_again_soon():
    settled, expected = scaled([pod("a", 0)], 1), REFERENCED
    assert decide(replace(settled, pool_answers=PoolAnswers(1)), NOW).requeue_after == expected


def test_a_warm_replica_is_touched_when_it_is_time():
    todo = decide(world([revision(pods=[overdue(), pod("p1", 1)])]), NOW)
    assert [each.pod for each in todo.refreshes] == ["p0"]
    assert todo.warmups == ()


def test_a_replica_of_a_revision_that_retires_is_not_touched():
    old = revision("the text before", [overdue("old")], weight=0, superseded_at=ago(days=1), quiet_since=ago(days=1))
    todo = decide(world([revision(pods=[pod("p0"), pod("p1", 1)]), old]), NOW)
    assert todo.refreshes == ()


def test_the_next_touch_is_waited_for():
    seen = LastSeen(NOW, reading(), reading())
    settled = world([revision(pods=[pod("p0", last_seen=seen), pod("p1", 1, last_seen=seen)])])
    assert decide(settled, NOW).requeue_after == SETTLED
    assert (
        WAITING
        <= decide(replace(settled, refresh_every=timedelta(seconds=30)), NOW).requeue_after
        < timedelta(seconds=30)
    )


def test_a_touch_that_runs_is_not_waited_for_in_haste():
    running = world([revision(pods=[overdue(), pod("p1", 1)])])
    assert decide(running, NOW).requeue_after == SETTLED
    assert decide(replace(running, refresh_every=timedelta(seconds=30)), NOW).requeue_after > WAITING


# --- sizing ------------------------------------------------------------------------------------------------

SIZING = {"replicas": None, "sizing": {"minReplicas": 1, "maxReplicas": 9}}


def observed(seen, count=4, **fields):
    """A group that is sized, so many of its replicas warm and routed, under a load."""
    rev = revision(pods=[pod(f"p{i}", i) for i in range(count)], size=count)
    snapshot = standing(world([rev], of=group(**SIZING)))
    return replace(snapshot, load=seen, **fields)


def test_the_size_follows_the_load_and_is_told():
    todo = decide(observed(load(40, usage=0.45, sessions=300)), NOW)
    assert deployments(todo) == {NAME: 5}
    assert todo.events[0].reason == "SuccessfulRescale"
    assert todo.size.history.past.changes[0].by == 1
    told = {each["type"]: (each["status"], each["reason"]) for each in todo.status["conditions"]}
    assert told["ScalingActive"] == ("True", "DemandRose")
    assert told["CacheEffective"] == ("True", "Healthy")


def test_caches_that_are_off_by_choice_are_no_fault_and_no_tier_is_advised():
    rev = revision(pods=[pod("p0", 0)])
    todo = decide(replace(world([rev], of=group(cache={"prefixCaching": "Disabled"})), load=load(hit_rate=0)), NOW)
    told = {each["type"]: (each["status"], each["reason"]) for each in todo.status["conditions"]}
    assert told["CacheEffective"] == ("Unknown", "CachingOffByChoice")
    assert "CacheTierUseful" not in told


def test_a_steady_load_is_written_once():
    snapshot = observed(load())
    status = decide(snapshot, NOW).status
    later = replace(snapshot, group=replace(snapshot.group, status=status), load=load(16.2, hit_rate=0.938))
    assert decide(later, NOW + timedelta(seconds=15)).status == status


def test_a_group_that_is_sized_is_looked_at_as_often_as_an_autoscaler_does():
    assert decide(observed(load()), NOW).requeue_after == timedelta(seconds=15)


def test_a_replica_that_drains_is_no_change_of_size():
    """The Deployment has four still; three are wanted, and noted."""
    snapshot = observed(load(10, usage=0.1, sessions=60))
    drains = replace(snapshot, revisions=(replace(snapshot.revisions[0], size=3),))
    assert not any(each.reason == "SuccessfulRescale" for each in decide(drains, NOW).events)


def test_while_revisions_share_the_traffic_the_size_stands():
    seen = load(1, usage=0.01, sessions=5, p95=0.05)
    old = revision("a", [pod("a0", 0), pod("a1", 1)], size=4, weight=0, superseded_at=ago(minutes=1))
    new = revision(pods=[pod("p0", 0), pod("p1", 1)], size=4)
    past = Past((Recommendation(1, ago(minutes=20), ago(seconds=5)),))
    snapshot = replace(world([old, new], of=group(**SIZING)), load=seen, sizing=History(past))
    assert decide(snapshot, NOW).status["warm"].endswith("/4")


ENGINES = {
    "all run the engine of the spec": ({}, True, "Warm"),
    "one runs an earlier engine": ({"settings": "of-an-earlier-engine"}, False, "EngineChanging"),
    "one runs an earlier engine and terminates": ({"settings": "of-an-earlier-engine", "deleting": True}, True, "Warm"),
    "nobody knows what one runs": ({"settings": ""}, True, "Warm"),
}


@pytest.mark.parametrize("case", ENGINES)
def test_a_group_is_ready_once_its_replicas_run_the_engine_of_the_spec(case):
    fields, ready, reason = ENGINES[case]
    rev = revision(pods=[pod("p0", 0), pod("p1", 1), pod("p2", None, **fields)], replicas=2)
    told = {each["type"]: each for each in decide(world([rev]), NOW).status["conditions"]}
    assert (told["Ready"]["status"], told["Ready"]["reason"]) == (str(ready), reason)
    assert (told["Progressing"]["status"], told["Progressing"]["reason"] == reason) == (str(not ready), not ready)
    assert told["Degraded"]["status"] == "False"
