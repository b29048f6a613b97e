"""The project's router with several groups that have slots of their own, behind soft or hard borders.

Soft (`sharing: Pool`): a group's own slots are warm for it and preferred, the others serve its overflow. Hard
(`sharing: Dedicated`): they do not, as with a Deployment for each group.
"""

from collections.abc import Sequence

from promptgroup_contract.table import Engine, Group, Sharing
from promptgroup_research.policies.ours import MODEL, Ours
from promptgroup_research.simulator.turns import Session
from promptgroup_router.rings.index import Candidates, RoutingIndex

REST = -1
"""The group of requests that share nothing: behind soft borders any replica serves them."""


class Borders(Ours):
    """`owned`: (group, number of its own engines), the engines assigned in this order."""

    def __init__(self, owned: Sequence[tuple[int, int]], *, hard: bool, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.name = "promptgroup, " + ("hard borders" if hard else "soft borders")
        self._owned = owned
        self._hard = hard

    def _groups(self, engine: Engine) -> tuple[Group, ...]:
        result = []
        begin = 0
        for group, count in self._owned:
            sharing = Sharing.DEDICATED if self._hard else Sharing.POOL
            result.append(self._group(f"group{group}", range(begin, begin + count), engine, sharing))
            begin += count
        return tuple(result)

    def _read(self, view: RoutingIndex) -> None:
        revisions = {group: view.names[f"group{group}"].revisions[0] for group, _ in self._owned}
        self._pools = {group: revision.candidates for group, revision in revisions.items()}
        first = view.models[MODEL].first
        assert first is not None  # noqa: S101 - the groups have no tenants
        self._pools.setdefault(REST, first.candidates)
        self._prefixes = {group: revision.prefix for group, revision in revisions.items() if group != REST}

    def _pool_of(self, session: Session) -> Candidates:
        # the prefix for which the operator has warmed a group's slots is identified by the revision's hash
        session.prefix = self._prefixes.get(session.group, session.prefix)
        return self._pools[session.group]
