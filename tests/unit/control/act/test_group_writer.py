from datetime import timedelta

import pytest

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.world.effects import ConditionChange, Event, PodUpdate
from promptgroup_operator.world.engine_facts import Measured, decode
from promptgroup_operator.world.warming import Outcome, WarmReason
from support.builders import NOW, group
from support.writtenkube import KEY, Cluster, Server, deliver, pod


def test_a_pods_proof_and_its_condition_are_one_write(cluster, server, stores):
    deliver(server, stores, pod("p"))
    before = server.version
    change = ConditionChange("p", "uid", Outcome(WarmReason.PROVEN, "in cache", Measured(prefix_tokens=96)))
    cluster.set_condition("chat", change, warm=True, now=NOW, container="containerd://1")
    assert server.version == before + 1
    (found,) = stores["Pod"].list_at(KEY)
    assert found["metadata"]["annotations"]["promptgroup.dev/warmed-container"] == "containerd://1"
    assert found["status"]["conditions"][0]["status"] == "True"


@pytest.mark.parametrize(("again", "rate"), [("containerd://1", 9_800), ("containerd://2", 0)], ids=["same", "another"])
def test_a_second_warm_up_of_a_container_keeps_what_the_first_measured(cluster, server, stores, again, rate):
    deliver(server, stores, pod("p"))
    for container, found in (("containerd://1", Measured(400_000, 9_800, 96)), (again, Measured(400_000, 0, 96))):
        change = ConditionChange("p", "uid", Outcome(WarmReason.PROVEN, "in cache", found))
        cluster.set_condition("chat", change, warm=True, now=NOW, container=container)
    (kept,) = stores["Pod"].list_at(KEY)
    assert decode(kept["metadata"]["annotations"]["promptgroup.dev/engine"]) == Measured(400_000, rate, 96)


def test_of_a_warm_up_that_recorded_nothing_nothing_is_known(cluster, server, stores):
    deliver(server, stores, pod("p"))
    for found in (Measured(), Measured(400_000, 9_800, 96)):
        change = ConditionChange("p", "uid", Outcome(WarmReason.PROVEN, "in cache", found))
        cluster.set_condition("chat", change, warm=True, now=NOW, container="containerd://1")
        (kept,) = stores["Pod"].list_at(KEY)
        kept["metadata"]["annotations"].pop("promptgroup.dev/engine", None)
    assert cluster._measured("chat", "p", "containerd://1") == Measured()


def test_a_pods_slot_and_its_shut_gate_are_one_write(cluster, server, stores):
    deliver(server, stores, pod("p"))
    before = server.version
    change = ConditionChange("p", "uid", Outcome(WarmReason.STARTING, "waits"))
    cluster.update_pod("chat", PodUpdate("p", "uid", 1, None), change, NOW)
    assert server.version == before + 1
    assert stores["Pod"].list_at(KEY)[0]["status"]["conditions"][0]["reason"] == "WaitingForContainers"


def test_a_pod_that_is_gone_when_it_is_marked_is_no_error(cluster, server, stores, monkeypatch):
    def refuse(*_, **__):
        raise ClusterError("gone", status=404)

    monkeypatch.setattr(server, "request", refuse)
    cluster.update_pod("chat", PodUpdate("p", "uid", 1, None), None, NOW)
    assert stores["Pod"].list_at(KEY) == []


def test_an_event_that_is_repeated_is_counted(server, stores):
    posted = []

    class Recording(Server):
        def request(self, method, path, body=None, content_type=None, query=None, *, limit=None):
            posted.append((body["count"], body["firstTimestamp"], body["lastTimestamp"]))
            return {}

    cluster = Cluster(Recording(), Term(until=float("inf")), stores)
    for seconds in (0, 1, 2, 90):
        cluster.emit_event(group(), Event("Normal", "Warm", "all"), NOW + timedelta(seconds=seconds))
    assert [count for count, _, _ in posted] == [1, 4]
    assert posted[1][1] == posted[0][2]
