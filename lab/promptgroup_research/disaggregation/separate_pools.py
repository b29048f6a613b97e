"""The project's router with two groups of engines: one for requests that share nothing, one for all others.

It keeps long prompts away from the answers of others, as prefill engines do, and transfers nothing.
"""

from promptgroup_contract.table import Engine, Group, Sharing
from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.turns import Session
from promptgroup_router.rings.index import Candidates, RoutingIndex

UNSHARED, SHARED = "unshared", "shared"


class SeparatePools(Ours):
    """Two groups that lend each other nothing (`sharing: Dedicated`).

    Args:
        unshared: engines for requests that belong to no group, the first ones.
        seed: seed of the random draws.
    """

    def __init__(self, unshared: int, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.name = f"promptgroup, {unshared} engines for what is not shared"
        self._unshared = unshared

    def _groups(self, engine: Engine) -> tuple[Group, ...]:
        count = len(self._world.engines)
        parts = {UNSHARED: range(self._unshared), SHARED: range(self._unshared, count)}
        return tuple(self._group(name, part, engine, Sharing.DEDICATED) for name, part in parts.items())

    def _read(self, view: RoutingIndex) -> None:
        self._pools = {name: view.names[name].revisions[0].candidates for name in (UNSHARED, SHARED)}

    def _pool_of(self, session: Session) -> Candidates:
        return self._pools[UNSHARED if session.group < 0 else SHARED]
