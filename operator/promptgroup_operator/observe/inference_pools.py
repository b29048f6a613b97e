"""Read the InferencePools of a group: its own, also one that it wants no more, and the one that it joins.

They are read by name and not watched: their CRD is others' and may come and go, and a role may leave it out.
"""

from promptgroup_operator.gateway import inference_pool
from promptgroup_operator.observe.unwatched import REFERENCED_SECONDS, REFUSAL, UnwatchedObjects
from promptgroup_operator.world.snapshot import NO_POOLS, GroupObject, Key, Problem, SeenPools

_REFUSALS = {
    404: Problem(
        "NoCRD",
        "the cluster has no InferencePools of inference.networking.k8s.io/v1: install the CRDs of Gateway API's "
        "Inference Extension, or remove spec.gateway",
    ),
    403: Problem(
        "NotAllowed", "the operator may not read InferencePools: apply the ClusterRole of the operator's version"
    ),
}


class InferencePools:
    """The InferencePools of all groups. Safe to use from many threads.

    Args:
        unwatched: reads objects by name.
    """

    def __init__(self, unwatched: UnwatchedObjects) -> None:
        self._unwatched = unwatched
        self._without: set[Key] = set()
        """Groups that want none, and were seen without one of their own."""

    def of(self, group: GroupObject) -> SeenPools:
        """Return the pools of a group, and why they cannot be seen."""
        key, desired = group.key, inference_pool.name(group)
        if not desired and key in self._without:
            return NO_POOLS
        both = {key.name, desired or key.name}
        read = {name: self._unwatched.if_known(key, "InferencePool", name, REFERENCED_SECONDS) for name in both}
        refusal = next((pool[REFUSAL] for pool in read.values() if pool is not None and REFUSAL in pool), None)
        pools = {name: pool for name, pool in read.items() if pool is not None and REFUSAL not in pool}
        if desired:
            self._without.discard(key)
        elif not pools and not self._unwatched.cache.problem(key):
            self._without.add(key)
        return SeenPools(pools, _REFUSALS[refusal] if refusal is not None else None)

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        self._without.discard(key)
