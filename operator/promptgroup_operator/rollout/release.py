"""Values of a release: what a group wants, and the step that a pass takes with each of its revisions."""

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
    """Where a revision is in its life."""

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
    """`spec.rollout`, read for a group of a certain size."""

    weights: tuple[int, ...]
    """Weights of the steps, and of the take-over where it may follow, in percent."""
    pauses: tuple[timedelta, ...]
    paused: bool
    surge: int
    """Replicas of all revisions above those wanted."""
    retire_after: timedelta
    retire_deadline: timedelta
    """Longest time for which sessions of a superseded revision hold its replicas, and sessions of the old revision a
    release that grows."""
    history: int
    judge: JudgeSpec


PATIENCE = 4
"""Multiple of `retireAfter` that `retireDeadline` is where it is not set."""
LEAST_DEADLINE = timedelta(minutes=5)
"""It is no less then."""


def policy(spec: RolloutSpec, replicas: int) -> RolloutPolicy:
    """Return the policy of a group that wants so many replicas."""
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
    """Return the index of the step that a release is at: the first with the weight that it has come to, or more.

    Where the steps were edited so that all are behind it, it is at the last one: only an analysis leads from there to
    the take-over.

    Args:
        weights: those of the steps, and `ALL` for the take-over where it may follow, in percent; at least one.
        come_to: `Progress.weight`.
    """
    last = len(weights) - 1
    if weights[last] == ALL and come_to < ALL:
        last = max(0, last - 1)
    return next((index for index in range(last) if weights[index] >= come_to), last)


def _surge(spec: int | str, replicas: int) -> int:
    """Return the replicas of `maxSurge`; a percentage is rounded up, of a group without replicas to one."""
    text = str(spec)
    if not text.endswith("%"):
        return int(text)
    return max(min(1, int(text[:-1])), math.ceil(replicas * int(text[:-1]) / 100))


@dataclass(frozen=True, slots=True)
class Goal:
    """The state that the group wants, and what a pass knows beside its revisions."""

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
    """Fingerprint of a prompt that the spec asks for and that an older group claims: nothing of it is kept beside the
    target."""


@dataclass(frozen=True, slots=True)
class RevisionStep:
    """The state that a pass gives one revision."""

    fingerprint: Fingerprint
    phase: RevisionPhase
    weight: int
    ring: frozenset[int] = frozenset()
    """Its slots: a replica with another one drains."""
    due: int = 0
    """Replicas that it is to have once there is room for them."""
    stands_in: bool = True
    """False for replicas that only wait for sessions to end: what serves has its own beside them."""
    moves: str = ""
    """The reason for which its sessions move to the revision that serves before their end; empty for none."""
    superseded_at: datetime | None = None
    progress: Progress | None = None
    rolled_back: RolledBack | None = None

    @property
    def replicas(self) -> int:
        """Number of its replicas."""
        return len(self.ring)


@dataclass(frozen=True, slots=True)
class Release:
    """The state that a pass gives all revisions."""

    steps: Mapping[Fingerprint, RevisionStep]
    """By fingerprint."""
    most: int
    """Replicas that the target may have at its step."""
    waits: Problem | None
    """The condition that the release of the target waits for; None when no release is under way."""
    passed: Problem | None = None
    """The figures of the step that the target passes in this pass; None in any other pass."""
