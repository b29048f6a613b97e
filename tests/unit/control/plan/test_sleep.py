"""The plan of a group that falls asleep, sleeps and wakes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_operator.plan.plan import decide
from promptgroup_operator.world.samples import Calls
from promptgroup_operator.world.sizing_history import History
from promptgroup_operator.world.snapshot import Progress
from support.builders import NOW, group, pod, revision, starting, world
from support.loads import load

SIZING = {"replicas": None, "sizing": {"minReplicas": 0, "maxReplicas": 4, "idleAfter": "30m"}}
QUIET = load(0, replicas=1, sessions=0)
NEW = "support-78aace27"
READ = Calls(None, read=True)


def after(seconds):
    return NOW + timedelta(seconds=seconds)


def passed(rev, before=None, *, now=NOW, calls=READ, found=None, idle=None, status=None, **spec):
    """A pass over a group, after another pass whose route stands."""
    revisions = rev if isinstance(rev, list) else [rev]
    snapshot = world([each for each in revisions if each is not None], of=group(status=status, **(SIZING | spec)))
    live = {}
    if before is not None:
        route = before.route
        live["PromptRoute", "support"] = route | {"metadata": route["metadata"] | {"uid": "uid-route"}}
    return decide(replace(snapshot, live=live, calls=calls, load=found, sizing=History(idle_since=idle)), now)


def deployed(todo):
    """The replicas of the group's Deployment; of several by name."""
    found = {
        each["metadata"]["name"]: each["spec"]["replicas"] for each in todo.objects if each["kind"] == "Deployment"
    }
    return found if len(found) > 1 else found[NEW]


def told(todo):
    return {each["type"]: (each["status"], each["reason"]) for each in todo.status["conditions"]}


def awake(**fields):
    return revision(pods=[pod("p0", 0, **fields)], size=1)


def slept():
    """The pass in which a group falls asleep."""
    before = passed(awake(), found=QUIET)
    return passed(awake(), before, found=QUIET, idle=NOW - timedelta(minutes=30))


def test_a_group_that_was_idle_drains_its_last_replica_and_the_route_says_since_when():
    todo = slept()
    assert todo.size.value == 0
    assert deployed(todo) == 1, "what drains is not gone yet"
    assert todo.route["spec"]["sleep"] == {"wakeTimeoutSeconds": 300, "since": "2026-11-03T12:00:00Z"}
    (only,) = todo.route["spec"]["revisions"]
    assert (only["weight"], [slot["state"] for slot in only["slots"]]) == (100, ["Draining"])
    assert [each.reason for each in todo.events if each.reason == "SuccessfulRescale"] == ["SuccessfulRescale"]


def test_a_replica_that_has_drained_leaves():
    drained = replace(awake(draining_since=after(-10), in_flight=0), size=0)
    todo = passed(drained, slept(), now=after(10))
    assert deployed(todo) == 0


def test_a_group_that_sleeps_is_ready_and_is_looked_at_every_second():
    before = slept()
    gone = revision(pods=[], size=0, replicas=0)
    todo = passed(gone, before, now=after(60))
    assert told(todo)["Ready"] == ("True", "Asleep")
    assert told(todo)["RouterProgrammed"] == ("True", "Asleep")
    assert told(todo)["Progressing"][0] == "False"
    assert told(todo)["Degraded"][0] == "False"
    assert todo.requeue_after == timedelta(seconds=1)
    later = passed(gone, todo, now=after(120))
    assert later.route["spec"] == todo.route["spec"]
    assert todo.route["spec"]["revisions"][0]["weight"] == 100


def test_nothing_is_written_while_it_sleeps():
    gone = revision(pods=[], size=0, replicas=0)
    first = passed(gone, slept(), now=after(60))
    second = passed(gone, first, now=after(61), status=first.status)
    assert second.status == first.status
    assert second.route["spec"] == first.route["spec"]
    assert second.events == ()


