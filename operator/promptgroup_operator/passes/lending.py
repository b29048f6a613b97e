"""The groups whose replicas lend to each other, with the figures of their latest passes.

A pass observes one group; the figures of the others are stored here by their own passes. If they are lost, each group's
next pass restores them.
"""

import threading
from datetime import datetime, timedelta
from operator import attrgetter

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import NO_RULES, CallerRules
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import Sharing
from promptgroup_operator.api.access import to_contract
from promptgroup_operator.base import durations
from promptgroup_operator.plan import desired
from promptgroup_operator.plan.prompt_route import caller_rules
from promptgroup_operator.rollout import replica_split
from promptgroup_operator.world.load import GroupLoad, PoolMember
from promptgroup_operator.world.snapshot import GroupObject, Key, RevisionState

MEMBER_LIFETIME = timedelta(minutes=3)
"""Age beyond which a group's figures are dropped: three passes of a group at rest."""

Pool = tuple[str, str, str, Access | None, CallerRules]
"""Namespace, model, engine settings, access, rules for callers: groups that share all five lend to each other."""
NO_POOL: Pool = ("", "", "", None, NO_RULES)


def pool_of(group: GroupObject) -> Pool | None:
    """Return the pool of a group; None if it is Dedicated, or its template is invalid."""
    if group.spec.routing.sharing is not Sharing.POOL or desired.template_problem(group) is not None:
        return None
    spec = group.spec
    rules = caller_rules(spec).without_limits
    return group.key.namespace, spec.model, desired.engine_settings(group), to_contract(spec.access), rules


def member(
    group: GroupObject, revisions: tuple[RevisionState, ...], target: Fingerprint, load: GroupLoad | None
) -> PoolMember:
    """Return the figures of a group that the others of its pool need."""
    spec, sizing = group.spec, group.spec.sizing
    fixed = spec.replicas if spec.replicas is not None else 1
    ttft = sizing.targets.ttft if sizing is not None else None
    return PoolMember(
        name=group.key.name,
        load=load,
        low=max(1, sizing.min_replicas) if sizing is not None else fixed,
        high=sizing.max_replicas if sizing is not None else fixed,
        current=replica_split.wanted(revisions, target) or 0,
        ttft=durations.parse(ttft).total_seconds() if ttft is not None else None,
    )


class Lending:
    """The members of all pools. Safe to use from many threads."""

    def __init__(self) -> None:
        self._pools: dict[Pool, dict[Key, tuple[datetime, PoolMember]]] = {}
        self._pool_of: dict[Key, Pool] = {}
        self._lock = threading.Lock()

    def others(self, group: GroupObject, now: datetime) -> tuple[PoolMember, ...]:
        """Return the other members of the group's pool, by name."""
        with self._lock:
            members = self._pools.get(pool_of(group) or NO_POOL, {})
            pool_members = [
                member for key, (at, member) in members.items() if key != group.key and now - at <= MEMBER_LIFETIME
            ]
        return tuple(sorted(pool_members, key=attrgetter("name")))

    def put(self, group: GroupObject, member: PoolMember, now: datetime) -> None:
        """Replace the figures of a group."""
        pool = pool_of(group)
        with self._lock:
            if self._pool_of.get(group.key) != pool:
                self._drop(group.key)
            if pool is not None:
                self._pool_of[group.key] = pool
                self._pools.setdefault(pool, {})[group.key] = now, member

    def forget(self, key: Key) -> None:
        """Delete the figures of a group that does not exist any more."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        pool = self._pool_of.pop(key, None)
        if pool is None:
            return
        del self._pools[pool][key]
        if not self._pools[pool]:
            del self._pools[pool]
