"""What the world of a pass is made of."""

from copy import deepcopy

import pytest

from promptgroup_contract import names
from promptgroup_operator.plan import plan
from support.builders import NOW
from support.passrun import KEY, NAME, a_group, a_warm_pod

LOST = {
    "removed": lambda labels: labels.pop(names.LABEL_GROUP),
    "changed": lambda labels: labels.update({names.LABEL_GROUP: "other"}),
    "all removed": lambda labels: labels.clear(),
}


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("spec", [{"replicas": 2}, {"replicas": None, "sizing": {"minReplicas": 1, "maxReplicas": 9}}])
@pytest.mark.parametrize("later", [{}, {"prompt": {"system": "Another prompt."}}], ids=["the target", "an earlier one"])
def test_a_deployment_that_lost_its_label_serves_on_and_gets_it_back(cluster, reconciler, spec, later, how):
    spec = {key: value for key, value in spec.items() if value is not None}
    cluster.put(a_group(**spec))
    for number in range(2):
        cluster.put(a_warm_pod(f"p{number}", number))
    cluster.tell()
    cluster.apply(plan.decide(reconciler.observe(KEY, NOW), NOW))
    cluster.put(a_group(**spec | later))
    cluster.tell()
    before = plan.decide(reconciler.observe(KEY, NOW), NOW)
    assert before.route["spec"]["revisions"][0]["weight"] > 0

    standing = deepcopy(cluster.objects["Deployment", NAME])
    LOST[how](standing["metadata"]["labels"])
    cluster.put(standing)
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    after = plan.decide(world, NOW)
    assert (after.objects, after.route, after.deletions) == (before.objects, before.route, before.deletions)
    assert (after.pod_updates, after.size and after.size.value) == (
        before.pod_updates,
        before.size and before.size.value,
    )
    assert NAME in [each["metadata"]["name"] for each in plan.unwritten(world, after) if each["kind"] == "Deployment"]


def test_a_deployment_whose_fingerprint_was_edited_keeps_its_replicas_and_gets_it_back(cluster, reconciler):
    for number in range(2):
        cluster.put(a_warm_pod(f"p{number}", number))
    cluster.tell()
    cluster.apply(plan.decide(reconciler.observe(KEY, NOW), NOW))
    cluster.tell()
    before = plan.decide(reconciler.observe(KEY, NOW), NOW)
    edited = deepcopy(cluster.objects["Deployment", NAME])
    edited["metadata"]["annotations"][names.ANNOTATION_FINGERPRINT] = "0" * 32
    cluster.put(edited)
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    after = plan.decide(world, NOW)
    assert (after.objects, after.route, after.pod_updates) == (before.objects, before.route, before.pod_updates)
    assert [each["kind"] for each in plan.unwritten(world, after)] == ["Deployment"]


def test_a_deployment_of_somebody_else_is_no_revision_whatever_its_name(cluster, reconciler):
    cluster.objects["Deployment", NAME]["metadata"]["labels"].clear()
    cluster.objects["Deployment", NAME]["metadata"]["ownerReferences"][0]["uid"] = "another"
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    assert world.revisions == ()
    assert plan.decide(world, NOW).objects == ()
