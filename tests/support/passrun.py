"""What passes run over: stores that a test fills, a client of the API server that knows the same objects by name."""

import contextlib
from copy import deepcopy

from promptgroup_contract import names
from promptgroup_contract.fingerprint import fingerprint
from promptgroup_contract.table import PromptRef
from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.kube.store import Store
from promptgroup_operator.plan import desired
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.trimmed import trimmed
from promptgroup_operator.world.warming import Outcome, WarmReason
from support.builders import CREATED, FINGERPRINT, NOW, SETTINGS, TEXT
from support.builders import group as group_object
from support.stores import show

KEY = Key("chat", "support")
GROUP = group_object(replicas=2)
NAME = desired.name(GROUP, FINGERPRINT)


class Cluster:
    """The API server: objects by kind and name. What is watched is in the stores once `tell` was called."""

    def __init__(self):
        self.objects = {}
        self.stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
        self.version = 0

    def put(self, found):
        self.version += 1
        metadata = {"uid": f"uid-{found['metadata']['name']}", "creationTimestamp": CREATED, "generation": 1}
        written = {"resourceVersion": str(self.version)}
        self.objects[found["kind"], found["metadata"]["name"]] = {
            **found,
            "metadata": {**metadata, **found["metadata"], **written},
        }

    def tell(self):
        for kind, label in KINDS.items():
            found = [each for (of, _), each in self.objects.items() if of == kind]
            listed = [each for each in found if not label or label in each["metadata"].get("labels", {})]
            show(self.stores[kind], [trimmed(each, kind) for each in listed], self.version)

    def apply(self, todo):
        """Perform a pass's writes of objects and of the route."""
        for each in deepcopy((*todo.objects, todo.route)):
            known = self.objects.get((each["kind"], each["metadata"]["name"]), {})
            self.put({**known, **each})

    def request(self, method, path, query=None, accept=None, **_):
        if query is not None:
            return {"metadata": {"resourceVersion": str(self.version)}, "items": []}
        kinds = {
            "deployments": "Deployment",
            "daemonsets": "DaemonSet",
            "poddisruptionbudgets": "PodDisruptionBudget",
            "secrets": "Secret",
            "replicasets": "ReplicaSet",
        }
        *_, plural, name = path.split("/")
        found = self.objects.get((kinds.get(plural, "ConfigMap"), name))
        if found is None:
            raise ClusterError("not found", status=404)
        return found


def a_group(**spec):
    spec = {"model": "llama", "prompt": {"system": TEXT}, "engine": {"image": "vllm/vllm-openai:v0.32.0"}, **spec}
    metadata = {"namespace": "chat", "name": "support", "uid": GROUP.uid}
    return {"kind": "PromptGroup", "metadata": metadata, "spec": {"replicas": 2, **spec}}


def a_pod(name, *, phase="Running", running=True, **metadata):
    container = {"name": "engine", "containerID": f"containerd://{name}", "state": {"running": {}} if running else {}}
    annotations = {
        names.ANNOTATION_FINGERPRINT: FINGERPRINT,
        names.ANNOTATION_CREDENTIAL: "engine-key/key",
        names.ANNOTATION_SETTINGS: SETTINGS,
    }
    labels = desired.labels(GROUP, FINGERPRINT)
    return {
        "kind": "Pod",
        "metadata": {"namespace": "chat", "name": name, "labels": labels, "annotations": annotations, **metadata},
        "spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": 8000}]}]},
        "status": {"phase": phase, "podIP": "10.0.0.5", "containerStatuses": [container]},
    }


def a_warm_pod(name, slot):
    """Plain HTTP and no key, so that nothing is read for it; its engine does not answer."""
    found = a_pod(name)
    del found["metadata"]["annotations"][names.ANNOTATION_CREDENTIAL]
    found["metadata"]["annotations"][names.ANNOTATION_WARMED] = f"containerd://{name}"
    found["metadata"]["labels"] |= {names.LABEL_SLOT: str(slot)}
    conditions = [
        {"type": kind, "status": "True", "reason": "PrefixCached", "lastTransitionTime": CREATED}
        for kind in ("ContainersReady", "Ready", names.CONDITION_PREFIX_WARM)
    ]
    return {**found, "status": {**found["status"], "conditions": conditions}}


