"""Selects the fields of a watched object that the operator caches: those that decisions read, with a bounded size.

Any user who may create objects in a namespace determines their size: an annotation may have 256 KiB, an object
1.5 MiB, and such a user may set a group's label. Therefore no foreign labels and annotations are cached; of a pod only
its state; of a Deployment or DaemonSet its template as JSON, which takes a fifth of the memory of the parsed template.
Long parts are not cached: the prompt and the template of a PromptGroup, the template of a workload. A pass reads these
through a cache of bounded size, and the digest of a template shows if the copy there is current.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.world.pod_ranks import FLAGS, container_ranks
from promptgroup_operator.world.snapshot import CONTAINER, Manifest

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's annotation: the whole object as it was applied."""

WHOLE_CHARACTERS = 16_384
"""Maximum size of a PromptGroup's spec, or a workload's template, that is cached, in characters of JSON."""
WHOLE_VALUES = 1_000
"""Maximum number of values in it: an empty list takes thirty times more memory than its characters of JSON."""
ITEMS = 32
"""Maximum number of cached items of a list or a map that has few items in an ordinary object."""
LONGEST = 4_096
"""Maximum number of cached characters of an annotation or a message. The operator's own texts are shorter."""

TAIL = 512
"""Maximum number of cached characters of the termination message of a container: its end."""

GPU = "/gpu"
"""End of the names of resources that are GPUs, as in `nvidia.com/gpu`."""

LONGEST_RESOURCE = 317
"""Maximum length of a resource's name in Kubernetes: a domain, a slash and a name."""
LONGEST_COUNT = 32
"""Maximum length of a resource's quantity, by the schema."""

SHORTENED = "shortened"
"""Key of a PromptGroup that lacks most of its spec, and of a workload that lacks its template."""
WRITTEN = "written"
"""Key of a PromptGroup: digest of all parts that users write."""
TEMPLATE = "template"
"""Key of a workload: its template as JSON, unless that is long."""
DIGEST = "digest"
"""Key of a workload: digest of its template."""

_VERSIONS = {"Deployment": "apps/v1", "DaemonSet": "apps/v1", "PodDisruptionBudget": "policy/v1"}
"""Kind → apiVersion of the kinds whose items of lists lack it."""
_OWN = "promptgroup.dev/"
"""Prefix of the labels and annotations that the operator reads."""
_MANAGED_BY = "app.kubernetes.io/managed-by"
_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
_POD_CONDITIONS = frozenset(
    (
        *("ContainersReady", "PodReadyToStartContainers", "PodScheduled", "Ready"),
        *("DisruptionTarget", names.CONDITION_PREFIX_WARM),
    )
)


def trimmed(manifest: Manifest, kind: str) -> Manifest:
    """Return the cached fields of a watched object, with its kind and version, which items of lists lack.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not an object of Kubernetes.
    """
    identity = {"apiVersion": manifest.get("apiVersion", _VERSIONS.get(kind, "")), "kind": kind}
    return {**identity, "metadata": _metadata(manifest["metadata"]), **_PARTS.get(kind, _others)(manifest)}


def whole(manifest: Manifest, kind: str) -> Manifest:
    """Return a whole object with its kind, without managed fields and kubectl's last-applied annotation."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    if LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key != LAST_APPLIED}
    return {**manifest, "kind": kind, "metadata": metadata}


def with_template(deployment: Manifest, template: Mapping[str, Any] | None = None) -> Manifest:
    """Return a cached workload with its template: the given one, or else the cached one if there is one."""
    if template is None and TEMPLATE in deployment:
        template = json.loads(deployment[TEMPLATE])
    rest = {key: value for key, value in deployment.items() if key not in (TEMPLATE, DIGEST, SHORTENED)}
    return {**rest, "spec": {**deployment["spec"], "template": template}}


def digest(value: Any) -> str:
    """Return the digest of a template, or of any other JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _group(manifest: Manifest) -> dict[str, Any]:
    metadata, spec = manifest["metadata"], manifest.get("spec", {})
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    mine = [metadata.get("uid"), metadata.get("generation"), metadata.get("labels"), annotations]
    result = {"spec": spec, WRITTEN: digest(mine)} | _picked(manifest, ("status",))
    if not _is_long(json.dumps(spec)):
        return result
    summary = _picked(spec, ("model", "modelAliases", "replicas", "engineFrom"))
    engine = spec.get("engine", {})
    summary["engine"] = _picked(engine, ("type",))
    if gpus := _gpus(engine):
        summary["engine"]["resources"] = {"limits": gpus}
    if sizing := spec.get("sizing"):
        summary["sizing"] = _picked(sizing, ("minReplicas", "maxReplicas"))
    return {**result, "spec": summary, SHORTENED: True}


