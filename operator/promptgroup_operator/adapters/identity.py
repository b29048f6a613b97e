"""The identity of an adapter: the name and the path under which engines load it.

vLLM hashes both into the keys of its KV blocks, and nothing of the weights: an adapter that is replaced under the same
name and path is answered from the KV of the old one. So each source has a path of its own, and each path a name of its
own, which ends with a hash of both. A revision stores its identity beside its prompt, as a part of its fingerprint.
"""

import hashlib
import json
import re
from dataclasses import dataclass

from promptgroup_operator.api.loaded_weights import ADAPTER_NAME, LONGEST_ADAPTER_NAME, AdapterSource, AdapterSpec

MOUNT = "/var/lib/promptgroup/adapters"
"""Mount path of the volume with adapters in the engine's container."""

_HASH_DIGITS = 8
_SERVED = re.compile(rf"(?P<name>{ADAPTER_NAME})-[0-9a-f]{{{_HASH_DIGITS}}}")
_LONGEST_SERVED = LONGEST_ADAPTER_NAME + 1 + _HASH_DIGITS


@dataclass(frozen=True, slots=True)
class Adapter:
    """One revision of an adapter."""

    name: str
    """Name by which clients ask for it."""
    path: str
    """Folder in the engine's container, or repository of Hugging Face."""

    @property
    def served(self) -> str:
        """The name under which engines load it: the adapter's, and a hash of the name and the path."""
        digest = hashlib.sha256(f"{self.name}\0{self.path}".encode()).hexdigest()
        return f"{self.name}-{digest[:_HASH_DIGITS]}"


def of_spec(spec: AdapterSpec) -> Adapter:
    """Return the adapter that a spec declares."""
    return Adapter(spec.name, path(spec.source))


def to_spec(adapter: Adapter) -> AdapterSpec:
    """Return the spec that declares an adapter."""
    folder = adapter.path.removeprefix(f"{MOUNT}/")
    mounted = folder != adapter.path
    return AdapterSpec(
        name=adapter.name,
        source=AdapterSource(folder=folder) if mounted else AdapterSource(hugging_face=adapter.path),
    )


def path(source: AdapterSource) -> str:
    """Return the path that engines get of a source."""
    return f"{MOUNT}/{source.folder}" if source.folder is not None else source.hugging_face or ""


def encode(adapter: Adapter) -> str:
    """Return the adapter in the form in which the object with a revision's prompt stores it."""
    return json.dumps({"name": adapter.name, "path": adapter.path}, separators=(",", ":"))


def decode(text: str) -> Adapter | None:
    """Return the adapter of such a text; None without one. The fingerprint of the revision vouches for the text."""
    if not text:
        return None
    stored = json.loads(text)
    return Adapter(stored["name"], stored["path"])


def is_ours(served: str, root: str) -> bool:
    """Return True if a name in an engine's list of models is one that `Adapter.served` makes of the path there."""
    match = _SERVED.fullmatch(served) if len(served) <= _LONGEST_SERVED else None
    return match is not None and Adapter(match["name"], root).served == served
