"""Bounds the requests that are being tried again, so that failing replicas do not get several times the load.

Of the requests that live among the same candidates, at most half may be in a second or later try that nobody has
answered yet; a few always may. A share of live requests is what Envoy's retry budget takes (`budget_percent`, by
default 20), and Finagle's (20 % of the requests of the last 10 s). It is half here, since a group may have two replicas
and the loss of one is to cost no answer. A request over the budget waits its turn instead of failing.
"""

SHARE = 0.5
"""Most tries again, as a share of the live requests."""
LEAST = 10
"""Tries again that are always allowed: a share of few requests would be none."""


class RetryBudget:
    """The tries again that are under way, by the id of their candidates."""

    def __init__(self) -> None:
        self._trying: dict[str, int] = {}

    def take(self, candidates: str, live: int) -> bool:
        """Count a try again among these candidates. Return False if the budget is spent.

        Args:
            candidates: their id.
            live: requests that they have.
        """
        trying = self._trying.get(candidates, 0)
        if trying >= max(LEAST, SHARE * live):
            return False
        self._trying[candidates] = trying + 1
        return True

    def give_back(self, candidates: str) -> None:
        """Count a try again no more: it was answered, it failed, or its client left."""
        left = self._trying[candidates] - 1
        if left:
            self._trying[candidates] = left
        else:
            del self._trying[candidates]

    @property
    def trying(self) -> int:
        """Number of all tries again that are under way."""
        return sum(self._trying.values())
