"""The parts of a pod that KV tiers need, and the common code of all engines' tiers. Does no I/O.

Stores identify a model only by its name or path, so that KV of another model revision or engine release would be
accepted as valid. If a store supports namespaces, `namespace(spec)` is used: engines with other settings share none.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from promptgroup_operator.api.cache import PoolSpec, Transport
from promptgroup_operator.api.prompt_group import PromptGroupSpec

ADDRESS = "$(POD_IP)"
"""The pod's own address in an argument, as Kubernetes expands it: for engines that listen on the loopback by default.

Not 0.0.0.0, which a cluster of IPv6 alone cannot reach.
"""

CONFIG_FILE = "/etc/promptgroup/engine.yaml"
"""Path of the settings that an engine reads only from a file."""
CONFIG_ANNOTATION = "promptgroup.dev/engine-config"
"""Annotation of a pod that has the content of that file; a template may set it."""

_TAG = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the pod's own
"""Shared memory of a pod."""
FOLDER = "/var/cache/promptgroup"
"""Mount path of an engine's volume for KV."""

_GATE_PROGRAM = """\
import socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
while True:
    try:
        socket.create_connection((host, port), 5).close()
        break
    except OSError as error:
        print(f"the pool at {host}:{port} is away ({error}): the engine starts once it is there", flush=True)
        time.sleep(2)
"""


@dataclass(frozen=True, slots=True)
class PodParts:
    """The parts of a pod that tiers need."""

    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    """Content of CONFIG_FILE, appended to the dialect's own."""
    claim: str = ""
    """PersistentVolumeClaim to mount at FOLDER; empty for none."""
    shared_memory: str = ""
    """Size of /dev/shm; empty for the default of a container, 64 MiB."""
    left_behind: str = ""
    """Shell pattern of files that a killed engine leaves in shared memory; they are removed before it starts."""
    awaits: tuple[str, str] | None = None
    """Host and port that must accept connections before the engine starts."""

    @property
    def gate(self) -> list[str]:
        """Command of the init container."""
        return ["python3", "-c", _GATE_PROGRAM, *(self.awaits or ())]


NOTHING = PodParts()


@dataclass(frozen=True, slots=True)
class ManualTier:
    """A tier that a user's own engine settings configure, without `spec.cache`."""

    setting: str
    """The flag or setting that configures it."""
    size: int = 0
    """Bytes of main memory that it takes in each replica; 0 where the settings do not set it."""


def namespace(spec: PromptGroupSpec) -> str:
    """Return the namespace of these engines' KV in a store: a digest of all settings of the engines in the spec.

    After any change of them the store starts empty, since it is unknown if the stored KV would still be valid.
    """
    engine = spec.engine
    whole: list[Any] = [engine.type, spec.model, engine.image, engine.args, engine.template]
    if engine.weights is not None:
        whole.append(engine.weights.model_dump(mode="json", exclude={"pull_policy", "prefetch"}))
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return f"pg-{digest[:12]}"


def volume_mounts(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the volume mounts of a container, which may be malformed."""
    mounts = container.get("volumeMounts")
    return [mount for mount in mounts if isinstance(mount, Mapping)] if isinstance(mounts, list) else []


def compact_json(value: Any) -> str:
    """Return JSON without spaces, as an argument of a command line."""
    return json.dumps(value, separators=(",", ":"))


def protocol(pool: PoolSpec) -> str:
    """Return Mooncake's name of a pool's transport."""
    return "rdma" if pool.transport is Transport.RDMA else "tcp"


def split_address(address: str) -> tuple[str, str]:
    """Return the host and the port of `host:port`."""
    host, _, port = address.rpartition(":")
    return host, port


def too_old(image: str, program: str, repository: str, since: tuple[int, int]) -> str:
    """Return the problem that an image's release is too old for tiers; empty if it is not, or if it is unknown."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    release = _TAG.match(tag) if name.endswith(repository) else None
    if release is None or (int(release[1]), int(release[2])) >= since:
        return ""
    first = ".".join(map(str, since))
    return f"spec.cache needs {program} {first} or newer, and spec.engine.image is {image}"
