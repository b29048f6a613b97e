"""Merges pod templates as Kubernetes does: a strategic merge patch for the parts of a pod template.

Maps merge key by key; null removes a key, as `$patch: delete` in a map under this key does. Lists of objects merge by
their key (containers by name, volume mounts by path, ...), according to `patchMergeKey` in the core API; every other
list is replaced whole. `$patch: delete` removes an item of a merged list, and `$patch: replace` replaces a map.
https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from collections.abc import Iterator
from typing import Any, Final

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "readinessGates": "conditionType",
    "resourceClaims": "name",
}
"""Field → merge key. `readinessGates` has none in the core API; here a template adds gates to the operator's own."""

_DIRECTIVE: Final = "$patch"
"""Field of a patch with a directive instead of a value: `delete` (this item) or `replace` (do not merge)."""


def merge(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with `patch` merged over it; neither is changed.

    Raises:
        ValueError: an item of a list that merges by key has no text or number there; the message names both.
    """
    if patch.get(_DIRECTIVE) == "replace":
        base = {}
    merged = dict(base)
    for field, value in patch.items():
        if field == _DIRECTIVE:
            continue
        if value is None or (isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"):
            merged.pop(field, None)
        else:
            merged[field] = _merge_values(field, merged.get(field), value)
    return merged


def _merge_values(field: str, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return merge(old if isinstance(old, dict) else {}, new)
    if isinstance(new, list) and field in MERGE_KEYS:
        return _merge_lists(field, old if isinstance(old, list) else [], new)
    return new


def _merge_lists(field: str, base: list[Any], patch: list[Any]) -> list[Any]:
    key = MERGE_KEYS[field]
    merged = {item[key]: item for item in base}
    for item in patch:
        name = item.get(key) if isinstance(item, dict) else None
        named = isinstance(name, str | int | float)
        if not named:
            raise ValueError(f"an item of {field} has no {key}, which names the item that it is merged with")
        if item.get(_DIRECTIVE) == "delete":
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name, {}), item)
    return list(merged.values())


def nulls(patch: object, path: str = "") -> Iterator[str]:
    """Yield the paths of a patch that are null, which some clients send and others drop."""
    if patch is None:
        yield path
    elif isinstance(patch, dict):
        for field, value in patch.items():
            yield from nulls(value, f"{path}.{field}" if path else str(field))
    elif isinstance(patch, list):
        for index, item in enumerate(patch):
            name = item.get("name") if isinstance(item, dict) else None
            yield from nulls(item, f"{path}[{name if isinstance(name, str) else index}]")
