"""Images of a local cluster: an argv prefix with a place for the pod's address.

`{pod_ip}` stands for the pod's address: a program that listens on every address would collide with its neighbours,
since all pods share the machine's loopback.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from promptgroup_local.cluster.nodeagent.addresses import PODS

Images = Mapping[str, Sequence[str]]
"""Repository of an image (no tag, no digest) → argv prefix."""

BUILT_IN: Images = {
    "promptgroup.invalid/operator": (sys.executable, "-m", "promptgroup_operator"),
    "promptgroup.invalid/router": (
        *(sys.executable, "-m", "promptgroup_router"),
        *("--host", "{pod_ip}"),
        f"--allow-networks={PODS}",
    ),
    # no TLS client: without the CA certificates that aiohttp reads when imported, it starts with an eighth less CPU
    "promptgroup.invalid/standin-engine": (
        *("/usr/bin/env", "SSL_CERT_FILE=/dev/null"),
        *(sys.executable, "-m", "promptgroup_local.engine", "--host", "{pod_ip}"),
    ),
    "python": (sys.executable,),
    "busybox": ("/usr/bin/env",),
}
"""Images that every local cluster can run."""


def load(path: Path | None) -> Images:
    """The images that a YAML or JSON file names: `{"repository": ["program", "argument", ...]}`.

    Raises:
        ValueError: the file is not such a mapping; the message names the entry.
    """
    if path is None:
        return {}
    try:
        result = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--images {path}: {error}") from error
    if not isinstance(result, dict):
        raise ValueError(f'--images {path}: expected a mapping, {{"repository": ["program", "argument"]}}')  # noqa: TRY004 - a file, no argument
    for name, argv in result.items():
        if not isinstance(name, str) or repository(name) != name:
            raise ValueError(f"--images {path}: {name} is no repository: give it without tag and digest")
        if not (isinstance(argv, list) and argv and all(isinstance(item, str) for item in argv)):
            raise ValueError(f"--images {path}: {name} is no list of strings: give the program and its arguments")
    return result


def repository(image: str) -> str:
    """The image's name without tag and digest."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def argv(images: Images, image: str, pod_ip: str) -> list[str] | None:
    """The image's entrypoint for a pod; None when there is no such image."""
    prefix = images.get(repository(image))
    return [part.replace("{pod_ip}", pod_ip) for part in prefix] if prefix is not None else None
