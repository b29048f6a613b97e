"""The project's router in the simulation: the very objects that serve real requests, on virtual time."""

import random

from promptgroup_local.sim.turns import Turn
from promptgroup_local.sim.world import World
from promptgroup_router.balance import Balancer, Pick
from promptgroup_router.contract.table import Engine, Group, Policy, Revision, RoutingTable, Slot, SlotState
from promptgroup_router.demand import Demand
from promptgroup_router.health import Health
from promptgroup_router.usage import Usage
from promptgroup_router.view import Pool, view_of

MODEL = "model"


class Ours:
    """One or several routers with the project's Balancer; a session's turns are sprayed over them."""

    def __init__(
        self, policy: Policy = Policy.EXPECTED_TTFT, *, routers: int = 1, tick: float = 0.05, seed: int = 0,
        known_rate: float = 1.0, loss: float = 0.0,
    ) -> None:  # fmt: skip
        self.name = f"promptgroup {policy.value}" + (f" x{routers}" if routers > 1 else "")
        self._policy = policy
        self.balancers = [Balancer(Health()) for _ in range(routers)]
        self._tick = tick
        self._known_rate = known_rate
        self._loss = loss
        self._draw = random.Random(seed)  # noqa: S311 - a simulation
        self._up: set[int] = set()
        self._lives: dict[int, int] = {}
        """Slot → processes that held it."""
        self._pools: list[Pool] = []
        self._indexes: dict[str, int] = {}

    def start(self, world: World) -> None:
        """Before the first event."""
        self._world = world
        self.changed(0.0)
        if len(self.balancers) > 1:
            world.every(self._tick, self._exchange)

    def changed(self, now: float) -> None:
        """Install a table of the replicas that are up."""
        for index in self._world.up:
            if index not in self._up:
                self._lives[index] = self._lives.get(index, 0) + 1
        self._up = set(self._world.up)
        model = self._world.model
        engine = Engine("one", model.kv_tokens, int(model.prefill_rate * self._known_rate), model.step_tokens)
        slots = tuple(
            Slot(
                index,
                SlotState.READY if index in self._world.up else SlotState.ABSENT,
                address="e:1" if index in self._world.up else "",
                incarnation=str(self._lives.get(index, 0)),
            )
            for index in range(len(self._world.engines))
        )
        revision = Revision("f" * 32, 0, tools=False, weight=1, slots=slots, engine=engine)
        group = Group("sim", "group", MODEL, "", (revision,), policy=self._policy)
        view = view_of(RoutingTable((group,)))
        self._pool = view.names["group"].revisions[0].pool
        self._indexes = {member.id: member.slot for member in self._pool.ready}
        for balancer in self.balancers:
            balancer.install(view, now)

    def place(self, turn: Turn, now: float) -> int | None:
        """Ask the router that the request happens to come to."""
        balancers = self.balancers
        balancer = balancers[0] if len(balancers) == 1 else self._draw.choice(balancers)
        session = turn.session
        demand = Demand(session.key, session.prefix, turn.prompt, session.tier1, turn.history, 1 + 2 * turn.number)
        pick = balancer.pick(self._pool, demand, now)
        if pick is None:
            return None
        turn.pick = (balancer, pick)
        return pick.member.slot

    def first_token(self, turn: Turn, now: float) -> None:
        """The first token was passed on."""
        balancer, pick = _kept(turn)
        balancer.first_token(pick, now)

    def ended(self, turn: Turn, now: float) -> None:
        """The answer is whole; tell its `usage`."""
        balancer, pick = _kept(turn)
        balancer.end(pick, Usage(turn.prompt, turn.cached, turn.output))

    def lost(self, turn: Turn, now: float) -> None:
        """The engine died."""
        balancer, pick = _kept(turn)
        balancer.release(pick)

    def _exchange(self, now: float) -> None:
        for sender, balancer in enumerate(self.balancers):
            notes, loads = balancer.tell(now)
            for other in self.balancers:
                if other is not balancer and not (self._loss and self._draw.random() < self._loss):
                    other.hear(sender, notes, loads, now)


def _kept(turn: Turn) -> tuple[Balancer, Pick]:
    kept = turn.pick
    assert isinstance(kept, tuple)  # noqa: S101 - placed by this class
    return kept
