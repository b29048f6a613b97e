"""Replicas drain when their node is about to go, as long as others can serve."""

from dataclasses import replace

import pytest

from promptgroup_contract.table import SlotState
from promptgroup_operator.leaving_nodes.evacuation import mark
from promptgroup_operator.plan.plan import decide
from support.builders import NOW, cold, group, pod, revision, world

SPOT = "aws-node-termination-handler/spot-itn"


def replicas(count, *going, **fields):
    return [pod(f"p{slot}", slot, node_taint=SPOT if slot in going else "", **fields) for slot in range(count)]


def evacuated(*pods):
    (marked,) = mark([revision(pods=pods)])
    return {pod.name for pod in marked.pods if pod.evacuated}


@pytest.mark.parametrize(
    ("count", "going", "drain"),
    [
        (4, (), set()),
        (4, (1,), {"p1"}),
        (4, (1, 2), {"p1", "p2"}),
        (4, (0, 1, 2), set()),
        (2, (1,), {"p1"}),
        (1, (0,), set()),
    ],
)
def test_as_many_stay_as_go_or_none_drains(count, going, drain):
    assert evacuated(*replicas(count, *going)) == drain


def test_replicas_that_do_not_serve_do_not_count_as_those_that_stay():
    assert evacuated(pod("going", 0, node_taint=SPOT), cold("p1")) == set()
    assert evacuated(pod("going", 0, node_taint=SPOT), pod("p1", 1, settling=True)) == set()
    assert evacuated(pod("going", 0, node_taint=SPOT), pod("p1", 1, deleting=True)) == set()


def test_revisions_are_looked_at_by_themselves():
    first, second = mark([revision(pods=replicas(1, 0)), revision("another", pods=replicas(2, 0))])
    assert [pod.evacuated for pod in first.pods] == [False]
    assert [pod.evacuated for pod in second.pods] == [True, False]


def plan_of(pods, size=3, **fields):
    return decide(world(revisions=[revision(pods=pods, replicas=size, **fields)], of=group(replicas=size)), NOW)


def slots(plan):
    (listed,) = plan.route["spec"]["revisions"]
    return {slot["slot"]: (slot.get("pod"), slot["state"]) for slot in listed["slots"]}


def test_its_slot_is_free_at_once_and_no_replica_is_removed():
    plan = plan_of(replicas(3, 1))
    assert slots(plan)[1] == (None, SlotState.ABSENT.value)
    assert {slot: pod for slot, (pod, _) in slots(plan).items() if pod} == {0: "p0", 2: "p2"}
    (deployment,) = [item for item in plan.objects if item["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 3


def test_it_is_marked_once_no_route_leads_to_it():
    route = plan_of(replicas(3)).route
    standing = revision(pods=replicas(3, 1))
    live = {("PromptRoute", "support"): route}
    (before,) = decide(world(revisions=[standing], of=group(replicas=3), live=live), NOW).pod_updates
    assert (before.pod, before.slot, before.draining_since) == ("p1", None, None)
    gone = [replace(item, slot=None) if item.name == "p1" else item for item in replicas(3, 1)]
    (after,) = plan_of(gone).pod_updates
    assert (after.pod, after.slot, after.draining_since) == ("p1", None, NOW)
    assert after.deletion_cost < -1000


def test_a_replica_on_another_node_takes_the_slot():
    fresh = pod("fresh", None)
    plan = plan_of([*replicas(3, 1), fresh])
    assert slots(plan)[1] == ("fresh", SlotState.READY.value)


def test_a_notice_that_is_taken_back_gives_the_replica_its_slot_again():
    drained = pod("p1", None, draining_since=NOW)
    pods = [pod("p0", 0), drained, pod("p2", 2)]
    assert slots(plan_of(pods))[1] == ("p1", SlotState.READY.value)
    (update,) = plan_of(pods).pod_updates
    assert (update.slot, update.draining_since) == (1, None)


def test_a_group_that_shrinks_gives_up_the_replica_that_goes():
    gone = [replace(item, slot=None, draining_since=NOW) if item.name == "p1" else item for item in replicas(3, 1)]
    before = revision(pods=gone, replicas=3, slots={0: SlotState.READY, 2: SlotState.READY})
    plan = decide(world(revisions=[before], of=group(replicas=2)), NOW)
    assert set(slots(plan)) == {0, 2}


def test_the_status_says_why_a_replica_is_missing():
    plan = plan_of([replace(item, slot=None) if item.name == "p1" else item for item in replicas(3, 1)])
    conditions = {item["type"]: item for item in plan.status["conditions"]}
    assert (conditions["PrefixWarm"]["status"], conditions["PrefixWarm"]["reason"]) == ("False", "NodeLeaving")
    assert "p1" in conditions["PrefixWarm"]["message"]
    assert SPOT in conditions["PrefixWarm"]["message"]
    assert conditions["Degraded"]["status"] == "False"
    assert plan.status["warm"] == "2/3"
