"""Two rings on the session's key: plain consistent hashing, and with bounded loads.

The plain one is used for session headers in most gateways. The bounded one is KubeAI's PrefixHash
(`internal/loadbalancer/balance_chwbl.go`): its key is the start of the first user message, hence the session's; a
replica is skipped while it has more than `factor` times the mean of requests in flight, the new one included;
when all are skipped, the first gets it. Mirrokni, Thorup, Zadimoghaddam: "Consistent Hashing with Bounded
Loads", 2018.
"""

from collections.abc import Iterator

from promptgroup_research.policies.peer import Peer
from promptgroup_research.simulator.turns import Turn
from promptgroup_router.rings.ring import ring_of


class SessionRing(Peer):
    """A session's replica is the first on the ring that is up."""

    name = "session ring"

    def choose(self, turn: Turn, now: float) -> int:
        """The home."""
        up = set(self.world.up)
        return next(index for index in self._order(turn) if index in up)

    def _order(self, turn: Turn) -> Iterator[int]:
        return ring_of(frozenset(range(len(self.world.engines)))).order(turn.session.key)


class BoundedRing(SessionRing):
    """The first on the ring that is up and within `factor` of the mean load."""

    name = "KubeAI CHWBL"

    def __init__(self, factor: float = 1.25) -> None:
        super().__init__()
        self._factor = factor

    def choose(self, turn: Turn, now: float) -> int:
        """The home, or the next replica below the bound."""
        up = set(self.world.up)
        bound = self._factor * (sum(self.in_flight[index] for index in up) + 1) / len(up)
        first = None
        for index in self._order(turn):
            if index not in up:
                continue
            if self.in_flight[index] <= bound:
                return index
            if first is None:
                first = index
        assert first is not None  # noqa: S101 - `up` is not empty
        return first
