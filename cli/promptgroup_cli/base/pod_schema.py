"""Finds the faults for which an API server would refuse a pod template: unknown names, and values of a wrong type.

The types are those of the Kubernetes client library's models, so that a cluster of a later version may accept names
that are refused here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from promptgroup_operator.plan import diff

MOST = 5
"""Faults that are listed."""

_QUANTITIES = frozenset({"limits", "requests", "overhead", "sizeLimit", "divisor"})
"""Fields whose texts may be numbers (k8s.io/apimachinery/pkg/api/resource)."""
_ENUMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("V1Container", "imagePullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("V1Container", "restartPolicy"): ("Always", "Never", "OnFailure"),
    ("V1Container", "terminationMessagePolicy"): ("File", "FallbackToLogsOnError"),
    ("V1ContainerPort", "protocol"): ("TCP", "UDP", "SCTP"),
    ("V1HTTPGetAction", "scheme"): ("HTTP", "HTTPS"),
    ("V1HostPathVolumeSource", "type"): (
        *("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"),
    ),
    ("V1NodeSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    ("V1LabelSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist"),
    ("V1PodSecurityContext", "fsGroupChangePolicy"): ("Always", "OnRootMismatch"),
    ("V1PodSpec", "dnsPolicy"): ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    ("V1PodSpec", "preemptionPolicy"): ("Never", "PreemptLowerPriority"),
    ("V1PodSpec", "restartPolicy"): ("Always",),  # of a Deployment's pods
    ("V1SeccompProfile", "type"): ("RuntimeDefault", "Unconfined", "Localhost"),
    ("V1Toleration", "effect"): ("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("V1Toleration", "operator"): ("", "Exists", "Equal", "Lt", "Gt"),
    ("V1TopologySpreadConstraint", "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
}
"""Fields of texts that are one of a few: model and field → the texts."""
_WORDS = {"str": "a text", "int": "a whole number", "bool": "true or false"}


def faults(template: Mapping[str, Any]) -> list[str]:
    """Return the faults of a pod template, at most MOST; each names the field, the value and the way out.

    Args:
        template: the template as it is applied, without directives of a patch.
    """
    result: list[str] = []
    for item in _of_model("", template, "V1PodTemplateSpec"):
        if len(result) == MOST:
            return [*result, "and more"]
        result.append(item)
    return result


def _of_model(path: str, value: object, name: str) -> Iterator[str]:
    from kubernetes import client  # noqa: PLC0415 - a second, for those alone who have a template

    if not isinstance(value, Mapping):
        yield f"{path} is {_kind(value)}, and must be a map of fields"
        return
    model = getattr(client, name)
    types = {model.attribute_map[field]: kind for field, kind in model.openapi_types.items()}
    for field, child in value.items():
        place = f"{path}.{field}" if path else str(field)
        if field not in types:
            near = get_close_matches(str(field), types, 1)
            yield f"{place} is not a field that Kubernetes knows" + (f": did you mean {near[0]}?" if near else "")
        elif child is not None:
            yield from _of_type(place, child, types[field], str(field), name)


def _of_type(path: str, value: object, kind: str, field: str, model: str) -> Iterator[str]:
    inner = re.fullmatch(r"(List|Dict)\[(?:str, )?(\w+)\]", kind)
    if inner is None:
        yield from _of_one(path, value, kind, field, model)
    elif inner[1] == "List":
        if not isinstance(value, list):
            yield f"{path} is {_kind(value)}, and must be a list: put '- ' before its items"
            return
        for index, child in enumerate(value):
            yield from _of_one(f"{path}[{_name(child, index)}]", child, inner[2], field, model)
    elif not isinstance(value, Mapping):
        yield f"{path} is {_kind(value)}, and must be a map of texts"
    else:
        for key, child in value.items():
            if child is None:
                continue
            yield from _of_one(f"{path}[{key}]", child, inner[2], field, model)


def _of_one(path: str, value: object, kind: str, field: str, model: str) -> Iterator[str]:
    if kind not in ("str", "int", "bool", "object", "datetime"):
        yield from _of_model(path, value, kind)
        return
    if kind == "object":  # of a template: a port, by number or by name
        fits = isinstance(value, int | str) and not isinstance(value, bool)
    elif field in _QUANTITIES:
        fits = isinstance(value, str | int | float) and not isinstance(value, bool)
    elif kind == "int":
        fits = isinstance(value, int) and not isinstance(value, bool)
    else:
        fits = isinstance(value, bool if kind == "bool" else str)
    if not fits:
        word = _WORDS.get(kind, "a text")
        way = f": write {json.dumps(_yaml(value))}" if word == "a text" and isinstance(value, int | float) else ""
        yield f"{path} is {_kind(value)}, and must be {word}{way}"
    elif field in _QUANTITIES and diff.quantity(value) is None:
        yield f"{path} is {json.dumps(value)[:60]}, and must be a number such as 2, 500m or 64Gi"
    elif (allowed := _ENUMS.get((model, field))) is not None and value not in allowed:
        yield f"{path} is {json.dumps(value)[:60]}, and must be one of {', '.join(filter(None, allowed))}"


def _name(item: object, index: int) -> str:
    """Return the name of an item of a list, or else its index."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else str(index)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return f"{_yaml(value)} without quotes"
    return "a text" if isinstance(value, str) else "a list" if isinstance(value, list) else "a map"


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
