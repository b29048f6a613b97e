"""Read the inputs of a pass: the cluster, the engines that are due, the routers, and the servers of a KV pool.

An input that cannot be read is missing, and ends no pass.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from promptgroup_contract import engine_tls, names
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.base.errors import EngineError, UnreadError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.connections import EngineAccess, Trust
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.engines.pool_monitor import PoolMonitor
from promptgroup_operator.guests.revisions import with_outcomes
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.router_history import RELEASE_PERIOD
from promptgroup_operator.load.router_metrics import RouterCounts
from promptgroup_operator.load.router_scrape import RouterScraper
from promptgroup_operator.observe.cluster_state import ClusterState
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.passes.guest_proofs import GuestProofs
from promptgroup_operator.passes.refresh_runner import RefreshRunner
from promptgroup_operator.plan import desired, prompt_route
from promptgroup_operator.sizing import recommend
from promptgroup_operator.sleep import route_sleep
from promptgroup_operator.sleep.decision import WATCH
from promptgroup_operator.weights import prefetch
from promptgroup_operator.world.load import PERIOD
from promptgroup_operator.world.snapshot import (
    NO_CONTAINER,
    ContainerId,
    Key,
    Manifest,
    Pod,
    PoolAnswers,
    Problem,
    PromptText,
    Reading,
)

logger = logging.getLogger(__name__)

READERS = 16
"""Engines and routers that are read at the same time."""
READ_SECONDS = 10.0
"""Time for all engines of a group; one that answers later counts as not read, and the pass continues without it."""
READ_WARM_SECONDS = 0.25
"""The same while a replica that has just become warm waits for its slot."""
READ_ASLEEP = 0.9 * WATCH
"""Time between two readings of the routers of a group that sleeps: passes are not to the millisecond."""
JUST_WARM = timedelta(seconds=30)
"""Time for which a replica without a slot counts as one that has just become warm."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The inputs of a pass, before they are added to the memories."""

    state: ClusterState
    unread: Problem | None
    """The objects of the cluster that could not be read; None if there is none."""
    engines: Mapping[ContainerId, tuple[Fingerprint, Reading]]
    """Container of an engine → the fingerprint of its revision, and its counters."""
    routers: Mapping[ContainerId, Mapping[Key, RouterCounts]]
    """Container of a router → its counters for each group."""
    name_collisions: Mapping[tuple[str, str], Manifest]
    """Objects that have the names which the group's objects shall have, and that are not labelled as the group's."""
    peers_key: bool
    """True if the Secret exists with which the routers of the namespace authenticate each other."""
    pool: PoolAnswers | None
    """Answers of the servers of the group's KV pool; None if they are not monitored."""

    @property
    def released(self) -> bool:
        """True while more than one revision has replicas."""
        return _is_released(self.state)

    @property
    def containers(self) -> list[ContainerId]:
        """Containers of all engines of the group."""
        return [pod.container_id for revision in self.state.revisions for pod in revision.pods if pod.container_id]


