"""Decides what the operator keeps of an object that it watches: what decisions read, and no more than a bounded size.

Anybody who may create objects in a namespace decides how large they are: an annotation may have 256 KiB, an object
1.5 MiB, and the label of a group is theirs to set. So of foreign labels and annotations nothing is kept, of a pod its
state, and of a Deployment its template as JSON, which takes a fifth of the memory of what it says. What is long is not
kept: the prompt and the template of a PromptGroup, the template of a Deployment. A pass reads these through a cache of
bounded size, and the digest of a template tells if the copy there is the one that stands.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.world.pod_ranks import FLAGS, pod_ranks
from promptgroup_operator.world.snapshot import CONTAINER, Manifest

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's annotation: the whole object as it was applied."""

WHOLE_CHARACTERS = 16_384
"""Most characters of JSON that are kept of a PromptGroup's spec, or of a Deployment's template."""
WHOLE_VALUES = 1_000
"""Most values in such a spec: an empty list takes thirty times more memory than its characters of JSON."""
ITEMS = 32
"""Most items that are kept of a list or a map of which an ordinary object has few."""
LONGEST = 4_096
"""Most characters that are kept of a text: of an annotation, or a message. What the operator writes is shorter."""

TAIL = 512
"""Most characters that are kept of the end of a container's log, as its status has it once it has ended."""

GPU = "/gpu"
"""End of the names of resources that are GPUs, as in `nvidia.com/gpu`."""

LONGEST_RESOURCE = 317
"""Most characters of a resource's name, by Kubernetes: a domain, a slash and a name."""
LONGEST_COUNT = 32
"""Most characters of its number, by the schema."""

SHORTENED = "shortened"
"""Key of a PromptGroup that lacks most of its spec, and of a Deployment that lacks its template."""
WRITTEN = "written"
"""Key of a PromptGroup: digest of all that users wrote of it."""
TEMPLATE = "template"
"""Key of a Deployment: its template as JSON, unless that is long."""
DIGEST = "digest"
"""Key of a Deployment: digest of its template."""

_VERSIONS = {"Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1"}
"""Kind → apiVersion of the kinds whose items of lists lack it."""
_OWN = "promptgroup.dev/"
"""Prefix of the labels and annotations that the operator reads."""
_MANAGED_BY = "app.kubernetes.io/managed-by"
_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
_POD_CONDITIONS = frozenset(("ContainersReady", "PodScheduled", "Ready", names.CONDITION_PREFIX_WARM))


def kept(manifest: Manifest, kind: str) -> Manifest:
    """Return what is kept of an object of a watched kind, with its kind and version, which items of lists lack.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not an object of Kubernetes.
    """
    identity = {"apiVersion": manifest.get("apiVersion", _VERSIONS.get(kind, "")), "kind": kind}
    return {**identity, "metadata": _metadata(manifest["metadata"]), **_PARTS.get(kind, _others)(manifest)}


def whole(manifest: Manifest, kind: str) -> Manifest:
    """Return all of an object, with its kind, but for what nobody reads of any."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    if LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key != LAST_APPLIED}
    return {**manifest, "kind": kind, "metadata": metadata}


def with_template(deployment: Manifest, template: Mapping[str, Any] | None = None) -> Manifest:
    """Return a Deployment that was kept, with its template: with the given one, or with its own if it has that."""
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
    """Return the limits of an engine's GPUs, by which an hour of it has a price."""
    limits = (engine.get("resources") or {}).get("limits") or {}
    gpus = [(name, count) for name, count in limits.items() if name.endswith(GPU) and len(name) <= LONGEST_RESOURCE]
    return {name: count for name, count in gpus[:ITEMS] if isinstance(count, int) or len(count) <= LONGEST_COUNT}


def _deployment(manifest: Manifest) -> dict[str, Any]:
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    text = json.dumps(spec.get("template"))
    result = {
        "spec": {key: _short(value) for key, value in spec.items() if key != "template"},
        "status": {
            **_picked(status, ("observedGeneration", "availableReplicas")),
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
        "spec": {"containers": list(map(_engine, engine))},
        "status": {
            **_picked(status, ("phase", "podIP")),
            "conditions": _each(conditions, _CONDITION),
            "initContainerStatuses": _containers(status.get("initContainerStatuses")),
            "containerStatuses": _containers(status.get("containerStatuses")),
        },
    }


def _engine(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of the engine's container: its port, and of its arguments the one that says its ranks."""
    ports = [port for port in container.get("ports") or () if port.get("name") == "http"]
    ranks = pod_ranks(container)
    args = {"args": [f"{FLAGS[0]}={ranks}"]} if ranks > 1 else {}
    return {"name": CONTAINER, "ports": ports[:ITEMS], **args}


def _containers(result: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the states of the engine's container, and of those that wait or were started again."""
    document: list[dict[str, Any]] = []
    for item in result or ():
        state, name, last = item.get("state") or {}, item.get("name"), (item.get("lastState") or {}).get("terminated")
        if name == CONTAINER or (("waiting" in state or last) and len(document) < ITEMS):
            now = {
                kind: _picked(state[kind] or {}, ("reason", "message"))
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
    """Return spec and status of a kind whose schema bounds them."""
    return _picked(manifest, ("spec", "status"))


_PARTS = {"PromptGroup": _group, "Deployment": _deployment, "PodDisruptionBudget": _budget, "Pod": _pod}


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
    """Return some of the fields; of a long text its beginning."""
    picked = {key: result[key] for key in keys if key in result}
    return {key: value[:LONGEST] if isinstance(value, str) else value for key, value in picked.items()}


def _short(value: Any) -> Any:
    """Return a value if it is as short as what the operator writes; None otherwise, which is not what it wants."""
    return value if isinstance(value, int) or len(json.dumps(value)) <= LONGEST else None


def _is_long(text: str) -> bool:
    values = text.count(",") + text.count("[") + text.count("{")  # more in texts, which are then taken for long
    return len(text) > WHOLE_CHARACTERS or values > WHOLE_VALUES


def host_of(group: Manifest) -> str:
    """Return the name of the group whose replicas serve a PromptGroup; empty for one with an engine of its own."""
    source = group.get("spec", {}).get("engineFrom")
    return str(source.get("promptGroup", "")) if isinstance(source, Mapping) else ""
