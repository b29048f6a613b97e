"""The phases of a start, and what starts took, as the status of a group tells them."""

from typing import Any

import pytest

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import group
from support.operators import operator_process

pytestmark = [pytest.mark.integration]

NAME = "starts"
LOADING = 3
"""Seconds in which the stand-in engine does not answer yet."""


def status_of(kube: Kubectl) -> dict[str, Any]:
    return dict((kube.get("promptgroup", NAME) or {}).get("status", {}))


def phases(kube: Kubectl) -> list[str]:
    return [replica["phase"] for replica in status_of(kube).get("startingReplicas", [])]


def test_a_start_is_told_while_it_lasts_and_its_times_outlive_the_operator(
    cluster: LocalCluster, kube: Kubectl, no_operator: None
) -> None:
    made = group(NAME, replicas=1, env={"STANDIN_STARTUP_SECONDS": str(LOADING)})
    elsewhere = {"kubernetes.io/hostname": "nowhere"}
    made["spec"]["engine"]["template"]["spec"]["nodeSelector"] = elsewhere
    with operator_process(cluster, kube.namespace):
        kube.apply(made)
        wait_for(lambda: phases(kube) == ["Pending"] or None, "a replica without a node", lambda: status_of(kube))
        pending = status_of(kube)
        assert pending["starting"] == "1 Pending"
        assert pending["startingReplicas"][0]["since"].endswith("Z")
        assert "start" not in pending
        del made["spec"]["engine"]["template"]["spec"]["nodeSelector"]
        kube.apply(made)
        wait_for(lambda: "Loading" in phases(kube) or None, "an engine that loads", lambda: status_of(kube))
        kube.wait_warm(NAME, "1/1")
        wait_for(lambda: "starting" not in status_of(kube) or None, "nothing to start", lambda: status_of(kube))
        first = status_of(kube)["start"]
        assert first["latestSeconds"] == [first["seconds"]]
        assert first["phaseSeconds"]["loading"] >= LOADING - 1
        shown = kube.run("get", "promptgroup", NAME, "-o", "wide").stdout
        assert "STARTING" in shown
    with operator_process(cluster, kube.namespace):
        kube.scale("promptgroup", NAME, 2)
        kube.wait_warm(NAME, "2/2")
        second = wait_for(
            lambda: (len((found := status_of(kube)["start"])["latestSeconds"]) == 2 and found) or None, "another start"
        )
        assert second["latestSeconds"][0] == first["seconds"]
        assert second["finishedAt"] > first["finishedAt"]
