"""A reconciler over a cluster in memory, and clusters that several tests begin with."""

import contextlib

import pytest

from promptgroup_contract import names
from promptgroup_contract.fingerprint import fingerprint
from promptgroup_contract.table import Prompt
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.passes.reconcile import Reconciler
from promptgroup_operator.passes.work_queue import WorkQueue
from promptgroup_operator.plan import desired
from promptgroup_operator.telemetry.metrics import OperatorMetrics
from promptgroup_operator.telemetry.pass_spans import PassSpans
from support.builders import FINGERPRINT, TEXT
from support.passrun import GROUP, NAME, AnyWriter, Cluster, a_deployment, a_group, a_warm_pod, unanswered


@pytest.fixture
def cluster():
    found = Cluster()
    found.put(a_group())
    found.put(a_deployment())
    return found


@pytest.fixture
def engines(monkeypatch):
    monkeypatch.setattr(EngineClient, "_request", unanswered)
    with contextlib.closing(GroupEngines()) as found:
        yield found


@pytest.fixture
def reconciler(cluster, engines):
    reader = GroupReader(cluster, cluster.stores)
    told = {"queue": WorkQueue(), "settings": Settings(), "metrics": OperatorMetrics(), "spans": PassSpans({})}
    with contextlib.closing(Reconciler(reader, AnyWriter(), engines, **told)) as found:
        yield found


@pytest.fixture
def half_warm(cluster):
    """The engine was edited; of two replicas one is new and one has just become warm; a budget is left over."""
    cluster.put(a_group(engine={"image": "vllm/vllm-openai:v0.33.0"}))
    cold = a_warm_pod("cold", 0)
    cold["metadata"]["annotations"][names.ANNOTATION_WARMED] = ""
    cold["metadata"]["labels"].pop(names.LABEL_SLOT)
    cold["status"]["conditions"][2]["status"] = "False"
    warm = a_warm_pod("warm", 1)
    warm["metadata"]["labels"].pop(names.LABEL_SLOT)
    copy = desired.prompt_object(GROUP, FINGERPRINT, Prompt(TEXT), "ConfigMap")
    for each in (cold, warm, copy, desired.budget(GROUP, FINGERPRINT), desired.budget(GROUP, fingerprint("gone"))):
        cluster.put(each)
    cluster.tell()
    return cluster


@pytest.fixture
def wanted(reconciler, monkeypatch):
    jobs = []
    monkeypatch.setattr(reconciler._warmups, "want", lambda key, found, now: jobs.append([each.pod for each in found]))
    return jobs


@pytest.fixture
def referring(half_warm):
    """The half-warm group, which reads each kind of object by name."""
    tls = {"caFrom": {"configMapKeyRef": {"name": "engine-ca", "key": "ca.crt"}}}
    engine = {"image": "vllm/vllm-openai:v0.33.0", "credentialFrom": {"name": "engine-key", "key": "key"}, "tls": tls}
    group = a_group(engine=engine, prompt={"systemFrom": {"configMapKeyRef": {"name": "texts", "key": "system"}}})
    half_warm.put({**group, "status": {"revisions": [{"fingerprint": fingerprint("gone")}]}})
    for kind, name, data in (
        ("ConfigMap", "texts", {"system": TEXT}),
        ("ConfigMap", "engine-ca", {"ca.crt": "-----BEGIN CERTIFICATE-----"}),
        ("Secret", "engine-key", {"key": "a2V5"}),
    ):
        half_warm.put({"kind": kind, "metadata": {"namespace": "chat", "name": name}, "data": data})
    cold = half_warm.objects["Pod", "cold"]
    cold["metadata"]["annotations"][names.ANNOTATION_CREDENTIAL] = "engine-key/key"
    half_warm.put(cold)
    del half_warm.objects["PodDisruptionBudget", NAME]
    half_warm.tell()
    return half_warm


@pytest.fixture
def unreadable(cluster, monkeypatch):
    """Let one object be unreadable, and return the list of the tries."""
    request, tried = cluster.request, []

    def begin(name, status, words):
        def refuse(method, path, *args, **more):
            if path.endswith(f"/{name}"):
                tried.append(path)
                raise ClusterError(f"GET {path}: {words}", status=status, retry_after=300.0)
            return request(method, path, *args, **more)

        monkeypatch.setattr(cluster, "request", refuse)
        return tried

    return begin
