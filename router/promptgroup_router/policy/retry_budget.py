"""Bounds the number of concurrent retries, so that failing replicas do not get several times the load.

Of the requests in flight among the same candidates, at most half may be retries that are not answered yet; a few are
always allowed. Envoy's retry budget is also a share of active requests (`budget_percent`, by default 20); Finagle's is
20 % of the requests of the last 10 s. It is half here, since a group may have two replicas and the loss of one must
cost no answer. A request over the budget waits instead of failing.
"""

SHARE = 0.5
"""Most concurrent retries, as a share of the requests in flight."""
LEAST = 10
"""Retries that are always allowed: a share of few requests would be none."""


class RetryBudget:
    """The number of concurrent retries, by the id of their candidates."""

    def __init__(self) -> None:
        self._trying: dict[str, int] = {}

    def take(self, candidates: str, live: int) -> bool:
        """Count a retry among these candidates. Return False if the budget is spent.

        Args:
            candidates: their id.
            live: requests in flight among them.
        """
        trying = self._trying.get(candidates, 0)
        if trying >= max(LEAST, SHARE * live):
            return False
        self._trying[candidates] = trying + 1
        return True

    def give_back(self, candidates: str) -> None:
        """Stop counting a retry: it was answered, it failed, or its client disconnected."""
        left = self._trying[candidates] - 1
        if left:
            self._trying[candidates] = left
        else:
            del self._trying[candidates]

    @property
    def trying(self) -> int:
        """Number of all concurrent retries."""
        return sum(self._trying.values())
