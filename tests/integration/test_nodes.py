"""Replicas of two nodes: the controller of LeaderWorkerSets makes their pods, and the leader of each is the replica."""

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Task
from support.groups import PROMPTS, group
from support.life import cold, unharmed
from support.load import Load, Seen, endless
from support.lws import leader_worker_sets
from support.operators import SYSTEM
from support.routed import routed, routers_know

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SPACE, GROUP, NODES, REPLICAS = "nodes", "large", 2, 2
SET, INDEX = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/worker-index"


def several(letter: str = "a", *, replicas: int = REPLICAS, surge: int = 1, **env: str) -> dict[str, Any]:
    args = ("--tensor-parallel-size=2",)
    rollout = {"maxSurge": surge, "retireAfter": "1s", "retireDeadline": "5s"}
    wanted = group(GROUP, PROMPTS[letter], replicas=replicas, args=args, env=env, rollout=rollout)
    wanted["spec"]["engine"]["nodes"] = NODES
    return wanted


def pods(kube: Kubectl, selector: str) -> dict[str, str]:
    """Name → uid of the pods that do not terminate."""
    living = [pod["metadata"] for pod in kube.list("pods", selector) if "deletionTimestamp" not in pod["metadata"]]
    return {metadata["name"]: metadata["uid"] for metadata in living}


def leaders(kube: Kubectl) -> dict[str, str]:
    return pods(kube, f"{names.LABEL_GROUP}={GROUP}")


def workers(kube: Kubectl) -> dict[str, str]:
    return pods(kube, f"{SET},{INDEX}!=0")


def slots(kube: Kubectl) -> list[str]:
    """States of the slots in the route, of all revisions."""
    route = kube.get("promptroute", GROUP) or {"spec": {"revisions": []}}
    return [slot["state"] for revision in route["spec"]["revisions"] for slot in revision.get("slots", [])]


def settled(kube: Kubectl, replicas: int = REPLICAS) -> None:
    """Wait until there are so many whole replicas, all warm and routed."""
    whole = ["Ready"] * replicas
    wait_for(
        lambda: (
            True
            if (len(leaders(kube)), len(workers(kube)), slots(kube)) == (replicas, replicas * (NODES - 1), whole)
            else None
        ),
        f"{replicas} whole replicas",
        lambda: (leaders(kube), workers(kube), slots(kube), kube.get("promptgroup", GROUP)),
        seconds=180,
    )
    kube.wait_warm(GROUP, f"{replicas}/{replicas}")


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """The group, whose kind comes after it."""
    with routed(cluster, SPACE) as kube:
        kube.apply(several())
        missing = kube.wait_condition(GROUP, "Ready", "False", "NoLeaderWorkerSets")
        assert "install the LeaderWorkerSet controller" in missing["message"]
        with leader_worker_sets(cluster, tmp_path_factory.mktemp("lws")):
            settled(kube)
            routers_know(kube, GROUP)
            yield kube
            kube.delete("promptgroup", GROUP)
            wait_for(lambda: None if pods(kube, SET) else True, "the pods to go", lambda: pods(kube, SET))


@contextmanager
def changed(kube: Kubectl, cluster: LocalCluster, letter: str) -> Iterator[Seen]:
    """A change under load of a prompt."""
    target = Target([lab.router_url(kube)], "tiny", groups={GROUP: GROUP})
    met_cold = lambda: cold(cluster.folder, SPACE, GROUP)  # noqa: E731
    with (
        Load(target, endless(Task(GROUP, PROMPTS[letter])), met_cold, at_once=4, pause=0.2) as load,
        load.watched() as seen,
    ):
        yield seen


def replaced(kube: Kubectl, before: dict[str, str], wanted: dict[str, Any] | None = None) -> None:
    """Apply a change, and wait until other leaders have come in place of all."""
    if wanted is not None:
        kube.apply(wanted)
    wait_for(
        lambda: None if set(leaders(kube).values()) & set(before.values()) else True,
        "other leaders",
        lambda: (leaders(kube), kube.get("promptgroup", GROUP)),
        seconds=180,
    )
    settled(kube)


def test_the_leader_is_the_replica_and_workers_serve_nothing(kube: Kubectl) -> None:
    revision = (kube.get("promptgroup", GROUP) or {})["status"]["revision"]
    assert set(leaders(kube)) == {f"{GROUP}-{revision}-{ordinal}" for ordinal in range(REPLICAS)}
    assert set(workers(kube)) == {f"{GROUP}-{revision}-{ordinal}-1" for ordinal in range(REPLICAS)}
    for pod in kube.list("pods", f"{SET},{INDEX}!=0"):
        assert names.LABEL_GROUP not in pod["metadata"]["labels"]
        assert pod["spec"]["containers"][0]["args"][-1] == "--headless"
    budget = kube.get("poddisruptionbudget", f"{GROUP}-{revision}") or {}
    assert budget["spec"]["selector"]["matchLabels"] == {SET: f"{GROUP}-{revision}"}


def test_a_group_does_not_change_to_one_node(kube: Kubectl) -> None:
    one = several()
    one["spec"]["engine"]["nodes"] = 1
    assert "engine.nodes cannot change from one node to several or back" in kube.apply(one, check=False).stderr


OPERATOR = f"--as=system:serviceaccount:{SYSTEM}:promptgroup-operator"
SPEC = {"containers": [{"name": "engine", "image": "x"}]}


