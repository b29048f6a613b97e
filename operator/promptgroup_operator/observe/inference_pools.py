"""Read the InferencePools of a group: its own, even if it is no longer desired, and the one that it joins.

They are read by name and not watched: their CRD belongs to another project and may be installed or removed at any time,
and the operator's role may not include it.
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
        """Groups that want no InferencePool, and for which a read showed that they own none."""

    def of(self, group: GroupObject) -> SeenPools:
        """Return the pools of a group, or the reason why they cannot be read."""
        key, desired = group.key, inference_pool.name(group)
        if not desired and key in self._without:
            return NO_POOLS
        both = {key.name, desired or key.name}
        read = {name: self._unwatched.get_if_readable(key, "InferencePool", name, REFERENCED_SECONDS) for name in both}
        refusal = next((pool[REFUSAL] for pool in read.values() if pool is not None and REFUSAL in pool), None)
        pools = {name: pool for name, pool in read.items() if pool is not None and REFUSAL not in pool}
        if desired:
            self._without.discard(key)
        elif not pools and not self._unwatched.cache.problem(key):
            self._without.add(key)
        return SeenPools(pools, _REFUSALS[refusal] if refusal is not None else None)

    def forget(self, key: Key) -> None:
        """Delete the state of a group that does not exist any more."""
        self._without.discard(key)
