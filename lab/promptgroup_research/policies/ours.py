"""The project's router in the simulation: the very objects that serve real requests, on virtual time."""

import math
import random
from collections.abc import Iterable
from functools import partial

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import Engine, Group, Policy, Revision, RoutingTable, Sharing, Slot, SlotState
from promptgroup_research.simulator.tier import TierModel
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.world import HELD, World
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.placement.pick import Pick
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.prefixes.prompt_marks import NEAR, step_at
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.rings.index import Candidates, RoutingIndex
from promptgroup_router.routing.admission_queue import AdmissionQueue

MODEL = "model"
SWEEP_SECONDS = 0.25
URGENT_DELAY = 0.002
"""Seconds until others know what a router tells at once."""
COPY_OVERHEAD = 0.020
"""Seconds of a warm-up beside its copy: a step, HTTP, template and tokenizer."""


class Ours:
    """One or several routers with the project's Balancer; a session's turns are sprayed over them.

    Args:
        policy: the group's.
        routers: number of routers.
        tick: seconds between two exchanges.
        seed: seed of the random draws.
        known_rate: the prefill rate that routers are given, as a share of the true one.
        loss: share of the exchange's datagrams that are lost.
        admission: whether sessions wait for free capacity; without it caches may thrash.
        greetings: share of a group's sessions that begin with the same short message.
        told_apart: whether routers distinguish these once more of them has arrived.
        measured_copy: tokens of the prompt by whose copy the operator measures a shared tier; 0: it measures none.
    """

    def __init__(
        self, policy: Policy = Policy.EXPECTED_TTFT, *, routers: int = 1, tick: float = 0.05, seed: int = 0,
        known_rate: float = 1.0, loss: float = 0.0, admission: bool = True, greetings: float = 0.0,
        told_apart: bool = True, measured_copy: int = 2_000,
    ) -> None:  # fmt: skip
        self.name = f"promptgroup {policy.value}" + (f" x{routers}" if routers > 1 else "")
        self._policy = policy
        self.balancers = [Balancer(Health()) for _ in range(routers)]
        self.held: list[AdmissionQueue[Turn]] = [AdmissionQueue() for _ in range(routers)]
        self._tick = tick
        self._known_rate = known_rate
        self._loss = loss
        self._admission = admission
        self._greetings = greetings
        self._told_apart = told_apart
        self._measured_copy = measured_copy
        self._draw = random.Random(seed)  # noqa: S311 - a simulation
        self._up: set[int] = set()
        self._hurried: set[int] = set()
        """Routers that have told something since the last exchange."""
        self._lives: dict[int, int] = {}
        """Slot → processes that held it."""

    def start(self, world: World) -> None:
        """Before the first event."""
        self._world = world
        self.changed(0.0)
        world.every(SWEEP_SECONDS, self._sweep)
        if len(self.balancers) > 1:
            world.every(self._tick, self._exchange)
            for sender, balancer in enumerate(self.balancers):
                balancer.peers.on_urgent(partial(self._tell_soon, sender))

    def changed(self, now: float) -> None:
        """Install a table of the replicas that are up."""
        for index in self._world.up:
            if index not in self._up:
                self._lives[index] = self._lives.get(index, 0) + 1
        self._up = set(self._world.up)
        model = self._world.model
        tier = self._world.tier
        copies = _copy_rate(tier, self._measured_copy) if tier is not None and tier.shared else 0
        rate = int(model.prefill_rate * self._known_rate)
        engine = Engine("one", model.kv_tokens, rate, model.step_tokens, model.sequences, copies)
        view = build_index(RoutingTable(self._groups(engine)))
        self._read(view)
        for balancer in self.balancers:
            balancer.install(view, now)
            if not self._admission:
                for replica in balancer.members.replicas.values():
                    replica.costs.cache_tokens = math.inf

    def _groups(self, engine: Engine) -> tuple[Group, ...]:
        """One group that has every replica: a pool without borders."""
        return (self._group("group", range(len(self._world.engines)), engine, Sharing.POOL),)

    def _read(self, view: RoutingIndex) -> None:
        self._pool = view.names["group"].revisions[0].candidates

    def _group(self, name: str, indexes: Iterable[int], engine: Engine, sharing: Sharing) -> Group:
        """A group whose slots are these engines."""
        slots = tuple(
            Slot(
                index,
                SlotState.READY if index in self._world.up else SlotState.ABSENT,
                address=f"e{index}:1" if index in self._world.up else "",
                incarnation=str(self._lives.get(index, 0)),
            )
            for index in indexes
        )
        revision = Revision(
            Fingerprint(name), 0, tools=False, weight=1, slots=slots, tokens=self._measured_copy, engine=engine
        )
        return Group("sim", name, MODEL, "", (revision,), policy=self._policy, sharing=sharing)

    def place(self, turn: Turn, now: float) -> int | None:
        """Let the router at which the request happens to arrive place it."""
        index = 0 if len(self.balancers) == 1 else self._draw.randrange(len(self.balancers))
        replica = self._pick(index, turn, now)
        if replica == HELD:
            self.held[index].put(turn, now, new=not turn.history)
        return replica

    def _key(self, turn: Turn) -> tuple[int, int]:
        """The session's key, and its key on the first turn if that was another (0: it was not)."""
        session = turn.session
        if not session.tier1 or session.key % 1000 >= 1000 * self._greetings:
            return session.key, 0
        greeting = session.prefix ^ 1
        if turn.number == 0 or not self._told_apart:
            return greeting, 0
        return session.key, greeting

    def _pick(self, index: int, turn: Turn, now: float) -> int:
        pick = self.balancers[index].pick(self._pool_of(turn.session), self._demand(turn), now)
        if pick is None:
            return HELD
        turn.pick = (index, pick)
        return pick.member.slot

    def _demand(self, turn: Turn) -> Demand:
        """What the router knows of a request."""
        session = turn.session
        key, origin = self._key(turn)
        turns = 1 + 2 * turn.number
        demand = Demand(
            SessionKey(key),
            PrefixKey(session.prefix),
            turn.prompt,
            session.tier1,
            turn.history,
            turns,
            SessionKey(origin),
        )
        demand.marks, demand.lengths = marks_of(turn)
        return demand

    def _pool_of(self, session: Session) -> Candidates:
        """The replicas that may serve a session."""
        return self._pool

    def _release(self, index: int, now: float) -> None:
        """Admit held turns, since there may be free capacity."""

        def fits(turn: Turn) -> bool:
            replica = self._pick(index, turn, now)
            if replica == HELD:
                return False
            self._world.send(turn, replica)
            return True

        if self.held[index]:
            self.held[index].admit(fits)

    def _sweep(self, now: float) -> None:
        for index, held in enumerate(self.held):
            for turn in held.expire(now):
                turn.refused = True
            self._release(index, now)

    def first_token(self, turn: Turn, now: float) -> None:
        """The first token was passed on."""
        index, pick = _kept(turn)
        self.balancers[index].placed.first_token(pick, now)

    def ended(self, turn: Turn, now: float) -> None:
        """The answer is complete; report its `usage`."""
        index, pick = _kept(turn)
        self.balancers[index].placed.end(pick, Usage(turn.prompt, turn.cached, turn.output), now)
        self._release(index, now)

    def lost(self, turn: Turn, now: float) -> None:
        """The engine died."""
        index, pick = _kept(turn)
        self.balancers[index].placed.release(pick, now)

    def _exchange(self, now: float) -> None:
        self._hurried.clear()
        for sender in range(len(self.balancers)):
            self._tell(sender, now)

    def _tell_soon(self, sender: int) -> None:
        """Tell the others before the next exchange, once."""
        if sender not in self._hurried:
            self._hurried.add(sender)
            self._world.at(self._world.now + URGENT_DELAY, lambda: self._tell(sender, self._world.now))

    def _tell(self, sender: int, now: float) -> None:
        balancer = self.balancers[sender]
        notes, loads = balancer.peers.export(now)
        prefixes = balancer.peers.export_prefixes()
        for other in self.balancers:
            if other is not balancer and not (self._loss and self._draw.random() < self._loss):
                other.peers.merge_prefixes(prefixes)
                other.peers.merge(sender, notes, loads, now)


BYTES = 4
"""Of a token."""


def marks_of(turn: Turn) -> tuple[list[PrefixKey], list[int]]:
    """The marks of a prompt beyond a declared one, as the router would cut its text, and the tokens of each."""
    marks, lengths = [], []
    at = last = 0
    for node, size in zip(turn.nodes, turn.sizes, strict=True):
        end = at + size * BYTES
        places = []
        while last + step_at(last) <= end:
            last += step_at(last)
            places.append(last)
        if end - last >= step_at(last) // NEAR:
            places.append(end)
            last = end
        for place in places:
            if place > turn.session.tier1 * BYTES or turn.session.group < 0:
                marks.append(PrefixKey(hash((node, place)) % 2**64))
                lengths.append(place // BYTES)
        at = end
    return marks, lengths


def _copy_rate(tier: TierModel, tokens: int) -> int:
    """Tokens a second of the copy that a warm-up waits for."""
    return int(tokens / (tier.latency + tokens * tier.token + COPY_OVERHEAD))


def _kept(turn: Turn) -> tuple[int, Pick]:
    pick = turn.pick
    assert isinstance(pick, tuple)  # noqa: S101 - placed by this class
    return pick
