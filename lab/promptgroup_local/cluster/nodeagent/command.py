"""Makes the command of a container from its spec. Does no I/O."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from promptgroup_local.cluster import images
from promptgroup_local.cluster.nodeagent.pods.environment import expand, relocate


class ImageMissing(Exception):  # noqa: N818 - becomes the waiting reason ErrImagePull
    """No such image on this node; the message names those that there are."""


def unsupported(pod: Mapping[str, Any]) -> str:
    """Return the feature that the pod needs and this node lacks; empty when it can run the pod."""
    spec = pod["spec"]
    if any("restartPolicy" in container for container in spec.get("initContainers", [])):
        return "a sidecar (an init container with a restartPolicy) is not supported on a local node"
    for container in spec["containers"]:
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if "grpc" in container.get(kind, {}):
                return f"{kind} of container {container['name']}: grpc is not supported on a local node, use httpGet"
    return ""


def argv(
    container: Mapping[str, Any],
    known: images.Images,
    pod_ip: str,
    environment: Mapping[str, str],
    mounts: Mapping[str, str],
) -> list[str]:
    """Program and arguments: `command` replaces the image's own, as it replaces an ENTRYPOINT.

    Raises:
        ImageMissing: the node has no such image.
    """
    entrypoint = images.argv(known, container["image"], pod_ip)
    if entrypoint is None:
        raise ImageMissing(
            f'no image "{images.repository(container["image"])}" on this node; there are {", ".join(sorted(known))}: '
            f"name a program for it in the file of --images"
        )
    given = container.get("command")
    return [
        *(entrypoint if given is None else located(given, environment, mounts)),
        *located(container.get("args", []), environment, mounts),
    ]


def located(words: Sequence[str], environment: Mapping[str, str], mounts: Mapping[str, str]) -> list[str]:
    """Words of a command line with mount paths replaced and `$(VAR)` expanded; in the variables they are already."""
    return [expand(relocate(word, mounts), environment) for word in words]


def log_name(namespace: str, pod: str, container: str) -> str:
    """File of a container's output."""
    return f"{namespace}_{pod}_{container}.log"


def folder_name(metadata: Mapping[str, Any]) -> str:
    """Folder of a pod: its uid keeps a pod apart from an earlier one of the same name."""
    return re.sub(r"[^\w.-]", "_", f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}")
