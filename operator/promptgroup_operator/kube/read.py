"""Read what the API server holds for one group: watched kinds from the stores, all others by name through the cache."""

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from time import monotonic

from pydantic import ValidationError

from promptgroup_contract import names
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_contract.table import MESSAGES_KEY, SYSTEM_KEY, TOOLS_KEY, Prompt, PromptRef, SlotState
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.base.errors import ClusterError, StoredSpecError, UnreadError, UnreadGroupError
from promptgroup_operator.gateway import inference_pool
from promptgroup_operator.guests import host as guest_host
from promptgroup_operator.guests import record
from promptgroup_operator.guests import revisions as guest_revisions
from promptgroup_operator.guests import room as guest_room
from promptgroup_operator.kube.api_server import KubeClient, collection_path, list_objects, object_path
from promptgroup_operator.kube.decode import (
    fingerprint_of,
    group_of,
    pod_of,
    prompt_ref,
    revision_of,
    router_of,
)
from promptgroup_operator.kube.get_cache import KEPT_SECONDS, GetCache
from promptgroup_operator.kube.store import Store
from promptgroup_operator.plan import desired, prompt_route, references, status, validate
from promptgroup_operator.plan.prompt import BINARY, NOT_TEXT, Texts
from promptgroup_operator.world.kept import DIGEST, SHORTENED, WRITTEN, digest, host_of, whole, with_template
from promptgroup_operator.world.snapshot import (
    NO_POOLS,
    ContainerId,
    GroupObject,
    GuestSubject,
    Host,
    Key,
    Manifest,
    OtherGroup,
    Pod,
    Problem,
    PromptText,
    RevisionState,
    SeenPools,
    Sibling,
)

_TEMPLATE_HASH = "pod-template-hash"
"""Label that Kubernetes adds to the template of a ReplicaSet."""
LABEL_NAME = "app.kubernetes.io/name"
"""Kubernetes' recommended label, by which the routers' pods are found."""

OWN_SECONDS = 600.0
"""Age up to which a copy of an object that the operator wrote is used: prompt objects are immutable, and one that was
deleted is missed by new routers only."""
REFERENCED_SECONDS = 10.0
"""The same for objects of users: an edit must be noticed by the next pass of a group at rest (plan.REFERENCED)."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of the API server for one group, before its engines are read."""

    group: GroupObject
    prompt: PromptText | Problem
    """The prompt that it declares, or why it cannot be served."""
    revisions: tuple[RevisionState, ...]
    siblings: tuple[Sibling, ...]
    live: Mapping[tuple[str, str], Manifest]
    """(kind, name) → object, for every object of the group."""
    inference_pools: SeenPools = NO_POOLS
    """The InferencePools that matter to it."""
    others: tuple[OtherGroup, ...] = ()
    """The other groups of the namespace; empty where the group's model has no aliases."""
    host: Host | None = None
    """The group whose replicas serve it; None for one with an engine of its own."""
    guests: tuple[GuestSubject, ...] = ()
    """The revisions of its guests that are routed to its replicas."""
    prompts: Mapping[str, int] = field(default_factory=dict)
    """Group → tokens of its prompts on one replica, of a host that has guests and of them; else empty."""
    guests_routed: frozenset[str] = frozenset()
    """Its pods that routes of its guests let routers send to."""


_REFUSAL = "refusal"
"""Key of what stands for an InferencePool that the API server does not let the operator see → its status."""
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