def test_a_request_wakes_it_once():
    gone = revision(pods=[], size=0, replicas=0)
    asleep = passed(gone, slept(), now=after(60))
    woken = passed(gone, asleep, now=after(100), calls=Calls(after(99), read=True))
    assert deployed(woken) == 1
    assert woken.route["spec"]["sleep"] == {"wakeTimeoutSeconds": 300, "woken": "2026-11-03T12:01:40Z"}
    assert told(woken)["ScalingActive"] == ("True", "Woken")
    assert told(woken)["Ready"][0] == "False"
    starts = revision(pods=[starting("p1", slot=0)], size=1)
    again = passed(starts, woken, now=after(101), calls=Calls(after(100), read=True))
    assert again.route["spec"]["sleep"] == woken.route["spec"]["sleep"]
    assert again.size.value == 1


def test_a_start_is_timed_once_a_replica_serves():
    woken = passed(revision(pods=[], size=0, replicas=0), slept(), now=after(100), calls=Calls(after(99), read=True))
    todo = passed(awake(), woken, now=after(130), found=QUIET)
    assert todo.route["spec"]["sleep"] == {"wakeTimeoutSeconds": 300, "startSeconds": 31}
    assert told(todo)["Ready"] == ("True", "Warm")


def test_a_request_as_the_last_replica_drains_has_it_back():
    draining = replace(awake(draining_since=after(1), in_flight=0), size=0)
    todo = passed(draining, slept(), now=after(2), calls=Calls(after(1), read=True))
    assert deployed(todo) == 1
    (only,) = todo.route["spec"]["revisions"]
    assert [slot["state"] for slot in only["slots"]] == ["Ready"]


def test_what_forbids_the_pod_is_told_to_routers():
    gone = revision(pods=[], size=0, replicas=0)
    woken = passed(gone, slept(), now=after(100), calls=Calls(after(99), read=True))
    refused = revision(pods=[], size=1, replicas=1, failure="pods support-1 is forbidden: exceeded quota: gpus")
    todo = passed(refused, woken, now=after(101))
    assert "exceeded quota" in todo.route["spec"]["sleep"]["problem"]


def test_a_prompt_that_is_applied_while_the_group_sleeps_is_the_one_that_wakes():
    old = revision("an old prompt", [], size=0, replicas=0)
    asleep = passed(old, slept(), now=after(60))
    assert (asleep.size.value, deployed(asleep)) == (0, {"support-71866ddb": 0, NEW: 0})
    assert told(asleep)["Ready"] == ("False", "RevisionComing"), "routers are not told of it yet"
    gone = replace(old, weight=0, superseded_at=after(60))
    new = revision(pods=[], size=0, replicas=0, progress=Progress(0, None), weight=0)
    todo = passed([gone, new], asleep, now=after(61))
    assert told(todo)["Ready"] == ("True", "Asleep")
    assert [each["weight"] for each in todo.route["spec"]["revisions"]] == [100]
    woken = passed([gone, replace(new, weight=100)], todo, now=after(62), calls=Calls(after(62), read=True))
    assert deployed(woken) == {"support-71866ddb": 0, NEW: 1}


@pytest.mark.parametrize("spec", [{}, {"sizing": None, "replicas": 1}])
def test_a_new_group_begins_with_one_replica(spec):
    assert passed(None, **spec).size.value == 1


@pytest.mark.parametrize(
    ("routing", "sleep"),
    [
        ({}, {"since": "2026-11-03T12:00:00Z"}),
        ({"wakeTimeout": "8m"}, {"wakeTimeoutSeconds": 480, "since": "2026-11-03T12:00:00Z"}),
    ],
)
def test_an_autoscaler_may_put_a_group_to_sleep(routing, sleep):
    gone = revision(pods=[], replicas=0)
    todo = passed(gone, sizing=None, replicas=0, routing=routing)
    assert todo.route["spec"]["sleep"] == sleep
    assert told(todo)["Ready"] == ("False", "ScaledToZero")
