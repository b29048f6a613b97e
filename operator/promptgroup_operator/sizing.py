"""How many replicas a group wants, and why."""

from dataclasses import dataclass

from promptgroup_operator.api import PromptGroupSpec


@dataclass(frozen=True, slots=True)
class Verdict:
    """A number with its reason, in the words of a condition."""

    value: int
    reason: str
    message: str
    active: bool
    """Whether the operator itself decides the number."""


def replicas(spec: PromptGroupSpec, current: int | None) -> Verdict:
    """Replicas of the revision that serves.

    Args:
        spec: the group's spec.
        current: replicas that the serving revision's Deployment asks for; None when there is none.
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
