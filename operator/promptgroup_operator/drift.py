"""Whether an object must be written: what stands against what is wanted.

An applied manifest carries its own hash as an annotation. The object is left alone when that hash is the wanted one
and every wanted field stands as wanted: the hash finds fields that are wanted no more, the comparison finds what
somebody else changed. So a pass over an unchanged world writes nothing.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from promptgroup_operator.observed import Manifest
from promptgroup_router.contract.names import ANNOTATION_APPLIED


def stamped(manifest: Manifest) -> dict[str, Any]:
    """The manifest with its hash on it."""
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]
    metadata = dict(manifest["metadata"])
    metadata["annotations"] = {**metadata.get("annotations", {}), ANNOTATION_APPLIED: digest}
    return {**manifest, "metadata": metadata}


def must_write(live: Manifest | None, wanted: Manifest) -> bool:
    """Whether `wanted`, a stamped manifest, differs from the object that stands."""
    return live is None or not _covers(live, wanted)


def _covers(live: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            (key in live and _covers(live[key], value)) or (key not in live and _is_empty(value))
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(_covers(a, b) for a, b in zip(live, wanted, strict=True))
        )
    return bool(live == wanted) or (isinstance(wanted, int) and live == str(wanted))


def _is_empty(value: Any) -> bool:
    """The API server drops what is empty or the type's zero value (omitempty)."""
    return not value