def a_deployment(replicas=2):
    source = PromptRef("ConfigMap", NAME)
    return desired.deployment(GROUP, FINGERPRINT, replicas, source, records={})


def unanswered(*_, **__):
    raise EngineError("nobody answers")


TYPED = (
    "failed to create typed patch object (chat/support-1; apps/v1, Kind=Deployment): .spec.template.spec"
    '.containers[name="engine"].env[name="A"].value: expected string, got &value.valueUnstructured{Value:8}'
)
WEBHOOK = 'Internal error occurred: failed calling webhook "pods.example.com": connection refused'
FAULTS = {
    **{
        str(status): (status, "the server says so")
        for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 503, 504)
    },
    "500, an object that does not fit the schema": (500, TYPED),
    "500, a webhook": (500, WEBHOOK),
    "500, anything": (500, "something unheard of"),
    "no answer": (None, "timed out"),
}


class FailingWriter:
    """Writes nothing, remembers what was to be written, and fails for objects whose name begins in a certain way."""

    def __init__(self, fails, status, words):
        self.fails, self.status, self.words = fails, status, words
        self.written, self.tried, self.told, self.events = [], [], {}, []

    def write(self, subject, mark=""):
        self.tried.append(subject)
        if subject.startswith(self.fails):
            raise ClusterError(f"PATCH {subject}: {self.words}", status=self.status, retry_after=300.0)
        self.written.append(subject + mark)

    def apply(self, manifest, seen):
        self.write(f"{manifest['kind']} {manifest['metadata']['name']}")

    def create(self, manifest):
        self.write(f"{manifest['kind']} {manifest['metadata']['name']}")

    def delete(self, namespace, deletion):
        self.write(f"deleted {deletion.name}")

    def update_pod(self, namespace, update, change, now):
        self.write(f"Pod {update.pod}", f" slot {update.slot}")

    def set_condition(self, namespace, change, *, warm, now, container=""):
        self.write(f"Pod {change.pod}", f" warm {warm}")

    def write_status(self, key, status):
        self.told = {each["type"]: each for each in status["conditions"]}
        self.write("PromptGroup support")

    def emit_event(self, group, event, now):
        self.events.append(event)


class Writer:
    """A client that writes nothing: what it is asked for, in order, until the request that fails."""

    def __init__(self, fails=None):
        self.calls, self.fails = [], fails

    def __getattr__(self, verb):
        def call(*args, **_):
            if len(self.calls) == self.fails:
                raise ClusterError("x", status=500)
            self.calls.append((verb, *args))

        return call


def passes(reconciler, count=6):
    """Run passes as the queue does: what a pass raises makes it run again."""
    due = []
    for _ in range(count):
        with contextlib.suppress(ClusterError):
            due.append(reconciler.run(KEY, NOW))
    return due


GONE_BUDGET = desired.budget(GROUP, fingerprint("gone"))["metadata"]["name"]
WRITES = [
    f"Deployment {NAME}",
    "Secret",
    f"PodDisruptionBudget {NAME}",
    "Pod warm",
    "PromptRoute support",
    f"deleted {GONE_BUDGET}",
    "PromptGroup support",
]
"""All that the pass over the half-warm group writes, each by the beginning of its name."""


class AnyWriter:
    """The writer of a reconciler: whichever a test gives it."""

    to = None

    def __getattr__(self, name):
        return getattr(self.to, name)


def readings(reconciler):
    """The reader of all that a reconciler looks at."""
    return reconciler._observer._readings


WARM = Outcome(WarmReason.PROVEN, "all of it was found")
