from datetime import UTC, datetime

from promptgroup_local.cluster.nodeagent import node

NOW = datetime(2026, 11, 21, 12, 0, 0, 5, tzinfo=UTC)


def made(gpus: int) -> dict:
    return node.node("local-0", "127.64.0.1", release="v1.36.3", gpus=gpus, pods=200, now=NOW)


def test_a_node_is_ready_and_offers_its_gpus() -> None:
    status = made(8)["status"]
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    assert status["capacity"] == status["allocatable"]
    assert status["capacity"]["nvidia.com/gpu"] == "8"
    assert status["nodeInfo"]["kubeletVersion"] == "v1.36.3-local"


def test_a_node_without_gpus_does_not_speak_of_them() -> None:
    assert "nvidia.com/gpu" not in made(0)["status"]["capacity"]


def test_a_lease_tells_when_the_node_was_heard_of() -> None:
    lease = node.lease("local-0", NOW)
    assert lease["metadata"] == {"name": "local-0", "namespace": "kube-node-lease"}
    assert lease["spec"]["renewTime"] == "2026-11-21T12:00:00.000005Z"
