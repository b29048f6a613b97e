"""Read the objects of one group: watched kinds from the stores, all others from the API server by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from time import monotonic

from pydantic import ValidationError

from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_contract.table import PromptRef
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.base.errors import StoredSpecError, UnreadError, UnreadGroupError
from promptgroup_operator.guests import host as guest_host
from promptgroup_operator.guests import record
from promptgroup_operator.guests import revisions as guest_revisions
from promptgroup_operator.guests.room import PromptRoom
from promptgroup_operator.kube.api_server import KubeClient
from promptgroup_operator.kube.store import Store
from promptgroup_operator.observe.cluster_state import ClusterState
from promptgroup_operator.observe.decode import group_of, pod_of
from promptgroup_operator.observe.inference_pools import InferencePools
from promptgroup_operator.observe.leaving_nodes import LeavingNodes
from promptgroup_operator.observe.neighbours import Neighbours
from promptgroup_operator.observe.prompt_rooms import PromptRooms
from promptgroup_operator.observe.revisions import Live, Revisions
from promptgroup_operator.observe.unwatched import REFERENCED_SECONDS, UnwatchedObjects
from promptgroup_operator.plan import desired, prompt_route, references, status
from promptgroup_operator.weights import prefetch
from promptgroup_operator.world.snapshot import (
    GroupObject,
    GuestSubject,
    Key,
    Manifest,
    Pod,
    Problem,
    PromptText,
)
from promptgroup_operator.world.trimmed import SHORTENED, WRITTEN


class GroupReader:
    """The reads of the cluster by passes, for one operator process. Safe to use from many threads.

    Args:
        client: client of the API server.
        stores: kind → store, for the kinds that are watched.
        nodes: the nodes that are about to go.
        clock: monotonic time in seconds, for the age of copies of unwatched objects.
    """

    def __init__(
        self,
        client: KubeClient,
        stores: Mapping[str, Store],
        nodes: LeavingNodes | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._stores = stores
        self._nodes = nodes or LeavingNodes(())
        self.unwatched = UnwatchedObjects(client, clock)
        self.neighbours = Neighbours(stores)
        self._revisions = Revisions(stores, self.unwatched)
        self._pools = InferencePools(self.unwatched)
        self._rooms = PromptRooms()

    def observe(self, key: Key) -> ClusterState | None:
        """Return the cluster state of the group; None if the group does not exist or is being deleted.

        For objects that cannot be read, the last copy is used, or they are unknown: `unwatched.problem` reports it.

        Raises:
            ClusterError: the API server does not respond.
            StoredSpecError: the group was stored under an older schema, which this version cannot apply.
            UnreadGroupError: an object cannot be read that is required for every decision.
        """
        raw = self._stores["PromptGroup"].get(key.namespace, key.name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            for memory in (self.unwatched.cache, self.neighbours, self._pools, self._rooms):
                memory.forget(key)
            return None
        self.unwatched.cache.begin_pass(key, raw[WRITTEN])
        try:
            if SHORTENED in raw:
                copy = self.unwatched.get(key, "PromptGroup", key.name)
                if copy is None:
                    return None
                raw = {**copy, "status": raw.get("status", {})}  # the copy's status may be older
            group = _group(key, raw)
            host = group.spec.engine_from
            return self._observe(group) if host is None else self._observe_guest(group, host.prompt_group)
        except UnreadError as error:
            raise UnreadGroupError(str(error), raw["metadata"]["generation"], raw.get("status", {})) from error

    def _observe(self, group: GroupObject) -> ClusterState:
        key = group.key
        live: Live = {
            (kind, manifest["metadata"]["name"]): manifest
            for kind in ("PodDisruptionBudget", "PromptRoute")
            for manifest in self._stores[kind].list_at(key)
        }
        text, fingerprint = self._text(group)
        route = live.get(("PromptRoute", key.name))
        standing = prompt_route.standing(route)
        deployments = self._revisions.deployments(group, [*standing, fingerprint])
        if isinstance(deployments, Problem):
            text, deployments = deployments, []
        live |= {(deployment["kind"], deployment["metadata"]["name"]): deployment for deployment in deployments}
        live |= self._weights_daemon_set(key)
        guests = self.neighbours.guest_routes(key)
        room = self._rooms.of(key, [*guests, *filter(None, [route])] if guests else [])
        pods = self._pods(key, group.spec.engine.port, room)
        return ClusterState(
            group,
            text,
            self._revisions.of(group, deployments, pods, standing, live),
            self.neighbours.siblings(group, fingerprint),
            live,
            self._pools.of(group),
            self.neighbours.others(group),
            guests=tuple(_subjects(guests)),
            guest_keys=tuple(self.neighbours.guests(key)),
            prompts=room.by_group,
            guests_routed=frozenset().union(*map(prompt_route.sends_to, guests)),
            adapters=frozenset().union(*map(prompt_route.served_adapters, [*guests, *filter(None, [route])])),
        )

    def _weights_daemon_set(self, key: Key) -> Live:
        name = prefetch.name(key.name)
        stored = self._stores[prefetch.KIND].get(key.namespace, name)
        daemon_set = self._revisions.with_template(key, stored) if stored is not None else None
        return {(prefetch.KIND, name): daemon_set} if daemon_set is not None else {}

    def _observe_guest(self, group: GroupObject, name: str) -> ClusterState:
        """Return the state of a guest: its revisions are recorded in its PromptRoute, and its pods are its host's."""
        key, routes = group.key, self._stores["PromptRoute"]
        serving = Key(key.namespace, name)
        route, hosts_route = routes.get(key.namespace, key.name), routes.get(key.namespace, name)
        live: Live = {("PromptRoute", key.name): route} if route is not None else {}
        spec, problem = self._host_spec(group, name)
        room = self._rooms.of(serving, [*self.neighbours.guest_routes(serving), *filter(None, [hosts_route])])
        pods = self._pods(serving, spec.engine.port, room) if spec is not None else []
        listed = prompt_route.states(hosts_route) if spec is not None else {}
        sleep, gateway = prompt_route.sleep_of(hosts_route), spec.gateway if spec is not None else None
        host = guest_host.replicas(name, pods, listed, problem, sleep=sleep, gateway=gateway)
        routed = route.get("spec", {}) if route is not None else {}
        model = routed.get("baseModel") or routed.get("model", "")
        group = replace(group, spec=guest_host.served(group.spec, spec, len(host.pods), model))
        standing, holding = prompt_route.standing(route), guest_revisions.holders(route)
        revisions = []
        for recorded in record.decode(route):
            source = PromptRef(recorded.prompt_kind, desired.name(group, recorded.fingerprint))
            revision = guest_revisions.revision(
                key.name,
                recorded,
                source,
                self._revisions.prompt(group, source, recorded.fingerprint, live),
                host,
                standing=standing.get(recorded.fingerprint, (0, {})),
                holding=holding.get(recorded.fingerprint, {}),
            )
            revisions.append(revision)
        text, fingerprint = self._text(group)
        return ClusterState(
            group,
            text,
            tuple(revisions),
            self.neighbours.siblings(group, fingerprint),
            live,
            others=self.neighbours.others(group),
            host=host,
            prompts=room.by_group,
        )

    def _host_spec(self, guest: GroupObject, name: str) -> tuple[PromptGroupSpec | None, Problem | None]:
        """Return the spec of a guest's host, or the reason why the host cannot serve the guest."""
        raw = self._stores["PromptGroup"].get(guest.key.namespace, name)
        if raw is not None and SHORTENED in raw:
            raw = self.unwatched.get(guest.key, "PromptGroup", name, REFERENCED_SECONDS)
        try:
            spec = _group(Key(guest.key.namespace, name), raw).spec if raw is not None else None
        except StoredSpecError as error:
            return None, Problem("HostInvalid", f"PromptGroup {name} ({guest_host.FIELD}): {error}")
        deleting = raw is not None and "deletionTimestamp" in raw["metadata"]
        problem = guest_host.problem(name, guest.spec, spec, deleting=deleting)
        return spec if problem is None else None, problem

    def _pods(self, key: Key, port: int, room: PromptRoom) -> list[Pod]:
        """Return the pods of a group, with the tokens of all prompts that are warm on each."""
        pods = [pod_of(pod, port, self._nodes.taint) for pod in self._stores["Pod"].list_at(key)]
        return [replace(pod, crowd=room.by_pod.get(pod.name, 0)) for pod in pods] if room.by_pod else pods

    def _text(self, group: GroupObject) -> tuple[PromptText | Problem, Fingerprint]:
        """Return the prompt that a group declares, and its fingerprint, which is empty if it cannot be served."""
        values, unread = {}, None
        for kind, name in references.references(group.spec):
            try:
                values[kind, name] = self.unwatched.values(group.key, kind, name)
            except UnreadError as error:  # it may exist nevertheless
                unread = unread or Problem(status.UNREAD, str(error))
        text = unread or references.resolve(group.spec, values)
        fingerprint = text.fingerprint if isinstance(text, PromptText) else Fingerprint("")
        self.neighbours.note_prompt(group.key, fingerprint)
        return text, fingerprint


def _subjects(routes: Iterable[Manifest]) -> Iterator[GuestSubject]:
    """Yield the revisions of guests that have slots in their PromptRoutes."""
    for route in routes:
        key = Key(route["metadata"]["namespace"], route["metadata"]["name"])
        for revision in route.get("spec", {}).get("revisions", []):
            if revision.get("slots"):
                yield GuestSubject(key, short(Fingerprint(revision["fingerprint"])), revision.get("tokens", 0))


def _group(key: Key, raw: Manifest) -> GroupObject:
    try:
        return group_of(key, raw)
    except ValidationError as error:
        # The field and the rule; never the value, which may be a prompt.
        faults = (
            f"spec.{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False)
        )
        raise StoredSpecError("; ".join(faults)[:500], raw["metadata"]["generation"], raw.get("status", {})) from None