def written_by_the_operator(kube: Kubectl, leader: dict[str, Any], worker: dict[str, Any], **parts: Any) -> str:
    """What the API server says against a LeaderWorkerSet with these fields of its pods; empty when it takes it."""
    owner = {"apiVersion": "promptgroup.dev/v1alpha1", "kind": "PromptGroup", "name": "other", "uid": "u-1"}
    labels = {names.LABEL_GROUP: "other"}
    templates = {
        "leaderTemplate": {"metadata": {"labels": labels}, "spec": SPEC | leader},
        "workerTemplate": {"spec": SPEC | worker},
    }
    made = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "other-1", "ownerReferences": [owner | {"controller": True}]},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, **templates, **parts}},
    }
    done = kube.run("create", "--dry-run=server", OPERATOR, "-f", "-", stdin=json.dumps(made), check=False)
    return "" if done.returncode == 0 else done.stderr


def test_the_policy_of_the_operator_holds_for_leaders_and_workers(kube: Kubectl) -> None:
    assert written_by_the_operator(kube, {}, {}) == ""
    harms: dict[str, dict[str, Any]] = {
        "no network": {"hostNetwork": True},
        "no service account": {"serviceAccountName": "admin"},
        "no privilege": {"containers": [SPEC["containers"][0] | {"securityContext": {"privileged": True}}]},
        "folders of the host": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
    }
    for words, harm in harms.items():
        assert words in written_by_the_operator(kube, harm, {})
        assert words in written_by_the_operator(kube, {}, harm)
    claim = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    assert "no volumes" in written_by_the_operator(kube, {}, {}, volumeClaimTemplates=[claim])


def test_a_group_grows_and_shrinks_by_whole_replicas(kube: Kubectl, cluster: LocalCluster) -> None:
    with changed(kube, cluster, "a") as seen:
        before = leaders(kube)
        kube.apply(several(replicas=3))
        settled(kube, 3)
        kube.apply(several(replicas=2))
        settled(kube, 2)
        assert leaders(kube) == before  # the one with the highest ordinal has gone
    assert unharmed(seen)


def test_a_lost_worker_is_a_lost_replica(kube: Kubectl, cluster: LocalCluster) -> None:
    before, lost = leaders(kube), min(workers(kube))
    leader = lost.removesuffix("-1")
    with changed(kube, cluster, "a") as seen:
        cluster.kill_pod(SPACE, lost)
        wait_for(lambda: True if slots(kube).count("Ready") < REPLICAS else None, "its slot to leave the route")
        replaced(kube, {leader: before[leader]})
        assert {name: uid for name, uid in leaders(kube).items() if name != leader}.items() <= before.items()
    assert unharmed(seen)


@pytest.mark.parametrize(("surge", "letter"), [(1, "b"), (0, "a")])
def test_a_prompt_is_released(kube: Kubectl, cluster: LocalCluster, surge: int, letter: str) -> None:
    old = "a" if letter == "b" else "b"
    kube.apply(several(old, surge=surge))
    with changed(kube, cluster, old) as seen:
        replaced(kube, leaders(kube), several(letter, surge=surge))
    assert unharmed(seen)


@pytest.mark.parametrize("surge", [1, 0])
def test_an_engine_is_changed(kube: Kubectl, cluster: LocalCluster, surge: int) -> None:
    with changed(kube, cluster, "a") as seen:
        replaced(kube, leaders(kube), several(surge=surge, CHANGE=str(surge)))
    assert unharmed(seen)


DOOMED, SPARE = "doomed", "spare"
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchExpressions": [{"key": INDEX, "operator": "Exists"}]},
                "matchLabelKeys": [SET, "leaderworkerset.sigs.k8s.io/group-index"],
            }
        ]
    }
}
"""The pods of a replica are on different nodes."""


@contextmanager
def another_node(cluster: LocalCluster, name: str) -> Iterator[None]:
    """A node that prefers no pods, so that the leader is elsewhere."""
    kube = cluster.kubectl()
    cluster.start_node(name)
    try:
        wait_for(lambda: kube.get("node", name), f"node {name}")
        kube.run("taint", "node", name, "own=:PreferNoSchedule")
        yield
    finally:
        with contextlib.suppress(KeyError):  # it was stopped before
            cluster.stop_node(name)
        kube.delete("node", name)


def test_the_node_of_a_worker_is_lost(kube: Kubectl, cluster: LocalCluster) -> None:
    spread = several("c", replicas=1)
    spread["metadata"]["name"] = "spread"
    spread["spec"]["engine"]["template"]["spec"]["affinity"] = APART
    selector = f"{names.LABEL_GROUP}=spread"
    with another_node(cluster, DOOMED):
        kube.apply(spread)
        kube.wait_warm("spread", "1/1")
        before = pods(kube, selector)
        (worker,) = kube.list("pods", f"{names.LABEL_WORKER}=spread")
        assert worker["spec"]["nodeName"] == DOOMED
        with another_node(cluster, SPARE):
            cluster.stop_node(DOOMED)
            wait_for(lambda: None if pods(kube, selector) else True, "the leader to leave", seconds=240)
            kube.run("taint", "node", DOOMED, "node.kubernetes.io/out-of-service=:NoExecute")
            wait_for(
                lambda: True if pods(kube, selector).keys() == before.keys() else None, "another leader", seconds=120
            )
            kube.wait_warm("spread", "1/1")
            (worker,) = kube.list("pods", f"{names.LABEL_WORKER}=spread")
            assert worker["spec"]["nodeName"] == SPARE
            kube.delete("promptgroup", "spread")
            of_it = f"{names.LABEL_WORKER}=spread"
            wait_for(lambda: None if pods(kube, selector) or pods(kube, of_it) else True, "the pods to go")
