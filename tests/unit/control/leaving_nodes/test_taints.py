"""Taints that announce the end of a node, told apart from those that only keep new pods away."""

import pytest

from promptgroup_operator.base.settings import LEAVING_TAINTS
from promptgroup_operator.leaving_nodes.taints import leaving_taint

SPOT = "aws-node-termination-handler/spot-itn"


def node(*taints):
    return {"spec": {"taints": list(taints)}}


@pytest.mark.parametrize("key", LEAVING_TAINTS)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_node_with_a_notice_is_about_to_go(key, effect):
    assert (
        leaving_taint(node({"key": "other", "effect": effect}, {"key": key, "effect": effect}), LEAVING_TAINTS) == key
    )


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "karpenter.sh/disrupted",
        "DeletionCandidateOfClusterAutoscaler",
        "nvidia.com/gpu",
    ],
)
def test_a_node_that_only_takes_no_new_pods_is_not(key):
    assert leaving_taint(node({"key": key, "effect": "NoSchedule"}), LEAVING_TAINTS) == ""


def test_advice_to_the_scheduler_is_no_notice():
    assert leaving_taint(node({"key": SPOT, "effect": "PreferNoSchedule"}), LEAVING_TAINTS) == ""


@pytest.mark.parametrize("bare", [{}, {"spec": {}}, {"spec": {"taints": None}}, {"spec": {"unschedulable": True}}])
def test_a_node_without_taints_stays(bare):
    assert leaving_taint(bare, LEAVING_TAINTS) == ""


def test_other_keys_can_be_named():
    assert leaving_taint(node({"key": "example.com/maintenance", "effect": "NoSchedule"}), {"example.com/maintenance"})
