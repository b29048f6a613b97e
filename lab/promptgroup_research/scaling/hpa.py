"""HorizontalPodAutoscaler's algorithm (autoscaling/v2) on one Pods metric with an AverageValue. Does no I/O.

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


def replicas(desired: int, ready: int, total: float, target: float) -> int:
    """The number of replicas by the metric.

    Args:
        desired: replicas of the target object, those that start included.
        ready: of these, pods that are ready.
        total: the metric, summed over ready pods.
        target: target of its average over pods.
    """
    if not ready:
        return desired
    ratio = total / ready / target
    unready = desired - ready
    if not unready or ratio <= 1:
        # pods that are not ready count in no mean; when scaling down they are ignored
        return desired if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * ready)
    # when scaling up, pods that are not ready count as zero in the mean
    ratio = total / desired / target
    return desired if ratio <= 1 + TOLERANCE else max(desired, math.ceil(ratio * desired))


@dataclass(slots=True)
class Behavior:
    """Stabilization and policies, with their state."""

    least: int
    most: int
    _asked: list[tuple[float, int]] = field(default_factory=list)
    _added: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, desired: int, requested: int) -> int:
        """The number of replicas that is set.

        Args:
            now: seconds.
            desired: number that is set at present.
            requested: number by the metric.
        """
        if not self._asked:
            # the initial number counts as a recommendation, so that nothing scales down within the first window
            self._asked.append((now, desired))
        self._asked = [*_since(self._asked, now - DOWN_WINDOW), (now, requested)]
        highest = max(item for _, item in self._asked)
        stable = requested if requested > desired else min(desired, highest)
        self._added = _since(self._added, now - PERIOD)
        began = desired - sum(count for _, count in self._added)
        limit = max(began + MOST_PODS, math.ceil(began * MOST_TIMES))
        value = min(max(min(stable, max(limit, desired)), self.least), self.most)
        if value > desired:
            self._added.append((now, value - desired))
        return value


def _since(entries: Iterable[tuple[float, int]], when: float) -> list[tuple[float, int]]:
    return [entry for entry in entries if entry[0] > when]
