"""Volumes as folders of the pod: each lies in the pod's directory, whatever path it is mounted at."""

import base64
import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from promptgroup_local.cluster.nodeagent.api import Api, ApiError
from promptgroup_local.cluster.nodeagent.pods.environment import Unresolved, field

TOKEN_SECONDS = 3607
"""Lifetime of a projected token: the default of Kubernetes."""


async def read(api: Api, namespace: str, kind: str, name: str) -> dict[str, bytes] | None:
    """The data of a ConfigMap or Secret; None when there is none."""
    plural = "configmaps" if kind == "ConfigMap" else "secrets"
    try:
        raw = await api.request("GET", f"/api/v1/namespaces/{namespace}/{plural}/{name}")
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in (raw.get("data") or {}).items()}
    data = {key: value.encode() for key, value in (raw.get("data") or {}).items()}
    return data | {key: base64.b64decode(value) for key, value in (raw.get("binaryData") or {}).items()}


def mounts(container: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Mount path → where the volume lies."""
    return {
        mount["mountPath"].rstrip("/"): str(folder / mount["name"] / mount.get("subPath", "")).rstrip("/")
        for mount in container.get("volumeMounts", [])
    }


async def fill(api: Api, pod: Mapping[str, Any], pod_ip: str, folder: Path) -> None:
    """Write every volume of the pod.

    Raises:
        Unresolved: a volume refers to something that is not there.
    """
    for volume in pod["spec"].get("volumes", []):
        path = folder / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume or "image" in volume:  # images are programs here, and have no files
            continue
        if "projected" in volume:
            for source in volume["projected"].get("sources", []):
                await _project(api, pod, pod_ip, source, path)
        else:
            await _project(api, pod, pod_ip, _as_source(volume), path)


def _as_source(volume: Mapping[str, Any]) -> dict[str, Any]:
    """A plain volume in the form of a projected source."""
    if "configMap" in volume:
        return {"configMap": volume["configMap"]}
    if "secret" in volume:
        return {"secret": {**volume["secret"], "name": volume["secret"]["secretName"]}}
    if "downwardAPI" in volume:
        return {"downwardAPI": volume["downwardAPI"]}
    kinds = ", ".join(key for key in volume if key != "name")
    raise Unresolved(f"volume {volume['name']}: {kinds} is not supported here")


async def _project(api: Api, pod: Mapping[str, Any], pod_ip: str, source: Mapping[str, Any], path: Path) -> None:
    namespace = pod["metadata"]["namespace"]
    if "serviceAccountToken" in source:
        service_account_token = source["serviceAccountToken"]
        write(path / service_account_token["path"], (await token(api, pod, service_account_token)).encode())
    elif "downwardAPI" in source:
        for item in source["downwardAPI"].get("items", []):
            write(path / item["path"], field(pod, item["fieldRef"]["fieldPath"], pod_ip).encode())
    for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if key in source:
            service_account_token = source[key]
            data = await read(api, namespace, kind, service_account_token["name"])
            if data is None:
                if service_account_token.get("optional"):
                    continue
                raise Unresolved(f'{kind} "{service_account_token["name"]}" not found')
            items = {item["key"]: item["path"] for item in service_account_token.get("items", [])} or {
                name: name for name in data
            }
            for name, target in items.items():
                if name not in data:
                    raise Unresolved(f'key {name} of {kind} "{service_account_token["name"]}" not found')
                write(path / target, data[name])


async def token(api: Api, pod: Mapping[str, Any], desired: Mapping[str, Any]) -> str:
    """A token of the pod's service account, bound to the pod (TokenRequest)."""
    metadata = pod["metadata"]
    account = pod["spec"].get("serviceAccountName", "default")
    spec: dict[str, Any] = {
        "expirationSeconds": desired.get("expirationSeconds", TOKEN_SECONDS),
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]},
    }
    if "audience" in desired:
        spec["audiences"] = [desired["audience"]]
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
    answer = await api.request("POST", path, body)
    return str(answer["status"]["token"])


def token_sources(pod: Mapping[str, Any]) -> bool:
    """Return True if the pod mounts a service-account token, which must be renewed."""
    return any(
        "serviceAccountToken" in source
        for volume in pod["spec"].get("volumes", [])
        for source in volume.get("projected", {}).get("sources", [])
    )


RENEW = dt.timedelta(minutes=40)
"""Age at which a projected token is written anew: two thirds of its life."""


def write(path: Path, data: bytes) -> None:
    """Replace a file at once, so that a reader gets the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(data)
    fresh.rename(path)
