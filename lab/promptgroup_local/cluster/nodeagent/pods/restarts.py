"""Decides whether an ended container starts again, and when. Does no I/O."""

from dataclasses import dataclass

FIRST_SECONDS = 1.0
"""First wait: a kubelet waits 10 s, which is too long for trials."""
LONGEST_SECONDS = 30.0
"""Longest wait: a kubelet's is 300 s."""
CALM_SECONDS = 60.0
"""A container that ran this long begins anew with the first wait."""


def restarts(policy: str, exit_code: int, *, init: bool) -> bool:
    """Return True if restartPolicy restarts a container. An init container that succeeded stays ended."""
    if exit_code == 0:
        return policy == "Always" and not init
    return policy != "Never"


@dataclass(slots=True)
class Backoff:
    """Waits that double: 1, 2, 4 ... 30 s."""

    seconds: float = 0.0

    def after(self, lasted: float) -> float:
        """The wait after a process that ran for `lasted` seconds."""
        fresh = lasted >= CALM_SECONDS or self.seconds == 0.0
        self.seconds = FIRST_SECONDS if fresh else min(self.seconds * 2, LONGEST_SECONDS)
        return self.seconds
