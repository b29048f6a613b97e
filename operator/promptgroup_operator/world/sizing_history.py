"""State of a group that sizing stores between two passes."""

import enum
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from promptgroup_contract.fingerprint import Fingerprint


class Cause(enum.StrEnum):
    """The change that caused a dip in the hit rate, as a condition's reason."""

    SCALING = "ScalingWave"
    RELEASE = "Release"


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The properties of a group's replicas whose change moves sessions."""

    wanted: int
    serving: int
    revision: Fingerprint
    """Fingerprint that the group wants to serve."""
    releasing: bool = False


@dataclass(frozen=True, slots=True)
class Wave:
    """The group's last change that moved sessions."""

    cause: Cause
    at: datetime
    hit_rate: float | None
    """The hit rate before the change; None if unknown."""


LONGEST = timedelta(seconds=3600)
"""Longest window, and twice the longest period of a policy."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A number of replicas, and the time for which it was recommended without interruption."""

    value: int
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class SizeChange:
    """A change of the number of replicas."""

    at: datetime
    by: int


@dataclass(frozen=True, slots=True)
class Past:
    """Recommendations and changes of the past."""

    recommended: tuple[Recommendation, ...] = ()
    changes: tuple[SizeChange, ...] = ()

    def recommending(self, value: int, current: int, now: datetime) -> "Past":
        """Return the history with one more recommendation. Before the first, the current number counts as one."""
        recommendations = [
            recommendation for recommendation in self.recommended if now - recommendation.until <= LONGEST
        ]
        if not recommendations:
            recommendations = [Recommendation(current, now, now)]
        last = recommendations[-1]
        # A recommendation holds until the next pass.
        recommendations[-1] = replace(last, until=now)
        if last.value != value:
            recommendations.append(Recommendation(value, now, now))
        return replace(self, recommended=tuple(recommendations))

    def range(self, window: timedelta, now: datetime) -> tuple[int, int]:
        """Return the least and the greatest number recommended within the window, the latest included."""
        values = [
            recommendation.value
            for recommendation in self.recommended
            if recommendation is self.recommended[-1] or now - recommendation.until < window
        ]
        return min(values), max(values)

    def changing(self, by: int, now: datetime) -> "Past":
        """Return the history with one more change."""
        changes = tuple(change for change in self.changes if now - change.at <= LONGEST)
        return replace(self, changes=(*changes, SizeChange(now, by)) if by else changes)


NOTHING: Final = Past()
"""The value before the first pass."""


@dataclass(frozen=True, slots=True)
class History:
    """State that passes store for later ones. If it is lost, a stabilization window, or an `idleAfter`, starts anew."""

    past: Past = NOTHING
    shape: GroupShape | None = None
    wave: Wave | None = None
    calm: float | None = None
    """Hit rate in the last pass that was not disturbed by a change of the group; None if there was none."""
    idle_since: datetime | None = None
    """Time since which no request ran or waited, for a group that may sleep; None if one did, or if it is unknown."""


NEW: Final = History()
"""The value before the first pass."""
