"""Decides if a node is about to go, from its taints."""

from collections.abc import Container

from promptgroup_operator.world.snapshot import Manifest

_WISHES = "PreferNoSchedule"
"""Effect of a taint that only advises the scheduler."""


def leaving_taint(node: Manifest, keys: Container[str]) -> str:
    """Return the key of the first taint of a node that announces its end; empty without one.

    Args:
        node: the Node.
        keys: keys of the taints that announce it.
    """
    taints = (node.get("spec") or {}).get("taints") or ()
    return next((taint["key"] for taint in taints if taint["key"] in keys and taint.get("effect") != _WISHES), "")
