"""The parts of a pod that KV tiers need, and what engines' tiers have in common. Does no I/O.

Stores know a model by its name or path alone, so that KV of another revision or another release of the engine would be
taken for right. Where a store has a namespace it is `namespace(spec)`: engines with other settings find nothing of it.
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
"""Where an engine finds those settings that it takes from a file alone."""
CONFIG_ANNOTATION = "promptgroup.dev/engine-config"
"""Annotation of a pod that has the content of that file; a template may set it."""

_TAG = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the pod's own
"""Shared memory of a pod."""
FOLDER = "/var/cache/promptgroup"
"""Where an engine's volume for KV is mounted."""

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
    """Content of CONFIG_FILE behind the dialect's own."""
    claim: str = ""
    """PersistentVolumeClaim to mount at FOLDER; empty for none."""
    shared_memory: str = ""
    """Size of /dev/shm, where a container has 64 MiB unless it is told; empty for that."""
    left_behind: str = ""
    """Files that an engine which was killed leaves in shared memory, for a shell; they are removed before it starts."""
    awaits: tuple[str, str] | None = None
    """Host and port that must answer before the engine starts."""

    @property
    def gate(self) -> list[str]:
        """Command of the init container."""
        return ["python3", "-c", _GATE_PROGRAM, *(self.awaits or ())]


NOTHING = PodParts()


@dataclass(frozen=True, slots=True)
class ManualTier:
    """A tier that a user's own settings of an engine set up, without `spec.cache`."""

    setting: str
    """The flag or setting that does it."""
    size: int = 0
    """Bytes of main memory that it takes in each replica; 0 where the settings do not say."""


def namespace(spec: PromptGroupSpec) -> str:
    """Return the name under which a store keeps the KV of these engines: a digest of all that the spec says of them.

    A change of any of them begins anew in the store, for nothing tells that the KV in it would still be right.
    """
    engine = spec.engine
    whole = [engine.type, spec.model, engine.image, engine.args, engine.template]
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return f"pg-{digest[:12]}"


def compact_json(value: Any) -> str:
    """Return JSON without spaces, as an argument of a command line."""
    return json.dumps(value, separators=(",", ":"))


def protocol(pool: PoolSpec) -> str:
    """Return the name that Mooncake has for a pool's transport."""
    return "rdma" if pool.transport is Transport.RDMA else "tcp"


def split_address(address: str) -> tuple[str, str]:
    """Return the host and the port of `host:port`."""
    host, _, port = address.rpartition(":")
    return host, port


def too_old(image: str, program: str, repository: str, since: tuple[int, int]) -> str:
    """Return that an image is of a release that is too old for tiers; empty if it is not, or if its tag names none."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    release = _TAG.match(tag) if name.endswith(repository) else None
    if release is None or (int(release[1]), int(release[2])) >= since:
        return ""
    first = ".".join(map(str, since))
    return f"spec.cache needs {program} {first} or newer, and spec.engine.image is {image}"
