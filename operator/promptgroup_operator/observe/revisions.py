"""Read the revisions of a group with engines: a revision is a Deployment, its pods, and the object with its prompt."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import (
    ADAPTER_KEY,
    MESSAGES_KEY,
    SYSTEM_KEY,
    TOOLS_KEY,
    Prompt,
    PromptRef,
    SlotState,
)
from promptgroup_operator.base.errors import UnreadError
from promptgroup_operator.kube.store import Store
from promptgroup_operator.nodes.engine_args import is_several
from promptgroup_operator.nodes.leader_worker_set import MISSING, as_deployment
from promptgroup_operator.observe.decode import fingerprint_of, pod_of, prompt_ref, revision_of
from promptgroup_operator.observe.get_cache import UNUSED_SECONDS
from promptgroup_operator.observe.unwatched import REFUSAL, UnwatchedObjects, texts
from promptgroup_operator.plan import desired, validate
from promptgroup_operator.world.snapshot import (
    LEADER_WORKER_SET,
    GroupObject,
    Key,
    Manifest,
    Pod,
    Problem,
    RevisionState,
)
from promptgroup_operator.world.trimmed import DIGEST, SHORTENED, digest, with_template

_TEMPLATE_HASH = "pod-template-hash"
"""Label that Kubernetes adds to the template of a ReplicaSet."""

Standing = Mapping[Fingerprint, tuple[int, Mapping[int, SlotState]]]
"""Revision → its weight and slots in the PromptRoute."""
Live = dict[tuple[str, str], Manifest]
"""(kind, name) → object of the group."""


class Revisions:
    """The revisions of all groups. Safe to use from many threads.

    Args:
        stores: kind → store.
        unwatched: reads objects that are not watched.
    """

    def __init__(self, stores: Mapping[str, Store], unwatched: UnwatchedObjects) -> None:
        self._stores = stores
        self._unwatched = unwatched

    def deployments(self, group: GroupObject, fingerprints: Collection[Fingerprint]) -> list[Manifest] | Problem:
        """Return the Deployments of a group, its own ones with their templates; with several nodes LeaderWorkerSets.

        A Deployment whose label was removed must not count as deleted. The watch does not include it, so it is read by
        name for all known revisions, and the pass restores the label.

        Args:
            group: the group.
            fingerprints: revisions that its spec and its route name; those in its status are added.

        Returns:
            The reason, where the cluster has no LeaderWorkerSets.
        """
        labelled = [
            self.with_template(group.key, deployment) if validate.is_owned(group, deployment) else deployment
            for deployment in self._stores["Deployment"].list_at(group.key)
        ]
        deployments = [deployment for deployment in labelled if deployment is not None]
        reported = (Fingerprint(revision.get("fingerprint", "")) for revision in group.status.get("revisions", []))
        names = {
            desired.name(group, fingerprint): fingerprint for fingerprint in {*reported, *fingerprints} if fingerprint
        }
        if is_several(group.spec.engine):
            sets = self._leader_worker_sets(group, names)
            return sets if isinstance(sets, Problem) else deployments + sets
        for name in sorted(names.keys() - {deployment["metadata"]["name"] for deployment in deployments}):
            unlabelled = self._unlabelled(group, name, names[name])
            deployments += [unlabelled] if unlabelled is not None else []
        return deployments

    def of(
        self, group: GroupObject, deployments: Sequence[Manifest], pods: Sequence[Pod], standing: Standing, live: Live
    ) -> tuple[RevisionState, ...]:
        """Decode the revisions that Deployments run, and add the objects that hold their prompts to `live`."""
        return tuple(
            self._revision(group, deployment, pods, standing, live)
            for deployment in deployments
            if "deletionTimestamp" not in deployment["metadata"]
            and validate.is_owned(group, deployment)
            and fingerprint_of(deployment)
        )

    def prompt(self, group: GroupObject, source: PromptRef, fingerprint: Fingerprint, live: Live) -> Prompt | None:
        """Return the prompt of a revision, and add the object that holds it to `live`; None if there is none."""
        holder = self._unwatched.get_if_readable(group.key, source.kind, source.name)
        if holder is None:
            return None
        live[source.kind, source.name] = holder
        data = texts(holder)
        others = (data.get(key, "") for key in (TOOLS_KEY, MESSAGES_KEY, ADAPTER_KEY))
        text = Prompt(data[SYSTEM_KEY], *others) if SYSTEM_KEY in data else None
        # If the stored text was changed, replicas would be proven warm for another prompt.
        return text if text is not None and text.fingerprint == fingerprint else None

    def _leader_worker_sets(self, group: GroupObject, names: Iterable[str]) -> list[Manifest] | Problem:
        """Return the group's LeaderWorkerSets, read by name: they are not watched, since most clusters lack the kind.

        Their pods are watched, so that a pass follows whatever one does.

        Args:
            group: the group.
            names: of its revisions; those of its pods are added.
        """
        pods = [pod_of(pod, group.spec.engine.port) for pod in self._stores["Pod"].list_at(group.key)]
        running = {desired.name(group, pod.fingerprint) for pod in pods if pod.fingerprint and not pod.deleting}
        manifests = [
            self._unwatched.get(group.key, LEADER_WORKER_SET, name, seconds=0) for name in sorted({*names, *running})
        ]
        if any(manifest is not None and REFUSAL in manifest for manifest in manifests):
            if running:
                raise UnreadError(MISSING.message)
            return MISSING
        return [as_deployment(manifest) for manifest in manifests if manifest is not None]

    def _unlabelled(self, group: GroupObject, name: str, fingerprint: Fingerprint) -> Manifest | None:
        try:
            return self._unwatched.get(group.key, "Deployment", name, seconds=0)
        except UnreadError:
            pods = (pod_of(pod, group.spec.engine.port) for pod in self._stores["Pod"].list_at(group.key))
            if any(pod.fingerprint == fingerprint for pod in pods):
                raise
            return None  # it has no pods

    def with_template(self, key: Key, workload: Manifest) -> Manifest | None:
        """Return a current Deployment or DaemonSet of the store with its template; None if it was deleted.

        A template that is not in the store is read by name.
        """
        if SHORTENED not in workload:
            return with_template(workload)
        for seconds in (UNUSED_SECONDS, 0.0):
            copy = self._unwatched.get(key, workload["kind"], workload["metadata"]["name"], seconds)
            if copy is None:
                return None
            if digest(copy["spec"].get("template")) == workload[DIGEST]:
                return with_template(workload, copy["spec"]["template"])
        return copy  # it is newer than the store, which the watch will update

    def _revision(
        self, group: GroupObject, deployment: Manifest, pods: Sequence[Pod], standing: Standing, live: Live
    ) -> RevisionState:
        text = self.prompt(group, prompt_ref(deployment), fingerprint_of(deployment), live)
        revision = revision_of(deployment, text, pods, standing)
        return replace(
            revision, warm_template=self._warm_template(group.key, revision, desired.settings_of(deployment))
        )

    def _warm_template(self, key: Key, revision: RevisionState, settings: str) -> Manifest | None:
        """Return the pod template of a revision's warm replicas, if the Deployment's own never had a warm replica."""
        warm = [pod for pod in revision.pods if pod.is_warm]
        if not warm or not warm[0].replica_set or any(pod.settings == settings for pod in warm):
            return None
        replica_set = self._unwatched.get_if_readable(key, "ReplicaSet", warm[0].replica_set)
        if replica_set is None:
            return None
        template = replica_set["spec"]["template"]
        labels = {name: value for name, value in template["metadata"]["labels"].items() if name != _TEMPLATE_HASH}
        return {**template, "metadata": {**template["metadata"], "labels": labels}}