def _gpus(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of an engine's GPUs, from which the cost of an hour is computed."""
    limits = (engine.get("resources") or {}).get("limits") or {}
    gpus = [(name, count) for name, count in limits.items() if name.endswith(GPU) and len(name) <= LONGEST_RESOURCE]
    return {name: count for name, count in gpus[:ITEMS] if isinstance(count, int) or len(count) <= LONGEST_COUNT}


def _deployment(manifest: Manifest) -> dict[str, Any]:
    return _workload(manifest, ("observedGeneration", "availableReplicas"))


def _daemon_set(manifest: Manifest) -> dict[str, Any]:
    counts = ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")
    return _workload(manifest, ("observedGeneration", *counts))


def _workload(manifest: Manifest, counts: Iterable[str]) -> dict[str, Any]:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    text = json.dumps(spec.get("template"))
    result = {
        "spec": {key: _short(value) for key, value in spec.items() if key != "template"},
        "status": {
            **_picked(status, counts),
            "conditions": _each(status.get("conditions"), _CONDITION),
        },
        DIGEST: digest(spec.get("template")),
    }
    return result | ({SHORTENED: True} if _is_long(text) else {TEMPLATE: text.encode()})


def _budget(manifest: Manifest) -> dict[str, Any]:
    return {"spec": {key: _short(value) for key, value in (manifest.get("spec") or {}).items()}}


def _pod(manifest: Manifest) -> dict[str, Any]:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    conditions = (condition for condition in status.get("conditions") or () if condition.get("type") in _POD_CONDITIONS)
    engine = [container for container in spec.get("containers") or () if container.get("name") == CONTAINER]
    return {
        "spec": {**_picked(spec, ("nodeName",)), "containers": list(map(_engine, engine))},
        "status": {
            **_picked(status, ("phase", "podIP")),
            "conditions": _each(conditions, _CONDITION),
            "initContainerStatuses": _containers(status.get("initContainerStatuses")),
            "containerStatuses": _containers(status.get("containerStatuses")),
        },
    }


def _engine(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cached fields of the engine's container: its port, and the argument that sets its ranks."""
    ports = [port for port in container.get("ports") or () if port.get("name") == "http"]
    ranks = container_ranks(container)
    args = {"args": [f"{FLAGS[0]}={ranks}"]} if ranks > 1 else {}
    return {"name": CONTAINER, "ports": ports[:ITEMS], **args}


def _containers(result: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the states of the engine's container, and of other containers that wait or were restarted."""
    document: list[dict[str, Any]] = []
    for item in result or ():
        state, name, last = item.get("state") or {}, item.get("name"), (item.get("lastState") or {}).get("terminated")
        if name == CONTAINER or (("waiting" in state or last) and len(document) < ITEMS):
            now = {
                kind: _picked(state[kind] or {}, ("reason", "message", "startedAt"))
                for kind in ("running", "waiting")
                if kind in state
            }
            part = _picked(item, ("name", "containerID", "ready", "restartCount")) | {"state": now}
            if last:
                ended = _picked(last, ("exitCode", "reason", "startedAt", "finishedAt"))
                part["lastState"] = {"terminated": {**ended, "message": str(last.get("message") or "")[-TAIL:]}}
            document.append(part)
    return document


def _others(manifest: Manifest) -> dict[str, Any]:
    """Return the spec and status of a kind whose schema limits their size."""
    return _picked(manifest, ("spec", "status"))


_PARTS = {
    "PromptGroup": _group,
    "Deployment": _deployment,
    "DaemonSet": _daemon_set,
    "PodDisruptionBudget": _budget,
    "Pod": _pod,
}


def _metadata(result: Mapping[str, Any]) -> dict[str, Any]:
    picked = _picked(result, _METADATA)
    for field in ("labels", "annotations"):
        if field in result:
            picked[field] = _own(result[field] or {})
    if "ownerReferences" in result:
        picked["ownerReferences"] = _each(result["ownerReferences"], _OWNER)
    return picked


def _own(result: Mapping[str, Any]) -> dict[str, str]:
    own = {
        key: value
        for key, value in result.items()
        if (key.startswith(_OWN) or key == _MANAGED_BY) and isinstance(value, str) and len(value) <= LONGEST
    }
    return own if len(own) <= ITEMS else {}


def _each(result: Iterable[Mapping[str, Any]] | None, keys: Iterable[str]) -> list[dict[str, Any]]:
    return [_picked(item, keys) for item in list(result or ())[:ITEMS]]


def _picked(result: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return some of the fields; a long text is truncated."""
    picked = {key: result[key] for key in keys if key in result}
    return {key: value[:LONGEST] if isinstance(value, str) else value for key, value in picked.items()}


def _short(value: Any) -> Any:
    """Return a value that is as short as the operator's own ones; else None, which never equals a desired value."""
    return value if isinstance(value, int) or len(json.dumps(value)) <= LONGEST else None


def _is_long(text: str) -> bool:
    values = text.count(",") + text.count("[") + text.count("{")  # also counts those in strings
    return len(text) > WHOLE_CHARACTERS or values > WHOLE_VALUES


def host_of(group: Manifest) -> str:
    """Return the name of the group whose replicas serve a PromptGroup; empty for one with an engine of its own."""
    source = group.get("spec", {}).get("engineFrom")
    return str(source.get("promptGroup", "")) if isinstance(source, Mapping) else ""
