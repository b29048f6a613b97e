"""Of nodes only those are kept that are about to go, and only a change of that is news."""

from promptgroup_operator.base.settings import LEAVING_TAINTS
from promptgroup_operator.observe.leaving_nodes import LeavingNodes

SPOT = "aws-node-termination-handler/spot-itn"


def node(*keys, heartbeat="1"):
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    return {"metadata": {"name": "n1", "resourceVersion": heartbeat}, "spec": {"taints": taints}}


def test_a_notice_is_news_once_and_so_is_its_end():
    nodes = LeavingNodes(LEAVING_TAINTS)
    assert not nodes.put(node())
    assert not nodes.put(node("node.kubernetes.io/unschedulable"))
    assert nodes.put(node(SPOT))
    assert nodes.taint("n1") == SPOT
    assert not nodes.put(node(SPOT, heartbeat="2"))
    assert nodes.put(node(heartbeat="3"))
    assert nodes.taint("n1") == ""


def test_a_deleted_node_is_forgotten():
    nodes = LeavingNodes(LEAVING_TAINTS)
    nodes.put(node(SPOT))
    assert nodes.put(node(SPOT), deleted=True)
    assert nodes.taint("n1") == ""
    assert not nodes.put(node(), deleted=True)
