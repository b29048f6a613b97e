"""The effects that a plan consists of, as values: deciders make them, writers perform them."""

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
    """An object to delete, if it is still the one that was seen."""

    kind: str
    name: str
    uid: str


DRAINING_COST = -1000
"""Deletion cost of a draining pod in slot 0; slots count to 999, so one beside the ring goes before all of them."""


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """Labels and annotations that a pod shall have from the operator."""

    pod: str
    uid: str
    slot: int | None
    draining_since: datetime | None
    inference_pool: str = ""
    """The InferencePool that it is in; empty for none."""

    @property
    def deletion_cost(self) -> int:
        """Return the cost that the ReplicaSet orders by: draining pods before all others.

        All of them go at once; of several the highest slot has the least cost, so that the order is defined.
        """
        if self.draining_since is None:
            return 0
        return DRAINING_COST - (self.slot if self.slot is not None else -DRAINING_COST)


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """The readiness gate's condition of a pod, to be written."""

    pod: str
    uid: str
    outcome: Outcome
