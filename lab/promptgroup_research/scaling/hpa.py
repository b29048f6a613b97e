"""HorizontalPodAutoscaler's algorithm (autoscaling/v2) on one Pods metric with an AverageValue. Pure.

Source: kubernetes/kubernetes pkg/controller/podautoscaler, `replica_calculator.go` (ratio, tolerance, pods that are not
ready) and `horizontal.go` (stabilization, policies), with the defaults of the API and of kube-controller-manager.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

SYNC_SECONDS = 15.0
"""--horizontal-pod-autoscaler-sync-period."""
TOLERANCE = 0.1
"""--horizontal-pod-autoscaler-tolerance."""
DOWN_WINDOW = 300.0
"""behavior.scaleDown.stabilizationWindowSeconds."""
PERIOD = 15.0
"""periodSeconds of the default policies: up by 100 % or 4 pods, whichever is more; down by 100 %."""
MOST_PODS, MOST_TIMES = 4, 2.0


def replicas(wanted: int, ready: int, total: float, target: float) -> int:
    """What the metric asks for.

    Args:
        wanted: replicas of the target object, those that start included.
        ready: of these, pods that are ready.
        total: the metric, summed over ready pods.
        target: its average over pods that is aimed at.
    """
    if not ready:
        return wanted
    ratio = total / ready / target
    unready = wanted - ready
    if not unready or ratio <= 1:
        # pods that are not ready count in no mean; on the way down they are simply left out
        return wanted if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * ready)
    # on the way up, pods that are not ready are taken to bring the mean down already
    ratio = total / wanted / target
    return wanted if ratio <= 1 + TOLERANCE else max(wanted, math.ceil(ratio * wanted))


@dataclass(slots=True)
class Behavior:
    """Stabilization and policies, with what they need to remember."""

    least: int
    most: int
    _asked: list[tuple[float, int]] = field(default_factory=list)
    _added: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, wanted: int, asked: int) -> int:
        """The number of replicas that is set.

        Args:
            now: seconds.
            wanted: what is set at present.
            asked: what the metric asks for.
        """
        if not self._asked:
            # what it finds counts as a recommendation, so that nothing goes down within the first window
            self._asked.append((now, wanted))
        self._asked = [*_since(self._asked, now - DOWN_WINDOW), (now, asked)]
        highest = max(each for _, each in self._asked)
        stable = asked if asked > wanted else min(wanted, highest)
        self._added = _since(self._added, now - PERIOD)
        began = wanted - sum(count for _, count in self._added)
        limit = max(began + MOST_PODS, math.ceil(began * MOST_TIMES))
        value = min(max(min(stable, max(limit, wanted)), self.least), self.most)
        if value > wanted:
            self._added.append((now, value - wanted))
        return value


def _since(entries: Iterable[tuple[float, int]], when: float) -> list[tuple[float, int]]:
    return [entry for entry in entries if entry[0] > when]
