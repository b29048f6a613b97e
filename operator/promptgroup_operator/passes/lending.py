"""The groups whose replicas lend to each other, as their own passes saw them last.

A pass sees one group; what it needs of the others each of them has left here. Losing it costs a look at each of them.
"""

import threading
from datetime import datetime, timedelta

from promptgroup_operator.base import durations
from promptgroup_operator.plan import desired
from promptgroup_operator.rollout import replica_split
from promptgroup_operator.world.load import GroupLoad, PoolMember
from promptgroup_operator.world.snapshot import GroupObject, Key, RevisionState
from promptgroup_router.contract.table import Sharing

KEPT = timedelta(minutes=3)
"""What is older says nothing of now: three looks at a group at rest."""

Pool = tuple[str, str, str]
"""Namespace, model, engine settings: what is alike in these lends, as routers see it."""


def pool_of(group: GroupObject) -> Pool | None:
    """The pool of a group; None when it keeps to itself."""
    if group.spec.routing.sharing is not Sharing.POOL or desired.template_problem(group) is not None:
        return None
    return group.key.namespace, group.spec.model, desired.engine_settings(group)


def member(group: GroupObject, revisions: tuple[RevisionState, ...], target: str, load: GroupLoad | None) -> PoolMember:
    """A group as the others of its pool see it."""
    spec, sizing = group.spec, group.spec.sizing
    fixed = spec.replicas if spec.replicas is not None else 1
    ttft = sizing.targets.ttft if sizing is not None else None
    return PoolMember(
        name=group.key.name,
        load=load,
        low=sizing.min_replicas if sizing is not None else fixed,
        high=sizing.max_replicas if sizing is not None else fixed,
        current=replica_split.wanted(revisions, target) or 0,
        ttft=durations.parse(ttft).total_seconds() if ttft is not None else None,
    )


class Lending:
    """Safe to use from many threads."""

    def __init__(self) -> None:
        self._pools: dict[Pool, dict[Key, tuple[datetime, PoolMember]]] = {}
        self._lock = threading.Lock()

    def others(self, group: GroupObject, own: PoolMember, now: datetime) -> tuple[PoolMember, ...]:
        """The other members of the group's pool, by name; from here on it is one of them as it is seen by `own`."""
        key, pool = group.key, pool_of(group)
        with self._lock:
            for known in self._pools.values():
                known.pop(key, None)
            if pool is None:
                return ()
            members = self._pools.setdefault(pool, {})
            for old in [each for each, (at, _) in members.items() if now - at > KEPT]:
                del members[old]
            found = tuple(found for _, (_, found) in sorted(members.items()))
            members[key] = now, own
            self._pools = {each: known for each, known in self._pools.items() if known}
            return found

    def forget(self, key: Key) -> None:
        """The group is gone."""
        with self._lock:
            for known in self._pools.values():
                known.pop(key, None)
