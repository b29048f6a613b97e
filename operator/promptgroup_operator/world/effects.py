"""The effects that a plan consists of, as values: decisions create them, and writers perform them."""

from dataclasses import dataclass
from datetime import datetime

from promptgroup_operator.world.warming import Outcome


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event to emit."""

    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """An object to delete, if it is still the one that was observed."""

    kind: str
    name: str
    uid: str


DRAINING_COST = -1000
"""Deletion cost of a draining pod in slot 0. Slots count to 999, so a draining pod without a slot is deleted first."""


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """The labels and annotations that the operator sets on a pod."""

    pod: str
    uid: str
    slot: int | None
    draining_since: datetime | None
    inference_pool: str = ""
    """The InferencePool that it is in; empty for none."""

    @property
    def deletion_cost(self) -> int:
        """Return the pod deletion cost, by which the ReplicaSet deletes draining pods before all others.

        All draining pods are deleted at once; the highest slot has the lowest cost, so that the order is defined.
        """
        if self.draining_since is None:
            return 0
        return DRAINING_COST - (self.slot if self.slot is not None else -DRAINING_COST)


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A new value for the condition of a pod's readiness gate."""

    pod: str
    uid: str
    outcome: Outcome
