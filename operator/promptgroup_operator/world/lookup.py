"""Defines the index keys of watched objects, so that a pass reads no object of another group."""

from collections.abc import Hashable, Mapping

from promptgroup_contract import names
from promptgroup_operator.world.snapshot import Key, Manifest
from promptgroup_operator.world.trimmed import host_of

KINDS: Mapping[str, str] = {
    "PromptGroup": "",
    "PromptRoute": "",
    "Deployment": names.LABEL_GROUP,
    "DaemonSet": names.LABEL_GROUP,
    "PodDisruptionBudget": names.LABEL_GROUP,
    "Pod": names.LABEL_GROUP,
}
"""Watched kind → label that holds the group. The server applies it as a selector, so other pods are never listed."""

_UNOBSERVED = "-"
"""Index value instead of a fingerprint while no pass has written the group's status."""


def group_of(kind: str, manifest: Manifest) -> Key | None:
    """Return the group that an object belongs to: a PromptGroup's and a PromptRoute's by name, any other's by label."""
    metadata, label = manifest["metadata"], KINDS[kind]
    name = metadata.get("labels", {}).get(label) if label else metadata["name"]
    return Key(metadata["namespace"], name) if name else None


def prompts(namespace: str, model: str, fingerprint: str) -> list[Hashable]:
    """Return the index keys of a model's PromptGroups whose status reports this prompt, or that have no status yet."""
    return [("prompt", namespace, model, fingerprint), ("prompt", namespace, model, _UNOBSERVED)]


def guests(host: Key) -> Hashable:
    """Return the index key of the PromptGroups that are guests of a group."""
    return "guests", host


def names_of_model(namespace: str, name: str) -> Hashable:
    """Return the index key of the PromptGroups to which a request's `model` may refer: by name, model or alias."""
    return "model", namespace, name


def pods_on(node: str) -> Hashable:
    """Return the index key of the pods on a node."""
    return "node", node


def places(kind: str, key: Key, manifest: Manifest) -> list[Hashable]:
    """Return the index keys of a group's object: its group and namespace; prompt, names and host, or node."""
    at: list[Hashable] = [key, key.namespace]
    if kind == "PromptGroup":
        status, model = manifest.get("status", {}), manifest.get("spec", {}).get("model")
        observed = status.get("observedGeneration", -1) >= 0
        at += prompts(key.namespace, model, status.get("fingerprint", "") if observed else _UNOBSERVED)[:1]
        aliases = manifest.get("spec", {}).get("modelAliases") or ()
        names_of_group = {name for name in (key.name, model, *aliases) if name and isinstance(name, str)}
        at += [names_of_model(key.namespace, name) for name in names_of_group]
        if host := host_of(manifest):
            at.append(guests(Key(key.namespace, host)))
    elif kind == "Pod" and (node := manifest.get("spec", {}).get("nodeName")):
        at.append(pods_on(node))
    return at
