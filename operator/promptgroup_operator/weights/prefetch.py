"""Decides on the DaemonSet by which nodes pull the weights before a replica starts there.

Each node on which a replica may run has a pod that mounts the image of the weights, uses the engine's image, and does
nothing. So the kubelet pulls both images, and removes neither while the pod exists. The pod requests no GPU: a node
could otherwise run a replica less.
"""

from collections.abc import Mapping
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.api.loaded_weights import PrefetchStatus
from promptgroup_operator.api.prompt_group import EngineSpec
from promptgroup_operator.weights import volume
from promptgroup_operator.world.snapshot import CONTAINER, Manifest

KIND = "DaemonSet"
_RESOURCES = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}}
_OWN_RESOURCES = "kubernetes.io/"
"""End of the domains whose resources are Kubernetes' own: any other resource with a domain is one of a device."""


def name(group: str) -> str:
    """Return the name of a group's DaemonSet."""
    return f"{group}-weights"


def is_wanted(engine: EngineSpec) -> bool:
    """Return True if nodes shall pull the weights before a replica starts there."""
    return engine.weights is not None and engine.weights.prefetch


def daemon_spec(group: str, engine: EngineSpec, template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a group's DaemonSet.

    Args:
        group: name of the group.
        engine: its engine.
        template: pod template of its replicas, as merged: nodes, tolerations, image and pull secrets are taken from it.
    """
    replica = template["spec"]
    container = _engine_container(replica)
    labels = {names.LABEL_WEIGHTS: group}  # and none of replicas, so that nothing takes them for replicas
    node_affinity = _part(replica, "affinity", "nodeAffinity")
    where = {key: replica[key] for key in ("nodeSelector", "imagePullSecrets", "securityContext") if replica.get(key)}
    policy = {"imagePullPolicy": container["imagePullPolicy"]} if "imagePullPolicy" in container else {}
    return {
        "selector": {"matchLabels": labels},
        # a node that pulls needs no other one
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                **where,
                **({"affinity": {"nodeAffinity": node_affinity}} if node_affinity else {}),
                "tolerations": _tolerations(replica, container),
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "hold",
                        "image": container.get("image", ""),
                        **policy,
                        "command": ["sleep", "infinity"],
                        "resources": _RESOURCES,
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": True,
                        },
                        "volumeMounts": [{"name": volume.VOLUME, "mountPath": volume.WEIGHTS_PATH, "readOnly": True}],
                    }
                ],
                "volumes": [volume.volume(engine)],
            },
        },
    }


def problem(engine: EngineSpec, template: Mapping[str, Any]) -> str:
    """Return why nodes cannot pull the weights ahead, with the remedy; empty without a problem.

    Args:
        engine: the spec.
        template: pod template of the replicas, as merged.
    """
    if not is_wanted(engine):
        return ""
    replica = template["spec"]
    devices = _devices(_engine_container(replica)) or (["a device"] if replica.get("resourceClaims") else [])
    required = _part(replica, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if not devices or replica.get("nodeSelector") or required:
        return ""
    return (
        f"spec.engine.weights.prefetch would have each node of the cluster pull the weights, since replicas need "
        f"{devices[0]} and spec.engine.template does not name the nodes that have it: set its spec.nodeSelector or a "
        "required node affinity"
    )


def status(live: Manifest | None) -> PrefetchStatus | None:
    """Return the number of nodes that have the weights; None while it is unknown.

    Args:
        live: the DaemonSet.
    """
    counts = live.get("status", {}) if live is not None else {}
    if live is None or counts.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return None
    current = min(counts.get("numberReady", 0), counts.get("updatedNumberScheduled", 0))
    return PrefetchStatus(nodes=counts.get("desiredNumberScheduled", 0), ready=current)


def _engine_container(replica: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((container for container in replica["containers"] if container.get("name") == CONTAINER), {})


def _part(value: Any, *keys: str) -> Mapping[str, Any]:
    """Return a mapping within a template, which may be malformed; empty if it is not there."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _devices(container: Mapping[str, Any]) -> list[str]:
    """Return the resources of an engine that only some nodes have, such as GPUs."""
    limits = _part(container, "resources", "limits")
    domains = {resource: resource.partition("/")[0] for resource in limits if "/" in resource}
    return [resource for resource, domain in domains.items() if not f"{domain}/".endswith(_OWN_RESOURCES)]


def _tolerations(replica: Mapping[str, Any], container: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tolerations of replicas, and for each device the one that Kubernetes adds to pods that request it.

    https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#extendedresourcetoleration
    """
    added = [{"key": device, "operator": "Exists", "effect": "NoSchedule"} for device in _devices(container)]
    own = replica.get("tolerations")
    return [*(own if isinstance(own, list) else ()), *added]
