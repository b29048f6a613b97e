"""Times of a replica's start, as Kubernetes reports them on its pod."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class PodStart:
    """The steps of a start that are over; None for a step that is not, or that the kubelet does not report."""

    scheduled: datetime | None = None
    """Time at which the pod got a node."""
    sandboxed: datetime | None = None
    """Time at which its volumes and network were ready: images are pulled from then on."""
    running: datetime | None = None
    """Time at which the engine's container began; None while it does not run."""
    restarts: int = 0
    """Number of times that the engine's container was restarted."""


UNOBSERVED: Final = PodStart()
