"""Decides which labels and annotations of a pod template users may set. Does no I/O and reads no clock.

Services, network policies, routers and the operator select pods by labels. A user who may write a PromptGroup does not
necessarily have permission to create pods, so a template must not let an engine impersonate another component: with the
routers' label it would be an endpoint of their Service, and receive every client's prompts and keys.
"""

from collections.abc import Container, Mapping
from typing import Any

from promptgroup_contract import names

LABEL_NAME = "app.kubernetes.io/name"
"""Label by which Services and policies select the routers and the operator."""
OWN_NAMES = frozenset({names.ROUTER, names.PICKER, "promptgroup-operator"})
"""Values of LABEL_NAME that are reserved for the product."""


def reserved(template: Mapping[str, Any], allowed: Container[str] = ()) -> str:
    """Return the first label or annotation of a template that is reserved; empty if there is none.

    Args:
        template: spec.engine.template as the user wrote it, which may be malformed.
        allowed: keys of the product's domain that a template may set.

    Returns:
        The field, its value where that matters, and the remedy.
    """
    metadata = template.get("metadata")
    for field in ("labels", "annotations"):
        values = metadata.get(field) if isinstance(metadata, Mapping) else None
        for key, value in values.items() if isinstance(values, Mapping) else ():
            where = f"metadata.{field}[{key}]"
            if _own_domain(str(key)) and key not in allowed:
                return (
                    f"{where} is reserved for the operator: keys of {names.API_GROUP} identify its pods. Use a domain "
                    "of your own"
                )
            if field == "labels" and key == LABEL_NAME and str(value) in OWN_NAMES:
                return f"{where} is {value!r}, by which the product's own pods are found: use another value"
    return ""


def _own_domain(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain == names.API_GROUP or domain.endswith(f".{names.API_GROUP}"))
