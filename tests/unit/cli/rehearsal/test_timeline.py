"""What is said of two worlds that differ."""

from datetime import timedelta

from promptgroup_cli.rehearsal import timeline
from promptgroup_cli.rehearsal.simulate import Moment
from promptgroup_contract.fingerprint import short
from promptgroup_operator.world.snapshot import Problem, Progress, RolledBack
from support import builders
from support.builders import NOW

ID = short(builders.FINGERPRINT)
NEW = builders.text("new").fingerprint


def status(ready="True", **phases):
    revisions = [{"fingerprint": builders.text(text).fingerprint, "phase": phase} for text, phase in phases.items()]
    return {"conditions": [{"type": "Ready", "status": ready, "reason": "Why"}], "revisions": revisions}


def world(*revisions, live=None, **said):
    return builders.world(revisions, of=builders.group(status=status(**said)), live=live)


def told(old, new):
    """What is said of the second of two moments."""
    moments = [Moment(NOW, old), Moment(NOW + timedelta(minutes=1), new)] if old else [Moment(NOW, new)]
    last = list(timeline.chapters(old, moments, NOW))[-1]
    assert last.after == moments[-1].at - NOW
    return list(last.events)


def deployment(replicas, settings="a"):
    template = {"metadata": {"annotations": {"promptgroup.dev/engine-settings": settings}}}
    return {"metadata": {"name": "d"}, "spec": {"replicas": replicas, "template": template}}


def test_of_a_world_that_is_the_same_nothing_is_said_but_once():
    same = world(builders.revision(pods=[builders.pod()]), live={("Deployment", "d"): deployment(1)})
    found = timeline.chapters(same, [Moment(NOW, same), Moment(NOW, same)], NOW)
    assert [each.events for each in found] == [("there is nothing to do",), ()]


def test_objects_come_and_change_and_go():
    empty = world()
    full = world(live={("Deployment", "d"): deployment(1), ("ConfigMap", "d"): {}, ("Secret", "e"): {}})
    assert told(empty, full) == [
        "Deployment d is created with 1 replica",
        "ConfigMap d is created",
        "Secret e is created",
    ]
    more = world(live={("Deployment", "d"): deployment(3, "b")})
    assert told(full, more) == [
        "Deployment d is scaled from 1 to 3 replicas",
        "Deployment d gets another pod template; its pods are replaced one by one",
        "ConfigMap d is deleted",
        "Secret e is deleted",
    ]


def test_deployments_that_shrink_are_told_first():
    def both(first, second):
        return world(
            live={
                ("Deployment", "a"): deployment(first) | {"metadata": {"name": "a"}},
                ("Deployment", "b"): deployment(second) | {"metadata": {"name": "b"}},
            }
        )

    assert told(both(1, 2), both(2, 1)) == [
        "Deployment b is scaled from 2 to 1 replica",
        "Deployment a is scaled from 1 to 2 replicas",
    ]


def test_replicas_get_warm_and_drain_and_end():
    cold = builders.revision(pods=[builders.cold("a"), builders.cold("b")])
    warm = builders.revision(pods=[builders.pod("a", 0), builders.pod("b", 1)])
    drains = builders.revision(pods=[builders.pod("a", 0), builders.pod("b", 1, draining_since=NOW)])
    ends = builders.revision(pods=[builders.pod("a", 0), builders.pod("b", 1, draining_since=NOW, deleting=True)])
    assert told(world(cold), world(warm)) == [f"{ID}: slots 0-1 are warm"]
    assert told(world(warm), world(drains)) == [f"{ID}: slot 1 drains; routers send elsewhere"]
    assert told(world(drains), world(ends)) == [f"{ID}: 1 replica terminates"]
    assert told(world(ends), world(builders.revision(pods=[builders.pod("a", 0)]))) == []


def test_a_slot_is_inherited():
    before = builders.revision(pods=[builders.pod("a", 3), builders.cold("b")])
    after = builders.revision(pods=[builders.pod("a", 3, deleting=True), builders.pod("b", 3)])
    assert told(world(before), world(after)) == [
        f"{ID}: slot 3 is warm, inherited from a replica that leaves",
        f"{ID}: 1 replica terminates",
    ]


def test_slots_with_gaps_are_listed():
    warm = builders.revision(pods=[builders.pod("a", 0), builders.pod("b", 2)])
    assert told(world(), world(warm))[0] == f"{ID}: slots 0, 2 are warm"


def test_weights_the_one_that_rises_first():
    before = world(builders.revision(weight=100), builders.revision("new", weight=0))
    after = world(builders.revision(weight=95), builders.revision("new", weight=5))
    assert told(before, after) == [f"weights: {short(NEW)} 0 → 5 %, {ID} 100 → 95 %"]


def test_steps_begin_and_end():
    def at(progress):
        of = builders.group(
            rollout={"steps": [{"weight": 5, "pause": "7m"}, {"weight": 50}]},
            status=status(),
        )
        return builders.world([builders.revision("new", weight=0, progress=progress)], of=of)

    name = short(NEW)
    coming, first, second = at(Progress(0, None)), at(Progress(5, NOW)), at(Progress(50, NOW))
    assert told(coming, coming) == told(first, first) == told(first, at(Progress(50, None))) == []
    assert told(coming, first) == [f"{name}: step 1 of 2 begins and lasts at least 7m"]
    assert told(first, second) == [f"{name}: step 2 of 2 begins and lasts at least 10m"]
    assert told(second, at(Progress(100, None))) == [
        f"{name} passed its steps and takes over as its replicas become warm"
    ]


def test_phases():
    mark = RolledBack(NOW, "", Problem("ErrorRate", "too many failed"))
    revisions = [builders.revision("new", weight=0, rolled_back=mark)]
    name = short(NEW)

    def after(before, phase):
        return told(world(*revisions, new=before), world(*revisions, new=phase))

    assert after("Coming", "Canary") == []
    assert after("Canary", "Serving") == [f"{name} has taken over"]
    assert after("Serving", "Superseded") == [f"{name} stays routable for 30m (retireAfter)"]
    assert after("Canary", "RolledBack") == [f"{name} is rolled back: too many failed"]
    assert after("Superseded", "Retiring") == [f"{name} retires"]
    assert after("Retiring", "Retired")[0].startswith(f"{name} is retired")


def test_readiness():
    assert told(None, world(ready="False")) == ["the PromptGroup is not Ready (Why)"]
    assert told(world(ready="False"), world()) == ["the PromptGroup is Ready (Why)"]
    assert timeline.condition_of(world(), "Degraded") == {}


def test_a_replica_whose_engine_has_ranks_is_warm_on_each_of_them():
    old = world(builders.revision(pods=[builders.cold(ranks=2)]))
    new = world(builders.revision(pods=[builders.pod(ranks=2)]))
    assert told(old, new) == [f"{ID}: slot 0 is warm on each of 2 data-parallel ranks"]
