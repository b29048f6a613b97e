"""The common part of all peers: they receive the set of replicas that are up, and count requests in flight."""

from promptgroup_research.simulator.turns import Turn
from promptgroup_research.simulator.world import World


class Peer:
    """A router that counts requests in flight; `choose` is the policy."""

    name = "peer"

    def __init__(self) -> None:
        self.in_flight: list[int] = []

    def start(self, world: World) -> None:
        """Before the first event."""
        self.world = world
        self.changed(0.0)

    def changed(self, now: float) -> None:
        """Extend the counts to new replicas."""
        self.in_flight += [0] * (len(self.world.engines) - len(self.in_flight))

    def place(self, turn: Turn, now: float) -> int | None:
        """Choose and count; refuse when nothing is up."""
        if not self.world.up:
            return None
        replica = self.choose(turn, now)
        self.in_flight[replica] += 1
        return replica

    def choose(self, turn: Turn, now: float) -> int:
        """One of `world.up`."""
        raise NotImplementedError

    def first_token(self, turn: Turn, now: float) -> None:
        """Ignore first tokens, as most peers do."""

    def ended(self, turn: Turn, now: float) -> None:
        """Count one less in flight."""
        self.in_flight[turn.replica] -= 1

    def lost(self, turn: Turn, now: float) -> None:
        """The same: its engine died."""
        self.in_flight[turn.replica] -= 1
