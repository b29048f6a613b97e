"""Build the world that a pass decides on, from current readings and from the memories of earlier passes.

The memories may be lost: the next process begins with none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines import tiers
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.guests import copies
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.load_source import LoadSource, ScrapedLoad, load_subject
from promptgroup_operator.load.prometheus import Prometheus
from promptgroup_operator.load.router_history import RouterHistory
from promptgroup_operator.observe.cluster_state import ClusterState
from promptgroup_operator.passes import lending
from promptgroup_operator.passes.lending import Lending
from promptgroup_operator.passes.readings import Readings, ReadingsReader
from promptgroup_operator.passes.refresh_runner import RefreshRunner
from promptgroup_operator.world.load import ClientLoad, GroupLoad
from promptgroup_operator.world.snapshot import (
    ContainerId,
    GroupObject,
    Key,
    Pod,
    PromptText,
    Reading,
    RevisionState,
    World,
)

SWEEP = timedelta(seconds=15)
"""Time between two sweeps of outdated readings of all engines and routers."""


class Observer:
    """Observes groups, and stores the counters of their engines and routers. Safe to use from many threads.

    Args:
        readings: reads the inputs of a pass.
        history: of the engines.
        refreshes: the times at which prefixes were last seen in caches.
        settings: of the process.
    """

    def __init__(
        self,
        readings: ReadingsReader,
        history: EngineHistory,
        refreshes: RefreshRunner,
        settings: Settings,
    ) -> None:
        self._readings = readings
        self._engine_history = history
        self._router_history = RouterHistory()
        self._refreshes = refreshes
        self._prometheus = Prometheus(settings, history) if settings.prometheus_url else None
        self._source: LoadSource = self._prometheus or ScrapedLoad(history, self._router_history)
        self._refresh_every = timedelta(seconds=settings.refresh_seconds)
        self._lending = Lending()
        self._first_seen: dict[Key, datetime] = {}
        self._host_clients: dict[Key, ClientLoad] = {}
        """Host → load of its own clients and of those of its guests, at its latest pass."""
        self._swept = datetime.min.replace(tzinfo=UTC)

    def close(self) -> None:
        """Read no more."""
        self._readings.close()
        if self._prometheus is not None:
            self._prometheus.close()

    def forget(self, key: Key) -> None:
        """Delete the state of a group that does not exist any more."""
        self._lending.forget(key)
        self._first_seen.pop(key, None)
        self._host_clients.pop(key, None)

    def observe(self, key: Key, now: datetime) -> World | None:
        """Return a snapshot of the group's world; None if the group is gone.

        Raises:
            ClusterError: the API server did not answer or refused.
        """
        readings = self._readings.read(key, now)
        if readings is None:
            return None
        self.remember(readings, now)
        world = self.snapshot(readings, now)
        target = world.prompt.fingerprint if isinstance(world.prompt, PromptText) else Fingerprint("")
        self._lending.put(world.group, lending.member(world.group, world.revisions, target, world.load), now)
        return world

    def remember(self, readings: Readings, now: datetime) -> None:
        """Add readings to the memories, and delete outdated ones. Does no I/O; no other method changes the memories."""
        state, key = readings.state, readings.state.group.key
        self._first_seen.setdefault(key, now)
        self._engine_history.begin(now)
        for container, (fingerprint, reading) in readings.engines.items():
            self._engine_history.add(container, reading, now, (key, fingerprint))
        for router, counts in readings.routers.items():
            self._router_history.add(router, counts, now)
        if readings.released:
            self._router_history.begin(key, _step(state.revisions))
        for pod in (pod for revision in state.revisions for pod in revision.pods):
            if pod.container_id in readings.engines:
                self._refreshes.record(pod, readings.engines[pod.container_id][1], now)
            elif state.host is not None and pod.is_warm:  # the host's passes read its engines
                latest = self._engine_history.latest(pod.container_id)
                if latest is not None:
                    self._refreshes.record(pod, latest, now)
        if now - self._swept >= SWEEP:  # of all groups: once for many passes
            self._swept = now
            for memory in (self._engine_history, self._router_history, self._refreshes):
                memory.forget(now)

    def snapshot(self, readings: Readings, now: datetime) -> World:
        """Return the world that a pass decides on, from readings and memories. Changes neither."""
        state, key = readings.state, readings.state.group.key
        load = self._load(state, now)
        history = self._engine_history.found_tokens(readings.containers if state.host is None else ())
        hit_rate, tier_hit_rate = history.rates
        if state.host is not None and load is not None and load.clients is not None:  # engines count all prompts
            hit_rate = load.clients.hit_rate
        return World(
            group=self._with_copies(state, load),
            prompt=state.prompt,
            revisions=tuple(
                self._with_readings(key, revision, readings.engines, now, shared=state.host is not None)
                for revision in state.revisions
            ),
            siblings=state.siblings,
            others=state.others,
            live={**state.live, **readings.name_collisions},
            traffic=self._router_history.traffic(key, now) if readings.released else None,
            load=load,
            pool=self._lending.others(state.group, now) if state.group.spec.sizing is not None else (),
            hit_rate=hit_rate,
            tier_hit_rate=tier_hit_rate,
            tier_hit_rates=history.rates_by_source,
            pool_answers=readings.pool,
            unread=readings.unread,
            first_seen=self._first_seen.get(key),
            peers_key=readings.peers_key,
            refresh_every=self._refresh_every,
            inference_pools=state.inference_pools,
            host=state.host,
            prompts=state.prompts,
            guests_routed=state.guests_routed,
            adapters=state.adapters,
            calls=self._router_history.calls((key, *state.guest_keys), now),
        )

    def _with_copies(self, state: ClusterState, load: GroupLoad | None) -> GroupObject:
        """Return the group; a guest whose placement has bounds gets the number of replicas that its load requires."""
        key, clients = state.group.key, load.clients if load is not None else None
        if state.host is None:
            if state.guests and clients is not None:
                self._host_clients[key] = clients
            return state.group
        share = copies.share(clients, self._host_clients.get(Key(key.namespace, state.host.name)))
        return copies.placed(state.group, state.host, state.revisions, share)

    def _load(self, state: ClusterState, now: datetime) -> GroupLoad | None:
        """Return the load of the revision with most of the traffic; None where none is wanted or ready."""
        if not self._readings.observes(state):
            return None
        serving = max(state.revisions, key=lambda revision: (revision.weight, revision.ready), default=None)
        if serving is None or not serving.ready:
            return None
        metric_names = DIALECTS[state.group.spec.engine.type].metrics
        is_guest = state.host is not None
        subject = load_subject(state.group.key, serving, metric_names)
        subject = replace(subject, guests=state.guests, is_guest=is_guest)
        load = self._source.load(subject, now)
        if load.engines is not None:
            load = replace(load, engines=replace(load.engines, ranks=subject.ranks))
        return replace(load, tiers=tiers.reach(state.group.spec))

    def _with_readings(
        self,
        key: Key,
        revision: RevisionState,
        readings: Mapping[ContainerId, tuple[Fingerprint, Reading]],
        now: datetime,
        *,
        shared: bool,
    ) -> RevisionState:
        """Return a revision with the readings of its engines; `shared` engines also serve other groups."""

        def with_reading(pod: Pod) -> Pod:
            reading = readings[pod.container_id][1] if pod.container_id in readings else None
            busy = reading.busy if reading is not None else None
            seen = self._refreshes.last_seen(pod.container_id, pod.fingerprint)
            return replace(pod, in_flight=busy, last_seen=seen)

        pods = tuple(with_reading(pod) for pod in revision.pods)
        quiet = self._engine_history.quiet_since(pod.container_id for pod in pods) if not shared else None
        use = self._router_history.slot_use(key, short(revision.fingerprint), now)
        return replace(revision, pods=pods, quiet_since=quiet, use=use)


def _step(revisions: Iterable[RevisionState]) -> list[tuple[Fingerprint, int, bool]]:
    """Return what identifies the step of a release: samples begin anew when it changes."""
    return sorted(
        (revision.fingerprint, revision.progress.weight, revision.progress.since is not None)
        for revision in revisions
        if revision.progress is not None
    )
