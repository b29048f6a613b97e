"""The project's own scaler in the simulation: the very objects that size groups, on virtual time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.api.prompt_group import SizingSpec, SizingTargets
from promptgroup_operator.sizing import limits
from promptgroup_operator.sizing.diagnosis import diagnose
from promptgroup_operator.sizing.recommend import SizingDecision, SizingInput, decide
from promptgroup_operator.world.load import LOAD_WINDOW
from promptgroup_operator.world.sizing_history import History
from promptgroup_research.scaling.fleet import Fleet
from promptgroup_research.scaling.loads import Scene
from promptgroup_research.scaling.meter import Meter

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
        self._told = ""
        self.said = ""
        """The status messages of the last pass: about the number, and about the caches."""
        self.needs: list[int] = []
        """Per pass, the replicas that the latest known load needs by demand and working set."""

    def recommend(self, now: float, meter: Meter, fleet: Fleet) -> int:
        """The verdict of this pass."""
        load = meter.load(LOAD_WINDOW.total_seconds())
        group = SizingInput(fleet.wanted, fleet.up, Fingerprint("revision"), load)
        verdict = decide(self._spec, group, self._history, BEGIN + timedelta(seconds=now))
        self._history = verdict.history
        self.needs.append(self._need(verdict))
        diagnosis = diagnose(load, verdict.wave, self._told)
        self._told = diagnosis.reason
        self.said = f"{verdict.reason}: {verdict.message} | {diagnosis.reason}: {diagnosis.message}"
        return verdict.value

    def _need(self, verdict: SizingDecision) -> int:
        """Return the replicas that a load needs: queues and late first tokens are those of the replicas that serve."""
        if verdict.model is None:
            return self.needs[-1] if self.needs else 1
        model = replace(verdict.model, queue=0.0)
        low, high = self._spec.min_replicas, self._spec.max_replicas
        return min(high, limits.least_replicas(model, low, high, limits.Target(None)))
