"""Values of a release: the desired state of a group, and the step that a pass decides for each of its revisions."""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.api.prompt_group import JudgeSpec, RolloutSpec
from promptgroup_operator.base import durations
from promptgroup_operator.world.samples import Traffic
from promptgroup_operator.world.snapshot import Problem, Progress, RolledBack

ALL = 100
"""Percent: the weight of a revision that serves alone."""


class RevisionPhase(enum.StrEnum):
    """The stage in the life cycle of a revision."""

    COMING = "Coming"
    CANARY = "Canary"
    SERVING = "Serving"
    SUPERSEDED = "Superseded"
    ROLLED_BACK = "RolledBack"
    RETIRING = "Retiring"
    RETIRED = "Retired"


GOING = frozenset({RevisionPhase.RETIRING, RevisionPhase.RETIRED})
"""Phases of revisions that get no replicas."""


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """`spec.rollout`, resolved for a group of a certain size."""

    weights: tuple[int, ...]
    """Weights of the steps, and of the take-over if it may follow, in percent."""
    pauses: tuple[timedelta, ...]
    paused: bool
    surge: int
    """Maximum number of replicas of all revisions above the desired number."""
    retire_after: timedelta
    retire_deadline: timedelta
    """Maximum time for which sessions of a superseded revision keep its replicas, and for which sessions of the old
    revision delay the growth of a release."""
    history: int
    judge: JudgeSpec


PATIENCE = 4
"""Default of `retireDeadline` as a multiple of `retireAfter`."""
LEAST_DEADLINE = timedelta(minutes=5)
"""Minimum of that default."""


def policy(spec: RolloutSpec, replicas: int) -> RolloutPolicy:
    """Return the policy of a group with this number of desired replicas."""
    weights = tuple(step.weight for step in spec.steps)
    retire_after = durations.parse(spec.retire_after)
    deadline = durations.parse(spec.retire_deadline) if spec.retire_deadline is not None else None
    return RolloutPolicy(
        weights=(*weights, ALL) if spec.auto_promote else weights or (0,),
        pauses=tuple(durations.parse(step.pause) for step in spec.steps),
        paused=spec.paused,
        surge=_surge(spec.max_surge, replicas),
        retire_after=retire_after,
        retire_deadline=deadline if deadline is not None else max(LEAST_DEADLINE, PATIENCE * retire_after),
        history=spec.revision_history_limit,
        judge=spec.judge,
    )


def step_at(weights: Sequence[int], come_to: int) -> int:
    """Return the index of a release's current step: the first one with at least the weight that it has reached.

    If the steps were edited so that all have lower weights, it is the last one: the take-over always requires an
    analysis.

    Args:
        weights: weights of the steps, and `ALL` for the take-over if it may follow, in percent; at least one.
        come_to: `Progress.weight`.
    """
    last = len(weights) - 1
    if weights[last] == ALL and come_to < ALL:
        last = max(0, last - 1)
    return next((index for index in range(last) if weights[index] >= come_to), last)


def _surge(spec: int | str, replicas: int) -> int:
    """Return the replicas of `maxSurge`; a percentage is rounded up, and is one for a group without replicas."""
    text = str(spec)
    if not text.endswith("%"):
        return int(text)
    return max(min(1, int(text[:-1])), math.ceil(replicas * int(text[:-1]) / 100))


@dataclass(frozen=True, slots=True)
class Goal:
    """The desired state of the group, and the data of a pass beside its revisions."""

    target: Fingerprint
    """Fingerprint of the prompt to serve."""
    replicas: int
    policy: RolloutPolicy
    settings: str
    """Digest of the group's engine settings."""
    traffic: Traffic | None
    """Counts of the routers; None when none was read."""
    now: datetime
    lost: Fingerprint | None = None
    """Fingerprint of a prompt in the spec that an older group claims: its revision retires unless it is the target."""


@dataclass(frozen=True, slots=True)
class RevisionStep:
    """The state that a pass decides for one revision."""

    fingerprint: Fingerprint
    phase: RevisionPhase
    weight: int
    ring: frozenset[int] = frozenset()
    """Its slots: a replica with another slot drains."""
    due: int = 0
    """Number of replicas that it gets as soon as the limits allow it."""
    stands_in: bool = True
    """False for replicas that only wait for sessions to end: they do not count as replicas of the serving revision."""
    moves: str = ""
    """The reason why its sessions move to the serving revision before they end; empty for none."""
    superseded_at: datetime | None = None
    progress: Progress | None = None
    rolled_back: RolledBack | None = None

    @property
    def replicas(self) -> int:
        """Number of its replicas."""
        return len(self.ring)


@dataclass(frozen=True, slots=True)
class Release:
    """The state that a pass decides for all revisions."""

    steps: Mapping[Fingerprint, RevisionStep]
    """Fingerprint → step."""
    most: int
    """Maximum number of replicas of the target at its step."""
    waits: Problem | None
    """The condition for which the release of the target waits; None without a release."""
    passed: Problem | None = None
    """The figures of the step that the target completes in this pass; None in any other pass."""
