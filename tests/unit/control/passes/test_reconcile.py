"""Passes over stores that a test fills, with a client of the API server that knows the same objects by name."""

import contextlib

import pytest

from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.kube.read import ClusterReader
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.kube.work_queue import WorkQueue
from promptgroup_operator.passes.reconcile import Reconciler
from promptgroup_operator.plan import desired
from promptgroup_operator.telemetry.metrics import OperatorMetrics
from promptgroup_operator.telemetry.pass_spans import PassSpans
from promptgroup_operator.world.kept import kept
from promptgroup_operator.world.snapshot import Key
from promptgroup_router.contract import names
from promptgroup_router.contract.table import PromptRef
from support.builders import CREATED, FINGERPRINT, NOW, SETTINGS, TEXT
from support.builders import group as group_object

KEY = Key("chat", "support")
GROUP = group_object(replicas=2)


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
            self.stores[kind].replace("", [kept(each, kind) for each in listed], str(self.version))

    def request(self, method, path, query=None, accept=None, **_):
        if query is not None:
            return {"metadata": {"resourceVersion": str(self.version)}, "items": []}
        kinds = {"deployments": "Deployment", "poddisruptionbudgets": "PodDisruptionBudget", "secrets": "Secret"}
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


def a_deployment(replicas=2):
    source = PromptRef("ConfigMap", desired.name(GROUP, FINGERPRINT))
    return desired.deployment(GROUP, FINGERPRINT, replicas, source, records={})


@pytest.fixture
def cluster():
    found = Cluster()
    found.put(a_group())
    found.put(a_deployment())
    return found


@pytest.fixture
def engines():
    with contextlib.closing(GroupEngines()) as found:
        yield found


@pytest.fixture
def reconciler(cluster, engines):
    reader = ClusterReader(cluster, cluster.stores)
    told = {"queue": WorkQueue(), "settings": Settings(), "metrics": OperatorMetrics(), "spans": PassSpans({})}
    found = Reconciler(reader, None, engines, **told)
    yield found
    found.close()


# --- what engines ask for ------------------------------------------------------------------------------------


ENDED = {
    "evicted": {"phase": "Failed"},
    "completed": {"phase": "Succeeded"},
    "terminates": {"deletionTimestamp": CREATED},
    "does not run": {"running": False},
}


@pytest.mark.parametrize("how", ENDED)
def test_a_pod_that_ends_is_sent_no_credential_whoever_has_its_address(cluster, engines, reconciler, how):
    cluster.put({"kind": "Secret", "metadata": {"namespace": "chat", "name": "engine-key"}, "data": {"key": "a2V5"}})
    cluster.put(a_pod("runs"))
    cluster.put(a_pod("ended", **ENDED[how]))
    cluster.tell()
    reconciler.observe(KEY, NOW)
    assert engines.of(KEY, "containerd://runs")._access.credential == "key"
    assert engines.plain._access.credential == ""
    with pytest.raises(EngineError):
        engines.of(KEY, "containerd://ended")
