"""Late binding: the router keeps requests whose replica is busy, and decides again at each event.

It is the project's policy with another queue before it. A request is sent only when the replica that it would choose
has at most `DEPTH` seconds of prefill left, so that the choice is made with what became known meanwhile. Requests that
wait are planned again at each arrival, first token and end. Their order is that of their response ratio, which is
(wait + own prefill) / own prefill, the highest first (HRRN, Brinch Hansen 1971): short ones go ahead, none starves.
"""

from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.turns import Turn
from promptgroup_research.simulator.world import HELD
from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.ids import MemberId
from promptgroup_router.rings.index import Member

DEPTH = 0.05
"""Seconds of prefill that a replica may have before a request is kept in the router."""
PLAN_SECONDS = 0.01
"""Time between two plans while no event happens: the wait of a replica shrinks meanwhile."""


class LateBinding(Ours):
    """The project's Balancer behind a queue in which requests wait for their replica.

    Args:
        routers: number of routers; each keeps its own requests.
        seed: seed of the random draws.
        depth: seconds of prefill that a replica may have before a request is kept in the router.
    """

    def __init__(self, *, routers: int = 1, seed: int = 0, depth: float = DEPTH) -> None:
        super().__init__(routers=routers, seed=seed)
        self.name = "late binding" + (f" x{routers}" if routers > 1 else "")
        self._depth = depth
        self._kept: list[list[Turn]] = [[] for _ in range(routers)]
        self._planned_until = -1.0

    def place(self, turn: Turn, now: float) -> int:
        """Keep the request, and send what can be sent."""
        index = 0 if len(self.balancers) == 1 else self._draw.randrange(len(self.balancers))
        self._kept[index].append(turn)
        self._plan(index, now)
        return HELD

    def first_token(self, turn: Turn, now: float) -> None:
        """Decide again, since a replica has less to do."""
        super().first_token(turn, now)
        self._plan_all(now)

    def ended(self, turn: Turn, now: float) -> None:
        """Decide again, since a replica may have room."""
        super().ended(turn, now)
        self._plan_all(now)

    def changed(self, now: float) -> None:
        """Decide again among other replicas."""
        super().changed(now)
        self._plan_all(now)

    def _plan_all(self, now: float) -> None:
        for index in range(len(self.balancers)):
            self._plan(index, now)

    def _plan(self, index: int, now: float) -> None:
        """Send the requests of one router whose replica is nearly idle, by their response ratio."""
        kept = self._kept[index]
        if not kept:
            return
        left: list[Turn] = []
        ahead: dict[MemberId, float] = {}
        ranked = sorted(
            ((self._ratio(index, turn, now), number, turn) for number, turn in enumerate(kept)),
            key=lambda item: (-item[0], item[1]),
        )
        for _, _, turn in ranked:
            if not self._send_or_keep(index, turn, now, ahead):
                left.append(turn)
        self._kept[index] = left
        if left and now >= self._planned_until:
            self._planned_until = now + PLAN_SECONDS
            self._world.at(now + PLAN_SECONDS, lambda: self._plan_all(self._world.now))

    def _ratio(self, index: int, turn: Turn, now: float) -> float:
        own = min(prefill for _, prefill, _, _ in self._costs(index, self._demand(turn), now))
        return (now - turn.arrived + own) / max(own, 1e-4)

    def _costs(self, index: int, demand: Demand, now: float) -> list[tuple[Member, float, float, tuple[float, bool]]]:
        balancer, pool = self.balancers[index], self._pool
        choice = balancer.preview(pool, demand, now)
        by_member = balancer.costs_by_member(pool, demand, choice.allowed, now)
        return [
            (member, cost.prefill, cost.wait, (cost.total, fits))
            for member in choice.allowed
            for cost, fits in (by_member[member.id],)
        ]

    def _send_or_keep(self, index: int, turn: Turn, now: float, ahead: dict[MemberId, float]) -> bool:
        """Send a request, queue it for capacity, or return False if it waits for its replica."""
        demand = self._demand(turn)
        costs = self._costs(index, demand, now)
        if not any(fits for _, _, _, (_, fits) in costs):
            self.held[index].put(turn, now, new=not turn.history)
            return True
        member, prefill, wait, _ = min(costs, key=lambda item: item[3][0] + ahead.get(item[0].id, 0.0))
        if wait + ahead.get(member.id, 0.0) > self._depth:
            ahead[member.id] = ahead.get(member.id, 0.0) + prefill
            return False
        others = [other.id for other, _, _, _ in costs if other is not member]
        pick = self.balancers[index].pick(self._pool, demand, now, others)
        if pick is None:
            self.held[index].put(turn, now, new=not turn.history)
            return True
        turn.pick = (index, pick)
        self._world.send(turn, pick.member.slot)
        return True
