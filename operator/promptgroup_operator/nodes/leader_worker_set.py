"""Builds and reads LeaderWorkerSets, the workload of a revision whose replicas have several nodes.

A LeaderWorkerSet (sigs.k8s.io/lws, API v1) makes one StatefulSet of leaders, and for each leader a StatefulSet of its
workers. It differs from a Deployment in three points:

| point   | LeaderWorkerSet                                                                                        |
|---------|--------------------------------------------------------------------------------------------------------|
| removal | it removes the leader with the highest ordinal, so the operator drains that one (`slot_order`)         |
| update  | it replaces leaders in place, the highest ordinal first; a surge replica has the next higher ordinal    |
| loss    | after the deletion of a pod, or the restart of a container, it replaces all pods of that replica        |

All other modules read it as a Deployment: `as_deployment` adds the fields that a Deployment has.
"""

from collections.abc import Mapping
from typing import Any

from promptgroup_operator.api.prompt_group import EngineSpec
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.nodes.engine_args import is_several
from promptgroup_operator.nodes.worker_template import worker_template
from promptgroup_operator.world.snapshot import LEADER_WORKER_SET, Manifest, Problem

API_VERSION = "leaderworkerset.x-k8s.io/v1"
LABEL_SET = "leaderworkerset.sigs.k8s.io/name"
"""Label with the name of the LeaderWorkerSet. Its controller sets it on all pods, leaders and workers."""

LOST_NODE_SECONDS = 30
"""Time in seconds after which pods on a node that does not respond are deleted. Kubernetes' default is 300 seconds, in
which a leader would wait for a worker that is gone."""
_LOST_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

MISSING = Problem(
    "NoLeaderWorkerSets",
    "spec.engine.nodes is above 1, and the cluster has no LeaderWorkerSets of leaderworkerset.x-k8s.io/v1: install the "
    "LeaderWorkerSet controller (https://lws.sigs.k8s.io), or remove spec.engine.nodes",
)
"""The reason why a group with several nodes cannot be served by a cluster that lacks the kind."""


def of_deployment(
    deployment: Manifest, speech: Dialect, engine: EngineSpec, standing: Manifest | None
) -> dict[str, Any]:
    """Return the LeaderWorkerSet that a group with several nodes has in place of a Deployment.

    Args:
        deployment: the Deployment that it would have with one node; its pod template is the leader's.
        speech: the engine's dialect.
        engine: of the group's spec, with `nodes`.
        standing: the current LeaderWorkerSet, if its replicas keep their template; else None.
    """
    spec = deployment["spec"]
    leader, size = spec["template"], engine.nodes or 1
    if standing is None:
        leader = {**leader, "spec": {**leader["spec"], "tolerations": _tolerations(leader["spec"])}}
        worker = worker_template(leader, speech, engine)
    else:
        worker, size = standing["spec"]["leaderWorkerTemplate"]["workerTemplate"], nodes_of(standing)
    return {
        **deployment,
        "apiVersion": API_VERSION,
        "kind": LEADER_WORKER_SET,
        "spec": {
            "replicas": spec["replicas"],
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": spec["strategy"]["rollingUpdate"],
            },
            "leaderWorkerTemplate": {
                "size": size,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }


def _tolerations(spec: Mapping[str, Any]) -> list[Any]:
    """Return a pod's tolerations, with those of lost nodes unless it has its own."""
    own = [toleration for toleration in spec.get("tolerations") or [] if isinstance(toleration, Mapping)]
    general = any(not toleration.get("key") for toleration in own)
    keys = {toleration.get("key") for toleration in own}
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_SECONDS}
        for key in _LOST_NODE
        if not general and key not in keys
    ]
    return [*own, *added]


def as_deployment(manifest: Manifest) -> Manifest:
    """Return a LeaderWorkerSet with the fields in which a Deployment has its template, strategy and ready replicas."""
    spec, status = manifest["spec"], manifest.get("status") or {}
    template = spec["leaderWorkerTemplate"]
    rolling = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
    return {
        **manifest,
        "spec": {
            **spec,
            "template": template.get("leaderTemplate") or template["workerTemplate"],
            "strategy": {"rollingUpdate": rolling},
        },
        "status": {**status, "availableReplicas": status.get("readyReplicas", 0)},
    }


def nodes_of(manifest: Manifest) -> int:
    """Return the number of nodes of a LeaderWorkerSet's replicas."""
    return int(manifest["spec"]["leaderWorkerTemplate"].get("size", 1))


def budget_selector(engine: EngineSpec, name: str, selector: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels of the pods whose eviction takes a replica: with several nodes, its workers as well.

    Args:
        engine: of the group's spec.
        name: of the revision's workload.
        selector: the labels of the pods that serve.
    """
    return {LABEL_SET: name} if is_several(engine) else selector
