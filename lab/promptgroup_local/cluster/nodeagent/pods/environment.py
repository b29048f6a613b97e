"""The environment and command line of a container: references, `$(VAR)`, mount paths. Does no I/O."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Objects = Mapping[tuple[str, str], Mapping[str, str] | None]
"""(kind, name) → data of a ConfigMap or Secret as text, None when there is no such object."""


class Unresolved(Exception):  # noqa: N818 - becomes the waiting reason CreateContainerConfigError
    """A reference to something that is not there; the message names it."""


_VARIABLE = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(VAR)` replaced where VAR is defined, `$$` by `$`: the container spec's own syntax."""

    def value(match: re.Match[str]) -> str:
        name = match[2]
        return "$" if name is None else variables.get(name, match[0])

    return _VARIABLE.sub(value, text)


def field(pod: Mapping[str, Any], path: str, pod_ip: str) -> str:
    """A fieldRef's value.

    Raises:
        Unresolved: the path names nothing that a pod can refer to.
    """
    metadata = pod["metadata"]
    if path in {"metadata.labels", "metadata.annotations"}:
        entries = metadata.get(path.removeprefix("metadata."), {})
        return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(entries.items()))
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if keyed is not None:
        return str(metadata.get(keyed[1], {}).get(keyed[2], ""))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": "127.0.0.1",
    }
    if path not in values:
        raise Unresolved(f"fieldRef {path} is not known")
    return str(values[path])


def references(containers: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """(kind, name) of every ConfigMap and Secret that the containers' environment refers to."""
    result = set()
    for container in containers:
        for source in container.get("envFrom", []):
            for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if key in source:
                    result.add((kind, source[key]["name"]))
        for variable in container.get("env", []):
            for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if key in variable.get("valueFrom", {}):
                    result.add((kind, variable["valueFrom"][key]["name"]))
    return result


def build(
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    *,
    pod_ip: str,
    objects: Objects,
    base: Mapping[str, str],
    mounts: Mapping[str, str],
) -> dict[str, str]:
    """The container's variables over `base`; mount paths in its own ones are replaced.

    Raises:
        Unresolved: a reference that is not optional names nothing.
    """
    variables = dict(base)
    for source in container.get("envFrom", []):
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in source:
                data = objects.get((kind, source[key]["name"]))
                if data is None and not source[key].get("optional"):
                    raise Unresolved(f'{kind} "{source[key]["name"]}" not found')
                prefix = source.get("prefix", "")
                variables.update({prefix + name: relocate(value, mounts) for name, value in (data or {}).items()})
    for variable in container.get("env", []):
        value = _value(variable, pod, pod_ip, objects)
        if value is not None:
            variables[variable["name"]] = expand(relocate(value, mounts), variables)
    return variables


def _value(variable: Mapping[str, Any], pod: Mapping[str, Any], pod_ip: str, objects: Objects) -> str | None:
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], pod_ip)
    for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if key in source:
            ref = source[key]
            data = objects.get((kind, ref["name"]))
            if data is not None and ref["key"] in data:
                return data[ref["key"]]
            if ref.get("optional"):
                return None
            raise Unresolved(f'key {ref["key"]} of {kind} "{ref["name"]}" not found')
    raise Unresolved(f"valueFrom of {variable['name']} is not supported here")


def relocate(text: str, mounts: Mapping[str, str]) -> str:
    """Mount paths at the start of a path in `text` replaced by where the volume lies, the longest that fits."""
    if not mounts:
        return text
    paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({paths})(?=$|[/:,;'\"\s])", lambda match: mounts[match[1]], text)
