"""The project's own scaler in the simulation: the very objects that size groups, on virtual time."""

from datetime import UTC, datetime, timedelta

from promptgroup_local.sim.scaling.fleet import Fleet
from promptgroup_local.sim.scaling.loads import Scene
from promptgroup_local.sim.scaling.meter import Meter
from promptgroup_operator.api import SizingSpec, SizingTargets
from promptgroup_operator.sizing.verdict import Group, History, decide

WINDOW = 60.0
"""Seconds that a load is of."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""Virtual time zero."""


class Sizer:
    """`promptgroup_operator.sizing`, with the defaults of `spec.sizing` and the scene's target."""

    name = "promptgroup"

    def __init__(self, scene: Scene) -> None:
        self._spec = SizingSpec(
            min_replicas=scene.least,
            max_replicas=scene.most,
            targets=SizingTargets(ttft=f"{scene.target * 1000:.0f}ms"),
        )
        self._history = History()
        self.said = ""
        """Reason and message of the last decision."""

    def recommend(self, now: float, meter: Meter, fleet: Fleet) -> int:
        """The verdict of this look."""
        group = Group(fleet.wanted, fleet.up, "revision", meter.load(WINDOW))
        verdict = decide(self._spec, group, self._history, BEGIN + timedelta(seconds=now))
        self._history = verdict.history
        self.said = f"{verdict.reason}: {verdict.message}"
        return verdict.value
