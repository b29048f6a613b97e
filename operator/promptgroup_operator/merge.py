"""Pod templates merged in the Kubernetes way: a strategic merge patch for the parts a pod template has.

Maps merge key by key, null removes a key. Lists of objects merge by their key (containers by name, volume mounts by
path, ...), as the `patchMergeKey` of the core API says; every other list is replaced whole.
https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from typing import Any

_MERGE_KEYS = {
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


def merge(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`base` with `patch` merged over it; neither is changed."""
    merged = dict(base)
    for field, value in patch.items():
        old = merged.get(field)
        if value is None:
            merged.pop(field, None)
        elif isinstance(value, dict) and isinstance(old, dict):
            merged[field] = merge(old, value)
        elif isinstance(value, list) and isinstance(old, list) and field in _MERGE_KEYS:
            merged[field] = _merge_lists(old, value, _MERGE_KEYS[field])
        else:
            merged[field] = value
    return merged


def _merge_lists(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = {item[key]: item for item in base}
    for item in patch:
        name = item.get(key)
        merged[name] = merge(merged[name], item) if name in merged else item
    return list(merged.values())
