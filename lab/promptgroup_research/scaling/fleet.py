"""Replicas added and removed at run time, as by the operator: started, warmed, drained, the highest slot first."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_research.simulator.world import World

START_SECONDS = 120.0
"""From the decision to a warm replica: a node is there and the image too, weights of tens of GB are loaded, graphs are
captured, Tier 1 is warmed."""
LOOK_SECONDS = 1.0
"""Seconds between two checks of a replica that drains."""


class Phase(enum.Enum):
    """The phase of a slot."""

    STARTING = enum.auto()
    UP = enum.auto()
    DRAINING = enum.auto()
    """No new requests are sent there; running ones end."""


@dataclass(frozen=True, slots=True)
class Change:
    """The number of replicas that are wanted became another."""

    when: float
    wanted: int


class Fleet:
    """All replicas of a world. A replica is paid for from the decision to start it until it has drained.

    Args:
        world: with the engines that serve from the beginning, warm.
        prompts: (node, tokens) of every Tier-1 prefix.
        start_seconds: from the decision to a warm replica.
    """

    def __init__(self, world: World, prompts: Sequence[tuple[int, int]], start_seconds: float = START_SECONDS) -> None:
        self._world = world
        self._prompts = tuple(prompts)
        self._start_seconds = start_seconds
        self._phases = dict.fromkeys(world.up, Phase.UP)
        self._starts: dict[int, float] = {}
        """Slot → when its start began: another time means another start."""
        self._since = world.now
        self._seconds = 0.0
        self.changes = [Change(world.now, len(world.up))]
        """The first is the initial state of the run."""
        for index in world.up:
            self._warm(index)
        world.every(LOOK_SECONDS, self._look)

    @property
    def wanted(self) -> int:
        """Replicas that serve or will."""
        return self.changes[-1].wanted

    @property
    def up(self) -> int:
        """Replicas that are sent to."""
        return len(self._world.up)

    @property
    def running(self) -> tuple[int, ...]:
        """Slots whose engine runs: up, and draining."""
        return tuple(index for index, phase in self._phases.items() if phase is not Phase.STARTING)

    def seconds(self) -> float:
        """Replica-seconds paid for."""
        self._pay()
        return self._seconds

    def scale(self, desired: int) -> None:
        """Have so many replicas."""
        if desired == self.wanted:
            return
        self._pay()
        self.changes.append(Change(self._world.now, desired))
        alive = sorted(index for index, phase in self._phases.items() if phase is not Phase.DRAINING)
        for index in alive[desired:]:
            if self._phases[index] is Phase.STARTING:
                del self._phases[index]
            else:
                self._phases[index] = Phase.DRAINING
        for _ in range(desired - len(alive)):
            self._start()
        self._publish()

    def _start(self) -> None:
        world = self._world
        index = next(item for item in range(len(self._phases) + 1) if item not in self._phases)
        while index >= len(world.engines):
            world.add_engine().alive = False
        self._phases[index] = Phase.STARTING
        began = self._starts[index] = world.now
        world.at(began + self._start_seconds, lambda: self._started(index, began))

    def _started(self, index: int, began: float) -> None:
        if self._phases.get(index) is Phase.STARTING and self._starts[index] == began:
            self._phases[index] = Phase.UP
            self._world.engines[index].alive = True
            self._warm(index)
            self._publish()

    def _warm(self, index: int) -> None:
        for node, tokens in self._prompts:
            self._world.engines[index].warm(node, tokens)

    def _look(self, _: float) -> None:
        empty = [
            index
            for index, phase in self._phases.items()
            if phase is Phase.DRAINING and not self._world.engines[index].busy
        ]
        if empty:
            self._pay()
        for index in empty:
            self._world.engines[index].kill()
            del self._phases[index]

    def _publish(self) -> None:
        up = sorted(index for index, phase in self._phases.items() if phase is Phase.UP)
        if tuple(up) != self._world.up:
            self._world.set_up(up)

    def _pay(self) -> None:
        now = self._world.now
        self._seconds += len(self._phases) * (now - self._since)
        self._since = now
