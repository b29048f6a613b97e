"""How many replicas a group wants, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_operator.api import PromptGroupSpec
from promptgroup_operator.observed import Revision


@dataclass(frozen=True, slots=True)
class Verdict:
    """A number with its reason, in the words of a condition."""

    value: int
    reason: str
    message: str
    active: bool
    """Whether the operator itself decides the number."""


def replicas(spec: PromptGroupSpec, current: int | None) -> Verdict:
    """Replicas of all revisions together, but for those that a release adds.

    Args:
        spec: the group's spec.
        current: replicas that the group had; None when it has none yet.
    """
    if spec.replicas is not None:
        return Verdict(spec.replicas, "FixedReplicas", f"spec.replicas asks for {spec.replicas}", active=False)
    if spec.sizing is None:
        return Verdict(1, "FixedReplicas", "neither spec.replicas nor spec.sizing is given: one replica", active=False)
    low, high = spec.sizing.min_replicas, spec.sizing.max_replicas
    value = min(max(current if current is not None else low, low), high)
    return Verdict(
        value, "WithinBounds", f"held at {value}, within {low} to {high}: no load signal is evaluated", active=False
    )


def current(revisions: Sequence[Revision], target: str) -> int | None:
    """Replicas that the group wanted before; while a release is under way no Deployment alone has so many.

    Args:
        revisions: the revisions that have a Deployment.
        target: fingerprint that the group wants to serve.
    """
    alive = [each.replicas for each in revisions if each.replicas]
    if len(alive) == 1:
        return alive[0]
    noted = {each.fingerprint: each.size for each in revisions if each.size is not None}
    return noted.get(target, max(noted.values(), default=None))
