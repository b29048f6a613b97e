"""Decides if an object must be written, by comparing the live object with the desired one.

An applied manifest carries its own hash as an annotation. The object is not written if the hash is equal and every
desired field has its desired value: the hash detects fields that are no longer desired, and the comparison detects
changes by others. So a pass over an unchanged cluster writes nothing.

Normalization by the API server is not a difference: it adds defaults, drops empty values, writes quantities canonically
(`1024Mi` → `1Gi`), and in lists that merge by a key other managers may own further items.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from promptgroup_contract.names import ANNOTATION_APPLIED
from promptgroup_operator.plan.merge import MERGE_KEYS
from promptgroup_operator.world.snapshot import Manifest


def stamped(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest with its hash as an annotation."""
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]
    metadata = dict(manifest["metadata"])
    metadata["annotations"] = {**metadata.get("annotations", {}), ANNOTATION_APPLIED: digest}
    return {**manifest, "metadata": metadata}


def must_write(live: Manifest | None, manifest: Manifest) -> bool:
    """Return True if a stamped manifest differs from the live object."""
    return live is None or not _covers("", live, manifest)


def is_complete(live: Manifest | None, manifest: Manifest) -> bool:
    """Return True if the live object has all that a stamped manifest desires, whether it has more or not."""
    metadata = dict(manifest["metadata"])
    stamps = metadata.get("annotations", {})
    metadata["annotations"] = {key: value for key, value in stamps.items() if key != ANNOTATION_APPLIED}
    return live is not None and _covers("", live, {**manifest, "metadata": metadata})


_LIST_KEYS = {**MERGE_KEYS, "ownerReferences": "uid"}
"""Lists whose items the API server merges by key. For some it uses further keys (ports: also the protocol)."""
_ATOMIC = frozenset({"readinessGates"})
"""Lists that templates merge by key, but that the API server replaces whole."""


def _covers(field: str, live: Any, desired: Any) -> bool:
    if live == desired:  # true for most parts of most objects, and fast
        return True
    if isinstance(desired, Mapping):
        return isinstance(live, Mapping) and all(
            _covers(_quantities(field) or key, live[key], value) if key in live else _is_dropped(key, value)
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        if not isinstance(live, list):
            return False
        key = _LIST_KEYS.get(field) if field not in _ATOMIC else None
        if key is None:
            return len(live) == len(desired) and all(_covers("", a, b) for a, b in zip(live, desired, strict=True))
        return all(any(_covers("", entry, item) for entry in live) for item in desired)
    return field in _QUANTITIES and _same_quantity(live, desired)


_ZERO_IS_DROPPED = frozenset(
    {
        "chapAuthDiscovery",
        "chapAuthSession",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPort",
        "initialDelaySeconds",
        "partition",
        "readOnly",
        "sslEnabled",
        "stdin",
        "stdinOnce",
        "tty",
    }
)
"""Fields of a pod template whose `false` or 0 the API server drops: in k8s.io/api they are no pointers, and omitempty.
In all other fields `false` and 0 are preserved, for example in those that drop privileges of a container."""


def _is_dropped(field: str, value: Any) -> bool:
    """Return True if the API server drops the value of a field: empty values, and some zeros."""
    if isinstance(value, bool | int | float):
        return not value and field in _ZERO_IS_DROPPED
    return not value


# --- Quantities (k8s.io/apimachinery/pkg/api/resource) -----------------------------------------------------

_QUANTITIES = frozenset({"limits", "requests", "sizeLimit", "divisor"})
"""Fields of a pod template that hold a quantity, or a map of quantities."""

_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?", re.ASCII)
LONGEST_QUANTITY = 64
"""Maximum length of a quantity; the API server writes no longer one."""
_LARGEST = Decimal(2**63 - 1)
"""Largest quantity: Kubernetes caps larger ones at this, and 9e999999 would take minutes to convert to an integer."""
_SUFFIXES = {
    **{suffix: Decimal(1000) ** (i - 3) for i, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))},
    **{suffix: Decimal(1024) ** (i + 1) for i, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
}


def _quantities(field: str) -> str:
    """Return the field as which the values of a map of quantities are compared; empty for any other map."""
    return field if field in _QUANTITIES else ""


def _same_quantity(live: Any, desired: Any) -> bool:
    left, right = _number(live), _number(desired)
    return left is not None and left == right


def _number(value: Any) -> Decimal | None:
    """Return a quantity, capped at _LARGEST; None for a value that is no quantity."""
    text = str(value) if isinstance(value, int | float | str) else ""
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST_QUANTITY else None
    if match is None:
        return None
    try:
        return max(-_LARGEST, min(Decimal(match[1]) * _SUFFIXES[match[2] or ""], _LARGEST))
    except ArithmeticError:  # the exponent is out of range
        return None


def quantity(value: Any) -> int | None:
    """Return a quantity of bytes, rounded down and capped at 2^63-1; None for a value that is no quantity."""
    number = _number(value)
    return int(number) if number is not None else None
