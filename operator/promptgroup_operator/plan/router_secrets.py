"""Decides which Secrets routers and pickers may read: those that the PromptRoutes of their namespace name."""

from collections.abc import Iterable

from promptgroup_contract import engine_tls, names
from promptgroup_operator.world.snapshot import Manifest

KIND = "Role"
ROLES = (names.ROLE_ROUTER_SECRETS, names.ROLE_PICKER_SECRETS)
"""The Roles whose rules the operator writes; installing a router or picker creates them empty, and binds them."""


def named(routes: Iterable[Manifest]) -> frozenset[str]:
    """Return the names of the Secrets that routes refer to.

    They hold prompts, callers' API keys, credentials for engines and for features of the response cache, and the
    certificate authorities by which engines are verified.
    """
    result: set[str] = set()
    for route in routes:
        spec = route["spec"]
        result.update(spec.get("access", {}).get("secrets", ()))
        sources = (revision.get("promptFrom", {}) for revision in spec.get("revisions", ()))
        result.update(source["name"] for source in sources if source.get("kind") == "Secret")
        slots = (slot for revision in spec.get("revisions", ()) for slot in revision.get("slots", ()))
        for slot in slots:
            if "credential" in slot:
                result.add(slot["credential"].partition("/")[0])
            tls = engine_tls.parse(slot.get("tls", ""))
            if tls is not None and tls.kind == engine_tls.SECRET:
                result.add(tls.name)
        for part in spec.get("responses", {}).values():
            if isinstance(part, dict) and "credential" in part:
                result.add(part["credential"].partition("/")[0])
    return frozenset(result)


def role(namespace: str, name: str, secrets: frozenset[str]) -> Manifest:
    """Return a Role that grants these Secrets, each by its name, and nothing else."""
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": sorted(secrets)}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        # A rule without resource names would grant access to all Secrets.
        "rules": [rule] if secrets else [],
    }