class ReadingsReader:
    """Reads the inputs of a pass. Safe to use from many threads.

    Args:
        reader: of the cluster.
        engines: clients of the engines, which get the credentials of each engine here.
        history: readings of the engines; it decides which are due.
        refreshes: a container on which one runs is not read.
        guest_proofs: outcomes of warm-ups of guests that are not in their routes yet.
        settings: of the process.
    """

    def __init__(
        self,
        reader: GroupReader,
        engines: GroupEngines,
        *,
        history: EngineHistory,
        refreshes: RefreshRunner,
        guest_proofs: GuestProofs,
        settings: Settings,
    ) -> None:
        self._reader = reader
        self._unwatched = reader.unwatched
        self._engines = engines
        self._history = history
        self._refreshes = refreshes
        self._guest_proofs = guest_proofs
        self._observes_all = settings.observe == "all"
        self._pool = FairPool(READERS, "read")
        self._pool_monitor = PoolMonitor(engines.plain.text, self._pool)
        self._routers = RouterScraper(
            reader.unwatched.list_routers,
            lambda address, limit: engines.plain.text(address, limit=limit),
            reader.neighbours.has_group,
            settings.router_namespaces,
            self._pool,
        )

    def close(self) -> None:
        """Read no more."""
        self._pool.close()

    def read(self, key: Key, now: datetime) -> Readings | None:
        """Read the cluster, the engines and the routers; None if the group is gone."""
        state = self._reader.observe(key)
        if state is None:
            return None
        if state.host is not None:
            host = state.host
            outcomes = self._guest_proofs.of(key, {pod.container_id for pod in (*host.pods, *host.leaving)})
            state = replace(state, revisions=with_outcomes(state.revisions, outcomes, host.leaving))
        self._engines.authorize(key, self._accesses(state))
        return Readings(
            state=state,
            engines=self._read_engines(state, now),
            routers=self._read_routers(state, now),
            name_collisions=self._name_collisions(state),
            peers_key=self._has_peers_key(key),
            pool=self._ask_pool(state),
            unread=self._unwatched.problem(key),  # by all of the above
        )

    def _has_peers_key(self, key: Key) -> bool:
        try:
            return self._unwatched.get(key, "Secret", names.SECRET_PEERS) is not None
        except UnreadError:
            return True

    def _accesses(self, state: ClusterState) -> dict[ContainerId, EngineAccess]:
        """Return container of a running engine → its credentials and trust, which may differ from the current spec.

        A pod that ends keeps its address in its status, while the cluster may give the address to another pod.
        """
        pods = (pod for revision in state.revisions for pod in revision.pods)
        return {
            pod.container_id: self._access(state.group.key, pod)
            for pod in pods
            if pod.container_id != NO_CONTAINER and not pod.deleting
        }

    def _access(self, key: Key, pod: Pod) -> EngineAccess:
        secret, _, secret_key = pod.credential.partition("/")
        data = self._values(key, "Secret", secret) if pod.credential else {}
        credential = data.get(secret_key, "").strip()
        if not pod.tls:
            return EngineAccess(credential)
        tls = engine_tls.parse(pod.tls)
        bundles = self._values(key, tls.kind, tls.name) if tls is not None else {}
        # An unknown value is not trusted.
        trust = Trust(bundles.get(tls.key, ""), tls.server_name) if tls is not None else Trust("", "")
        return EngineAccess(credential, trust)

    def _values(self, key: Key, kind: str, name: str) -> Mapping[str, str]:
        try:
            return self._unwatched.values(key, kind, name) or {}
        except UnreadError:
            return {}

    def _read_engines(self, state: ClusterState, now: datetime) -> dict[ContainerId, tuple[Fingerprint, Reading]]:
        """Read the engines that drain or whose counters are due; the host's passes read those of a guest."""
        if state.host is not None:
            return {}
        due = [
            pod
            for revision in state.revisions
            for pod in revision.pods
            if pod.is_warm
            and not self._refreshes.runs(pod.container_id)
            and (pod.draining_since is not None or self._history.due(pod.container_id, now))
        ]
        dialect = DIALECTS[state.group.spec.engine.type]
        key = state.group.key
        seconds = READ_WARM_SECONDS if _is_awaited(state, now) else READ_SECONDS
        readings = self._pool.map(key.namespace, lambda pod: self._reading(key, pod, dialect), due, seconds)
        return {
            pod.container_id: (pod.fingerprint, reading)
            for pod, reading in zip(due, readings, strict=True)
            if reading is not None
        }

    def _reading(self, key: Key, pod: Pod, dialect: Dialect) -> Reading | None:
        try:
            return self._engines.of(key, pod.container_id).read(pod.address, dialect)
        except EngineError as error:
            logger.debug("pod %s: %s", pod.name, error)
            return None

    def _ask_pool(self, state: ClusterState) -> PoolAnswers | None:
        cache = state.group.spec.cache
        if state.host is not None or cache is None or cache.pool is None or cache.pool.monitor is None:
            return None
        return self._pool_monitor.ask(cache.pool, state.group.key.namespace)

    def _read_routers(self, state: ClusterState, now: datetime) -> dict[ContainerId, Mapping[Key, RouterCounts]]:
        """Read the routers that are due, while a release, the choice of what leaves or the load needs their figures."""
        often = _is_released(state) or _shrinks(state)
        if _sleeps(state):
            period = READ_ASLEEP
        elif often or self.observes(state):
            period = RELEASE_PERIOD if often else PERIOD
        else:
            return {}
        return self._routers.read(state.group.key.namespace, now, period)

    def _name_collisions(self, state: ClusterState) -> dict[tuple[str, str], Manifest]:
        """Read the objects that have the names which the target's objects shall have, without the group's label.

        Its Deployment is observed with those of all revisions.
        """
        text = state.prompt
        if not isinstance(text, PromptText):
            return {}
        name = desired.name(state.group, text.fingerprint)
        collisions = {}
        own = [("Secret" if text.secret else "ConfigMap", name)]
        if state.host is None:
            own.append(("PodDisruptionBudget", name))
            if prefetch.is_wanted(state.group.spec.engine):
                own.append((prefetch.KIND, prefetch.name(state.group.key.name)))
        for kind, name in own:
            if (kind, name) not in state.live:
                # an unreadable object is applied without force, which takes nothing over
                raw = self._unwatched.get_if_readable(state.group.key, kind, name, seconds=0)
                if raw is not None:
                    collisions[kind, name] = raw
        return collisions

    def observes(self, state: ClusterState) -> bool:
        """Return True if the load of a group is wanted."""
        return self._observes_all or state.group.spec.sizing is not None


def _is_released(state: ClusterState) -> bool:
    return sum(revision.alive > 0 for revision in state.revisions) > 1


def _is_awaited(state: ClusterState, now: datetime) -> bool:
    """Return True if a replica that has just become warm has no slot yet."""
    return any(
        pod.is_warm and pod.slot is None and pod.warm.since is not None and now - pod.warm.since < JUST_WARM
        for revision in state.revisions
        for pod in revision.pods
        if pod.warm is not None
    )


def _sleeps(state: ClusterState) -> bool:
    """Return True if a request must wake the group."""
    if state.host is not None or not route_sleep.may_sleep(state.group.spec):
        return False
    sleep = prompt_route.sleep_of(state.live.get(("PromptRoute", state.group.key.name)))
    return sleep is not None and sleep.since != ""


def _shrinks(state: ClusterState) -> bool:
    """Return True if a group with a fixed number of replicas has more than that."""
    spec = state.group.spec
    return spec.sizing is None and sum(revision.alive for revision in state.revisions) > recommend.least(spec)
