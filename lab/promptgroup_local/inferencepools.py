"""InferencePools of the Inference Extension in a cluster without a gateway: a CRD, and the status that gateways write.

The schema has the fields and bounds that the operator's objects meet; upstream's has more of them, and descriptions.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from promptgroup_local.kubectl import Kubectl

NAME = "inferencepools.inference.networking.k8s.io"


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    return made | ({"required": list(required)} if required else {})


def _list(items: dict[str, Any], most: int, **extra: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most, **extra}


TEXT = {"type": "string"}
PORT = _object(("number",), number={"type": "integer", "minimum": 1, "maximum": 65535})
PICKER = _object(
    ("name",),
    group={**TEXT, "default": ""},
    kind={**TEXT, "default": "Service"},
    name={**TEXT, "minLength": 1},
    port=PORT,
    failureMode={**TEXT, "enum": ["FailOpen", "FailClose"], "default": "FailClose"},
)
LABELS = {"type": "object", "additionalProperties": {**TEXT, "maxLength": 63}, "minProperties": 1}
CONDITION = _object(
    ("type", "status", "reason", "message", "lastTransitionTime"),
    **dict.fromkeys(("type", "status", "reason", "message"), TEXT),
    lastTransitionTime={**TEXT, "format": "date-time"},
    observedGeneration={"type": "integer"},
)
PARENT = _object(
    ("parentRef",),
    parentRef=_object(("name",), **dict.fromkeys(("group", "kind", "name", "namespace"), TEXT)),
    controllerName=TEXT,
    conditions=_list(CONDITION, 8, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
)
SCHEMA = _object(
    ("spec",),
    spec=_object(
        ("selector", "targetPorts", "endpointPickerRef"),
        selector=_object(("matchLabels",), matchLabels=LABELS),
        targetPorts=_list(PORT, 8, minItems=1, **{"x-kubernetes-list-type": "atomic"}),
        appProtocol=TEXT,
        endpointPickerRef=PICKER,
    ),
    status=_object(parents=_list(PARENT, 32, **{"x-kubernetes-list-type": "atomic"})),
)
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": NAME,
        # the API server wants it of every group below k8s.io
        "annotations": {"api-approved.kubernetes.io": "unapproved, a copy for tests"},
    },
    "spec": {
        "group": "inference.networking.k8s.io",
        "scope": "Namespaced",
        "names": {
            "plural": "inferencepools",
            "singular": "inferencepool",
            "kind": "InferencePool",
            "listKind": "InferencePoolList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}


@contextmanager
def inference_pools(kube: Kubectl) -> Iterator[None]:
    """Install InferencePools in the cluster; they and their CRD are removed at the end."""
    kube.apply(CRD)
    kube.run("wait", f"crd/{NAME}", "--for=condition=Established", "--timeout=60s")
    yield
    kube.delete("crd", NAME, "--ignore-not-found", "--wait=true")


def told_by_a_gateway(kube: Kubectl, pool: str, *, accepted: bool = True, resolved: bool = True) -> None:
    """Write the status of a pool as the controller of a gateway does."""
    generation = (kube.get("inferencepool", pool) or {})["metadata"]["generation"]
    conditions = [
        {
            "type": kind,
            "status": str(holds),
            "reason": kind if holds else "Refused",
            "message": f"{kind} is {holds}",
            "lastTransitionTime": "2026-11-03T12:00:00Z",
            "observedGeneration": generation,
        }
        for kind, holds in {"Accepted": accepted, "ResolvedRefs": resolved}.items()
    ]
    parent = {"parentRef": {"kind": "Gateway", "name": "public"}, "controllerName": "example.com/gateways"}
    body = json.dumps({"status": {"parents": [parent | {"conditions": conditions}]}})
    kube.run("patch", "inferencepool", pool, "--subresource=status", "--type=merge", f"-p={body}")