class ClusterReader:
    """The reads of the cluster by passes, for one operator process. Safe to use from many threads.

    Args:
        client: client of the API server.
        stores: kind → store, for the kinds that are watched.
        clock: monotonic time in seconds, by which copies of what is not watched grow old.
    """

    def __init__(self, client: KubeClient, stores: Mapping[str, Store], clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._stores = stores
        self._without_pool: set[Key] = set()
        """Groups that want no InferencePool, and were seen without one of their own."""
        self._prompts: dict[Key, Fingerprint] = {}
        """Group → fingerprint of the prompt that its latest pass read; empty if there was none to serve."""
        self.cache = GetCache(self._get, clock, self.is_away)

    def observe(self, key: Key) -> ClusterState | None:
        """Return what the API server holds for the group; None if the group is gone or being deleted.

        What cannot be read is taken as it was read last, or as not known: `problem` tells it.

        Raises:
            ClusterError: the API server does not answer.
            StoredSpecError: the group was stored under an older schema, which this version cannot act on.
            UnreadGroupError: an object cannot be read without which nothing can be decided.
        """
        raw = self._stores["PromptGroup"].get(key.namespace, key.name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            self.cache.forget_group(key)
            self._without_pool.discard(key)
            self._prompts.pop(key, None)
            return None
        self.cache.begin_pass(key, raw[WRITTEN])
        try:
            return self._observe(key, raw)
        except UnreadError as error:
            raise UnreadGroupError(str(error), raw["metadata"]["generation"], raw.get("status", {})) from error

    def _observe(self, key: Key, raw: Manifest) -> ClusterState | None:
        if SHORTENED in raw:
            manifest = self.get_cached(key, "PromptGroup", key.name)
            if manifest is None:
                return None
            raw = {**manifest, "status": raw.get("status", {})}  # the copy's status may be older
        group = _group(key, raw)
        if group.spec.engine_from is not None:
            return self._observe_guest(group, group.spec.engine_from.prompt_group)
        live: dict[tuple[str, str], Manifest] = {}
        for kind in ("PodDisruptionBudget", "PromptRoute"):
            for item in self._stores[kind].list_group(key):
                live[kind, item["metadata"]["name"]] = item
        text = self._text(group)
        fingerprint = text.fingerprint if isinstance(text, PromptText) else Fingerprint("")
        self._prompts[key] = fingerprint  # before others are looked at: of two groups one sees the other
        standing = prompt_route.standing(live.get(("PromptRoute", key.name)))
        deployments = self._deployments(group)
        deployments += self._unlabelled(group, text, standing, {item["metadata"]["name"] for item in deployments})
        live |= {("Deployment", item["metadata"]["name"]): item for item in deployments}
        pods = [pod_of(item, group.spec.engine.port) for item in self._stores["Pod"].list_group(key)]
        guests = self._guest_routes(key)
        room = guest_room.taken([*guests, *filter(None, [live.get(("PromptRoute", key.name))])] if guests else [])
        pods = _crowded(pods, room) if guests else pods
        revisions = []
        for deployment in deployments:
            deleting = "deletionTimestamp" in deployment["metadata"]
            if not deleting and validate.is_owned(group, deployment) and fingerprint_of(deployment):
                revisions.append(self._revision(group, deployment, pods, standing, live))
        return ClusterState(
            group,
            text,
            tuple(revisions),
            self._siblings(group, fingerprint),
            live,
            self._inference_pools(group),
            self._others(group),
            guests=tuple(_subjects(guests)),
            prompts=room.by_group,
            guests_routed=frozenset().union(*map(prompt_route.sends_to, guests)),
        )

    def _observe_guest(self, group: GroupObject, name: str) -> ClusterState:
        """Return the state of a guest: its revisions are what its PromptRoute remembers, over the pods of its host."""
        key = group.key
        routes = self._stores["PromptRoute"]
        live: dict[tuple[str, str], Manifest] = {}
        route = routes.get(key.namespace, key.name)
        if route is not None:
            live["PromptRoute", key.name] = route
        spec, problem = self._host_spec(group, name)
        serving = Key(key.namespace, name)
        room = guest_room.taken([*self._guest_routes(serving), *filter(None, [routes.get(key.namespace, name)])])
        listed = prompt_route.states(routes.get(key.namespace, name)) if spec is not None else {}
        pods = self._stores["Pod"].list_group(serving) if spec is not None else []
        port = (spec or group.spec).engine.port
        seen = _crowded([pod_of(pod, port) for pod in pods], room)
        host = guest_host.replicas(name, seen, listed, problem, spec.gateway if spec is not None else None)
        model = route.get("spec", {}).get("model", "") if route is not None else ""
        group = replace(group, spec=guest_host.served(group.spec, spec, len(host.pods), model))
        standing, holding = prompt_route.standing(route), guest_revisions.holders(route)
        revisions = []
        for recorded in record.decode(route):
            source = PromptRef(recorded.prompt_kind, desired.name(group, recorded.fingerprint))
            revision = guest_revisions.revision(
                key.name,
                recorded,
                source,
                self._prompt(group, source, recorded.fingerprint, live),
                host,
                standing=standing.get(recorded.fingerprint, (0, {})),
                holding=holding.get(recorded.fingerprint, {}),
            )
            revisions.append(revision)
        text = self._text(group)
        fingerprint = text.fingerprint if isinstance(text, PromptText) else Fingerprint("")
        self._prompts[key] = fingerprint
        return ClusterState(
            group,
            text,
            tuple(revisions),
            self._siblings(group, fingerprint),
            live,
            others=self._others(group),
            host=host,
            prompts=room.by_group,
        )

    def _host_spec(self, guest: GroupObject, name: str) -> tuple[PromptGroupSpec | None, Problem | None]:
        """Return the spec of a guest's host, and why that can serve no guest; no spec where nothing of it can."""
        raw = self._stores["PromptGroup"].get(guest.key.namespace, name)
        if raw is not None and SHORTENED in raw:
            raw = self.get_cached(guest.key, "PromptGroup", name, REFERENCED_SECONDS)
        try:
            spec = _group(Key(guest.key.namespace, name), raw).spec if raw is not None else None
        except StoredSpecError as error:
            return None, Problem("HostInvalid", f"PromptGroup {name} ({guest_host.FIELD}): {error}")
        deleting = raw is not None and "deletionTimestamp" in raw["metadata"]
        problem = guest_host.problem(name, guest.spec, spec, deleting=deleting)
        return spec if problem is None else None, problem

    def _guest_routes(self, key: Key) -> list[Manifest]:
        """Return the PromptRoutes of a group's guests."""
        guests = self._stores["PromptGroup"].list_guests(key)
        routes = (self._stores["PromptRoute"].get(guest.namespace, guest.name) for guest in guests)
        return [route for route in routes if route is not None]

    def _text(self, group: GroupObject) -> PromptText | Problem:
        values, unread = {}, None
        for kind, name in references.references(group.spec):
            try:
                values[kind, name] = self.values(group.key, kind, name)
            except UnreadError as error:  # which is not to say that it does not exist
                unread = unread or Problem(status.UNREAD, str(error))
        return unread or references.resolve(group.spec, values)

    def problem(self, key: Key) -> Problem | None:
        """Return what this pass could not read of a group, in the API server's words; None if it read all."""
        words = self.cache.problem(key)
        return Problem(status.UNREAD, words) if words else None

    def if_known(self, key: Key, kind: str, name: str, seconds: float = OWN_SECONDS) -> Manifest | None:
        """Return an object as `get_cached` does; None also if nobody can know whether it exists."""
        try:
            return self.get_cached(key, kind, name, seconds)
        except UnreadError:
            return None

    def has_group(self, key: Key) -> bool:
        """Return True if there is a PromptGroup of this name."""
        return self._stores["PromptGroup"].get(key.namespace, key.name) is not None

    def get_cached(self, key: Key, kind: str, name: str, seconds: float = OWN_SECONDS) -> Manifest | None:
        """Return an object of the group's namespace as it was at most `seconds` ago; None if there is none.

        Raises:
            UnreadError: it cannot be read, and never was.
            ClusterError: the API server does not answer.
        """
        return self.cache.get(key, kind, name, seconds)

    def is_away(self, key: Key) -> bool:
        """Return True if the API server does not answer when it is asked for a group, or cannot serve it now."""
        try:
            self._get("PromptGroup", key.namespace, key.name)
        except ClusterError as error:
            return error.may_be_outage
        return False

    def routes(self, namespace: str) -> dict[Key, Manifest]:
        """Return the PromptRoutes of a namespace whose groups exist."""
        result = {
            Key(namespace, item["metadata"]["name"]): item
            for item in self._stores["PromptRoute"].list_namespace(namespace)
        }
        return {key: route for key, route in result.items() if self.has_group(key)}

    def values(self, key: Key, kind: str, name: str) -> Mapping[str, str] | None:
        """Return the data of a ConfigMap or Secret of the group's namespace, as text; None if there is none.

        Raises:
            UnreadError: it cannot be read, and never was.
            ClusterError: the API server does not answer.
        """
        result = self.cache.get(key, kind, name, REFERENCED_SECONDS)
        return _decoded(result) if result is not None else None

    def list_routers(self, namespace: str) -> dict[ContainerId, str]:
        """Return the routers and pickers that run in a namespace: container → address of the admin port.

        Raises:
            ClusterError: the API server did not answer or refused.
        """
        query = {"labelSelector": f"{LABEL_NAME} in ({names.ROUTER},{names.PICKER})"}
        result, _ = list_objects(self._client, collection_path("Pod", namespace), query, _router)
        return {ContainerId(container): address for item in result for container, address in item.items()}

    def _inference_pools(self, group: GroupObject) -> SeenPools:
        """Return the group's InferencePools: its own, also one that it wants no more, and the one that it joins.

        They are read by name and not watched: their CRD is others' and may come and go, and a role may leave it out.
        """
        key, wanted = group.key, inference_pool.name(group)
        if not wanted and key in self._without_pool:
            return NO_POOLS
        both = {key.name, wanted or key.name}
        read = {name: self.if_known(key, "InferencePool", name, REFERENCED_SECONDS) for name in both}
        refusal = next((pool[_REFUSAL] for pool in read.values() if pool is not None and _REFUSAL in pool), None)
        pools = {name: pool for name, pool in read.items() if pool is not None and _REFUSAL not in pool}
        if wanted:
            self._without_pool.discard(key)
        elif not pools and not self.cache.problem(key):
            self._without_pool.add(key)
        return SeenPools(pools, _REFUSALS[refusal] if refusal is not None else None)

    def _deployments(self, group: GroupObject) -> list[Manifest]:
        """Return the Deployments with the group's label, its own ones with their templates."""
        result = (
            self._with_template(group.key, item) if validate.is_owned(group, item) else item
            for item in self._stores["Deployment"].list_group(group.key)
        )
        return [item for item in result if item is not None]

    def _unlabelled(
        self, group: GroupObject, text: PromptText | Problem, standing: Collection[Fingerprint], listed: Collection[str]
    ) -> list[Manifest]:
        """Return the Deployments that have names of the group's revisions and not its label, which no watch shows.

        The revisions are known from the spec, the route and the status. One whose label somebody removed must not seem
        to be gone, with all that it serves: it is observed like the others, and the pass restores the label.
        """
        fingerprints = {Fingerprint(revision.get("fingerprint", "")) for revision in group.status.get("revisions", [])}
        fingerprints |= {*standing, *([text.fingerprint] if isinstance(text, PromptText) else [])}
        missing = {desired.name(group, fingerprint): fingerprint for fingerprint in fingerprints if fingerprint}
        manifests = (self._unlabelled_one(group, name, missing[name]) for name in sorted(missing.keys() - set(listed)))
        return [item for item in manifests if item is not None]

    def _unlabelled_one(self, group: GroupObject, name: str, fingerprint: Fingerprint) -> Manifest | None:
        try:
            return self.get_cached(group.key, "Deployment", name, seconds=0)
        except UnreadError:
            pods = (pod_of(item, group.spec.engine.port) for item in self._stores["Pod"].list_group(group.key))
            if any(pod.fingerprint == fingerprint for pod in pods):
                raise
            return None  # it has no pods

    def _with_template(self, key: Key, deployment: Manifest) -> Manifest | None:
        """Return a Deployment as it stands; None if it is gone. A template that is not kept is read unless known."""
        if SHORTENED not in deployment:
            return with_template(deployment)
        for seconds in (KEPT_SECONDS, 0.0):
            copy = self.get_cached(key, "Deployment", deployment["metadata"]["name"], seconds)
            if copy is None:
                return None
            if digest(copy["spec"].get("template")) == deployment[DIGEST]:
                return with_template(deployment, copy["spec"]["template"])
        return copy  # the watch will tell of it

    def _revision(
        self,
        group: GroupObject,
        deployment: Manifest,
        pods: list[Pod],
        standing: Mapping[Fingerprint, tuple[int, Mapping[int, SlotState]]],
        live: dict[tuple[str, str], Manifest],
    ) -> RevisionState:
        text = self._prompt(group, prompt_ref(deployment), fingerprint_of(deployment), live)
        revision = revision_of(deployment, text, pods, standing)
        return replace(
            revision, warm_template=self._warm_template(group.key, revision, desired.settings_of(deployment))
        )

    def _prompt(
        self, group: GroupObject, source: PromptRef, fingerprint: Fingerprint, live: dict[tuple[str, str], Manifest]
    ) -> Prompt | None:
        """Return the prompt of a revision, and add the object that holds it to `live`; None if there is none."""
        holder = self.if_known(group.key, source.kind, source.name)
        if holder is not None:
            live[source.kind, source.name] = holder
        data = _decoded(holder) if holder is not None else {}
        others = (data.get(key, "") for key in (TOOLS_KEY, MESSAGES_KEY))
        text = Prompt(data[SYSTEM_KEY], *others) if SYSTEM_KEY in data else None
        # whoever wrote another one: replicas would be proven warm for it
        return text if text is not None and text.fingerprint == fingerprint else None

    def _warm_template(self, key: Key, revision: RevisionState, settings: str) -> Manifest | None:
        """Return the pod template of a revision's warm replicas, where its Deployment's never became warm."""
        warm = [pod for pod in revision.pods if pod.is_warm]
        if not warm or any(pod.settings == settings for pod in warm):
            return None
        manifest = self.if_known(key, "ReplicaSet", warm[0].replica_set) if warm[0].replica_set else None
        if manifest is None:
            return None
        template = manifest["spec"]["template"]
        labels = {name: value for name, value in template["metadata"]["labels"].items() if name != _TEMPLATE_HASH}
        return {**template, "metadata": {**template["metadata"], "labels": labels}}

    def _siblings(self, group: GroupObject, fingerprint: Fingerprint) -> tuple[Sibling, ...]:
        """Return the groups of the same model that have the prompt, or may have it: no pass has read theirs yet."""
        namespace, model = group.key.namespace, group.spec.model
        stored = self._stores["PromptGroup"]
        # a guest may leave its model out, which is its host's
        result = {
            item["metadata"]["name"]: item
            for name in (model, "")
            for item in stored.list_with_prompt(namespace, name, fingerprint)
        }
        siblings = (
            _sibling(item, self._prompts.get(Key(namespace, name)))
            for name, item in result.items()
            if name != group.key.name and self._model(item) == model and "deletionTimestamp" not in item["metadata"]
        )
        return tuple(sibling for sibling in siblings if not sibling.observed or sibling.fingerprint == fingerprint)

    def _others(self, group: GroupObject) -> tuple[OtherGroup, ...]:
        if not group.spec.model_aliases:
            return ()
        return tuple(
            OtherGroup(
                name=item["metadata"]["name"],
                created=item["metadata"]["creationTimestamp"],
                model=self._model(item),
                aliases=tuple(item["spec"].get("modelAliases", ())),
            )
            for item in self._stores["PromptGroup"].list_namespace(group.key.namespace)
            if item["metadata"]["name"] != group.key.name and "deletionTimestamp" not in item["metadata"]
        )

    def _model(self, group: Manifest) -> str:
        """Return the model of a PromptGroup; of a guest that names none, its host's."""
        model, name = group["spec"].get("model", ""), host_of(group)
        if model or not name:
            return str(model)
        serving = self._stores["PromptGroup"].get(group["metadata"]["namespace"], name)
        return str(serving["spec"].get("model", "")) if serving is not None else ""

    def _get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        if kind == "PromptGroup":
            # as one of a list, which the watch needs the right to anyway
            query = {"fieldSelector": f"metadata.name={name}"}
            path = collection_path(kind, namespace)
            result, _ = list_objects(self._client, path, query, lambda item: whole(item, ""))
            return {**result[0], "kind": kind} if result else None
        try:
            return whole(self._client.request("GET", object_path(kind, namespace, name)), kind)
        except ClusterError as error:
            if kind == "InferencePool" and (error.unknown_kind or error.status == HTTPStatus.FORBIDDEN):
                return {"metadata": {"namespace": namespace, "name": name}, _REFUSAL: error.status}
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise


def _subjects(routes: Iterable[Manifest]) -> Iterator[GuestSubject]:
    """Yield the revisions of guests that have slots, by their PromptRoutes."""
    for route in routes:
        key = Key(route["metadata"]["namespace"], route["metadata"]["name"])
        for revision in route.get("spec", {}).get("revisions", []):
            if revision.get("slots"):
                yield GuestSubject(key, short(Fingerprint(revision["fingerprint"])), revision.get("tokens", 0))


def _sibling(manifest: Manifest, read: Fingerprint | None) -> Sibling:
    """Decode another group, with the prompt that a pass has read of it where its status does not tell one yet."""
    written = manifest.get("status", {})
    observed = written.get("observedGeneration", -1) >= 0
    fingerprint = Fingerprint(written.get("fingerprint", ""))
    return Sibling(
        name=manifest["metadata"]["name"],
        created=manifest["metadata"]["creationTimestamp"],
        fingerprint=fingerprint if observed or read is None else read,
        observed=observed or read is not None,
    )


def _crowded(pods: Iterable[Pod], room: guest_room.PromptRoom) -> list[Pod]:
    """Return pods with the tokens of all prompts that are kept warm on them."""
    return [replace(pod, crowd=room.by_pod.get(pod.name, 0)) for pod in pods]


def _router(pod: Manifest) -> dict[str, str]:
    """Return what is kept of a router's pod: its container and the address of its admin port, if it runs."""
    result = router_of(pod)
    return dict([result]) if result is not None else {}


def _group(key: Key, raw: Manifest) -> GroupObject:
    try:
        return group_of(key, raw)
    except ValidationError as error:
        # The field and the rule; never the value, which may be a prompt.
        faults = (
            f"spec.{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False)
        )
        raise StoredSpecError("; ".join(faults)[:500], raw["metadata"]["generation"], raw.get("status", {})) from None


def _decoded(raw: Manifest) -> Texts:
    """Return the data of a ConfigMap or Secret as text, with the keys whose values are none."""
    if raw["kind"] == "ConfigMap":
        return Texts(raw.get("data") or {}, dict.fromkeys(raw.get("binaryData") or {}, BINARY))
    decoded, unreadable = {}, {}
    for key, value in (raw.get("data") or {}).items():
        try:
            decoded[key] = base64.b64decode(value).decode()
        except ValueError:
            unreadable[key] = NOT_TEXT
    return Texts(decoded, unreadable)
