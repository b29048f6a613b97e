"""What is told of a group, from its objects."""

from datetime import UTC, datetime, timedelta

import pytest

from promptgroup_cli.reach.group_status import MEANINGS, group_status
from support.guestmodel import GuestModel, host_pods
from support.rawobjects import FULL, SHORT, condition, engine, promptgroup, promptroute

COLD = {"status": "False", "reason": "Warming", "message": "the prefix is being sent"}


def told(*conditions, **status):
    return group_status(promptgroup("support", *conditions, **status), None, ()).statements


def test_a_group_at_rest_waits_for_nothing():
    route = promptroute((0, "Ready", "p0"), (1, "Ready", "p1"))
    found = group_status(promptgroup(), route, [engine("p1"), engine("p0")])
    assert (found.ready, found.revision, found.warm, found.replicas, found.hit_rate) == (True, SHORT, "2/2", 2, "93%")
    assert found.statements == ()
    (revision,) = found.revisions
    assert (revision.fingerprint, revision.phase, revision.weight) == (FULL, "Serving", 100)
    assert [(each.slot, each.pod, each.state, each.warm) for each in revision.slots] == [
        (0, "p0", "Ready", "True"),
        (1, "p1", "Ready", "True"),
    ]


def test_what_leads_to_the_next_comes_first_and_one_cause_is_told_once():
    found = told(
        condition("Ready", "False", "Warming"),
        condition("PrefixWarm", "False", "PrefixNotCached"),
        condition("Degraded", "True", "PrefixNotCached"),
        condition("RouterProgrammed", "False", "NoReplica"),
    )
    assert [(each.condition, each.holds) for each in found] == [
        ("PrefixWarm", True),
        ("RouterProgrammed", True),
        ("Ready", True),
    ]


@pytest.mark.parametrize("kind", MEANINGS)
def test_each_condition_is_told_when_it_is_not_as_it_should_be(kind):
    wanted = MEANINGS[kind].wanted
    other = {"True": "False", "False": "True"}[wanted]
    group = promptgroup("support", condition(kind, other, "Because"))
    group["spec"]["sizing"] = {"minReplicas": 1, "maxReplicas": 4}
    (said,) = group_status(group, None, ()).statements
    assert (said.condition, said.reason, said.words) == (kind, "Because", MEANINGS[kind].words)
    assert told(condition(kind, wanted)) == ()


def test_a_fixed_number_is_no_trouble_and_neither_are_caches_that_nothing_is_known_of():
    fixed = condition("ScalingActive", "False", "FixedReplicas", "spec.replicas asks for 2")
    found = group_status(promptgroup("support", fixed, condition("CacheEffective", "Unknown", "NoTraffic")), None, ())
    assert found.statements == ()
    assert (found.sizing.least, found.sizing.reason) == (None, "FixedReplicas")


def test_a_change_that_the_operator_has_not_seen_comes_before_all_and_is_not_ready():
    found = group_status(promptgroup(observedGeneration=1), None, ())
    assert not found.ready
    assert (found.statements[0].reason, found.statements[0].holds) == ("NotObserved", True)
    assert "has not seen generation 2 yet; the following is of generation 1" in found.statements[0].message


@pytest.mark.parametrize("status", [{}, {"observedGeneration": -1}])
def test_a_group_that_no_operator_has_seen(status):
    group = promptgroup() | {"status": status}
    found = group_status(group, None, ())
    assert [each.words for each in found.statements] == ["No operator has seen this group yet"]
    assert (found.ready, found.revisions, found.warm, found.replicas) == (False, (), "", 0)


NEW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("age", "reason"), [(5, "NotObserved"), (59, "NotObserved"), (60, "NobodyActs")])
def test_a_group_on_which_nobody_works_is_told_from_one_that_is_new(age, reason):
    group = promptgroup() | {"status": {"observedGeneration": -1}}
    group["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    [found] = group_status(group, None, (), now=NEW + timedelta(seconds=age)).statements
    assert found.reason == reason
    assert "get deployments -A -l app.kubernetes.io/name=promptgroup-operator" in found.message


def test_a_change_that_nobody_acts_on_is_told_by_the_time_of_the_change():
    group = promptgroup()
    group["metadata"] |= {
        "generation": group["metadata"]["generation"] + 1,
        "creationTimestamp": "2025-01-01T00:00:00Z",
        "managedFields": [
            {"manager": "kubectl", "time": "2026-01-01T00:00:00Z"},
            {"manager": "promptgroup-operator", "subresource": "status", "time": "2026-01-01T01:00:00Z"},
        ],
    }
    reasons = [
        [each.reason for each in group_status(group, None, (), now=NEW + timedelta(minutes=age)).statements[:2]]
        for age in (0, 90)
    ]
    assert reasons[0][0] == "NotObserved"
    assert reasons[1] == ["NobodyActs", "NotObserved"]
    assert "made 90 min ago" in group_status(group, None, (), now=NEW + timedelta(minutes=90)).statements[0].message


def test_slots_without_a_pod_and_pods_without_a_slot():
    route = promptroute((1, "Draining", "p1"), (0, "Absent", ""))
    unpulled = {"name": "engine", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    pods = [engine("p1"), engine("p2", COLD), engine("p3", deleting=True), engine("p4", containerStatuses=[unpulled])]
    (revision,) = group_status(promptgroup(), route, pods).revisions
    assert [(each.slot, each.pod, each.state, each.warm, each.reason) for each in revision.slots] == [
        (0, "", "Absent", "", ""),
        (1, "p1", "Draining", "True", "PrefixCached"),
        (None, "p2", "Cold", "False", "Warming"),
        (None, "p3", "Terminating", "", ""),
        (None, "p4", "Cold", "True", "PodNotStarting"),
    ]
    assert "no such image" in revision.slots[-1].message


def test_a_warm_condition_of_an_earlier_container_does_not_count():
    pod = engine("p0")
    pod["metadata"]["annotations"]["promptgroup.dev/warmed-container"] = "containerd://earlier"
    (revision,) = group_status(promptgroup(), promptroute((0, "Absent", "")), [pod]).revisions
    assert [each.reason for each in revision.slots] == ["", "ContainerRestarted"]


def test_a_guest_has_its_hosts_pods_and_names_no_model_of_its_own():
    model = GuestModel(host_pods(["p0", "p1"]))
    model.settle()
    group = {
        "metadata": {"namespace": "chat", "name": "support", "generation": 1},
        "spec": {"engineFrom": {"promptGroup": "pool"}},
        "status": model.status,
    }
    found = group_status(group, model.route, ())
    assert (found.model, found.warm, found.ready) == ("llama", "2/2", True)
    (revision,) = found.revisions
    assert [(each.slot, each.pod, each.warm, each.reason) for each in revision.slots] == [
        (0, "p0", "True", "PrefixCached"),
        (1, "p1", "True", "PrefixCached"),
    ]
