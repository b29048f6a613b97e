"""The ideal cluster: what each of its actors does by itself."""

from datetime import timedelta

from promptgroup_cli.rehearsal.simulated_cluster import (
    IDLE_AFTER,
    SAMPLED_AFTER,
    TERMINATION,
    SimulatedCluster,
    SimulatedPace,
)
from promptgroup_contract.fingerprint import short
from promptgroup_operator.plan import plan
from promptgroup_operator.rollout.release import RevisionPhase
from promptgroup_operator.world.effects import Deletion, PodUpdate
from promptgroup_operator.world.samples import StratumKey
from support import builders
from support.builders import NOW

START = timedelta(seconds=60)


def cluster(replicas=2, **fields):
    return SimulatedCluster(builders.group(replicas=replicas, **fields), builders.text(), SimulatedPace(START), NOW)


def passed(found):
    """A pass of the operator, and the controllers after it."""
    world = found.world()
    found.perform(world, plan.decide(world, found.now))
    found.controllers()


def pods(found):
    return [pod for each in found.world().revisions for pod in each.pods]


def test_a_deployment_gets_its_pods_and_they_start_when_it_is_time():
    found = cluster()
    passed(found)
    assert [pod.containers_ready for pod in pods(found)] == [False, False]
    assert found.happens_at() == NOW + START
    found.nodes()
    assert [pod.containers_ready for pod in pods(found)] == [False, False]
    found.now += START
    found.nodes()
    assert [pod.containers_ready for pod in pods(found)] == [True, True]
    assert found.happens_at() is None


def started(replicas=2):
    found = cluster(replicas)
    passed(found)
    found.now += START
    found.nodes()
    for _ in range(3):
        passed(found)
    return found


def test_a_warm_up_succeeds_and_the_route_is_followed():
    (revision,) = started().world().revisions
    assert (revision.ready, revision.weight, revision.routed) == (2, 100, {0, 1})


def mark(found, pod, slot):
    world = found.world()
    found.perform(world, plan.Plan(pod_updates=(PodUpdate(pod.name, pod.uid, slot, found.now),)))


def test_a_draining_replica_idles_and_goes_first_and_is_gone_after_its_prestop():
    found = started(3)
    leaves = next(pod for pod in pods(found) if pod.slot == 1)
    mark(found, leaves, 1)
    assert [pod.in_flight for pod in pods(found) if pod.name == leaves.name] == [1]
    later = found.world(found.now + IDLE_AFTER)
    assert [pod.in_flight for pod in later.revisions[0].pods if pod.name == leaves.name] == [0]
    found.change(builders.group(replicas=2), builders.text())
    asked = plan.decide(found.world(), found.now).objects
    fewer = {**asked[0], "spec": {**asked[0]["spec"], "replicas": 2}}
    found.perform(found.world(), plan.Plan(objects=(fewer,)))
    assert found.controllers()
    assert [pod.name for pod in pods(found) if pod.deleting] == [leaves.name]
    assert found.happens_at() == found.now + TERMINATION
    found.now += TERMINATION
    found.nodes()
    assert len(pods(found)) == 2


def test_another_template_surges_by_one_and_an_old_pod_goes_only_for_a_warm_one():
    found = started()
    found.change(builders.group(replicas=2, engine={"image": "another"}), builders.text())
    passed(found)
    assert len(pods(found)) == 3
    assert not any(pod.deleting for pod in pods(found))
    assert not found.controllers()


def test_a_deleted_object_is_gone():
    found = started()
    (name,) = (name for kind, name in found.world().live if kind == "PodDisruptionBudget")
    found.perform(found.world(), plan.Plan(deletions=(Deletion("PodDisruptionBudget", name, ""),)))
    assert "PodDisruptionBudget" not in {kind for kind, _ in found.world().live}


def test_what_is_applied_again_keeps_its_birth():
    found = started()
    found.now += timedelta(hours=1)
    found.change(builders.group(replicas=3), builders.text())
    passed(found)
    (revision,) = found.world().revisions
    assert (revision.replicas, revision.created) == (3, f"{NOW:%Y-%m-%dT%H:%M:%SZ}")


def test_a_step_is_sampled_a_while_after_its_weight_stands_and_only_the_new_prompt_can_be_worse():
    found = SimulatedCluster(builders.group(replicas=2), builders.text(), SimulatedPace(START, worse=True), NOW)
    passed(found)
    found.now += START
    found.nodes()
    for _ in range(5):
        passed(found)
    assert found.world().traffic is None
    steps = {"steps": [{"weight": 5}]}
    found.change(builders.group(replicas=2, rollout=steps), builders.text("another"))
    passed(found)
    found.now += START
    found.nodes()
    for _ in range(5):
        passed(found)
    old, new = short(builders.FINGERPRINT), short(builders.text("another").fingerprint)
    assert found.world().group.status["revisions"][0]["phase"] == RevisionPhase.CANARY
    early = found.world(found.now + SAMPLED_AFTER - timedelta(seconds=1)).traffic
    assert early.samples[new][StratumKey()].requests == 0
    samples = found.world(found.now + SAMPLED_AFTER).traffic.samples
    assert samples[old][StratumKey()].errors == 0
    assert samples[new][StratumKey()].errors == samples[new][StratumKey()].requests > 0


SEVERAL = {"nodes": 2, "args": ["-tp=2"]}


def test_a_leader_worker_set_removes_the_leader_with_the_highest_ordinal():
    found = cluster(3, engine=SEVERAL)
    for _ in range(4):
        passed(found)
        found.now += START
        found.nodes()
    assert sorted(pod.ordinal for pod in pods(found)) == [0, 1, 2]
    assert {key[0] for key in found.world().live} >= {"LeaderWorkerSet", "PodDisruptionBudget"}
    found.change(builders.group(replicas=2, engine=SEVERAL), builders.text())
    for _ in range(4):
        passed(found)
        found.now += IDLE_AFTER + TERMINATION
        found.nodes()
    assert sorted(pod.ordinal for pod in pods(found)) == [0, 1]
