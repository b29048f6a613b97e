"""Passes over stores that a test fills, with a client of the API server that knows the same objects by name."""

import contextlib
from copy import deepcopy

import pytest

from promptgroup_contract import names
from promptgroup_contract.fingerprint import fingerprint
from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.kube.read import ClusterReader, ClusterState
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.kube.work_queue import WorkQueue
from promptgroup_operator.passes.reconcile import READ_SECONDS, READ_WARM_SECONDS, RELEASE_PERIOD, Reconciler
from promptgroup_operator.plan import desired, plan
from promptgroup_operator.telemetry.metrics import OperatorMetrics
from promptgroup_operator.telemetry.pass_spans import PassSpans
from promptgroup_operator.world.effects import ConditionChange, Deletion, Event, PodUpdate
from promptgroup_operator.world.kept import kept
from promptgroup_operator.world.load import PERIOD
from promptgroup_operator.world.snapshot import Key, PodCondition, PromptText
from promptgroup_operator.world.warming import Outcome, WarmReason, Warmup
from support.builders import CREATED, FINGERPRINT, NOW, SETTINGS, TEXT, ago, pod, revision
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
            show(self.stores[kind], [kept(each, kind) for each in listed], self.version)

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


def unanswered(*_, **__):
    raise EngineError("nobody answers")


@pytest.fixture
def reconciler(cluster, engines):
    reader = ClusterReader(cluster, cluster.stores)
    told = {"queue": WorkQueue(), "settings": Settings(), "metrics": OperatorMetrics(), "spans": PassSpans({})}
    found = Reconciler(reader, None, engines, **told)
    yield found
    found.close()


# --- labels that somebody removes -----------------------------------------------------------------------------


LOST = {
    "removed": lambda labels: labels.pop(names.LABEL_GROUP),
    "changed": lambda labels: labels.update({names.LABEL_GROUP: "other"}),
    "all removed": lambda labels: labels.clear(),
}


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("spec", [{"replicas": 2}, {"replicas": None, "sizing": {"minReplicas": 1, "maxReplicas": 9}}])
@pytest.mark.parametrize("later", [{}, {"prompt": {"system": "Another prompt."}}], ids=["the target", "an earlier one"])
def test_a_deployment_that_lost_its_label_serves_on_and_gets_it_back(cluster, reconciler, spec, later, how):
    spec = {key: value for key, value in spec.items() if value is not None}
    cluster.put(a_group(**spec))
    for number in range(2):
        cluster.put(a_warm_pod(f"p{number}", number))
    cluster.tell()
    cluster.apply(plan.decide(reconciler.observe(KEY, NOW), NOW))
    cluster.put(a_group(**spec | later))
    cluster.tell()
    before = plan.decide(reconciler.observe(KEY, NOW), NOW)
    assert before.route["spec"]["revisions"][0]["weight"] > 0

    standing = deepcopy(cluster.objects["Deployment", NAME])
    LOST[how](standing["metadata"]["labels"])
    cluster.put(standing)
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    after = plan.decide(world, NOW)
    assert (after.objects, after.route, after.deletions) == (before.objects, before.route, before.deletions)
    assert (after.pod_updates, after.size and after.size.value) == (
        before.pod_updates,
        before.size and before.size.value,
    )
    assert NAME in [each["metadata"]["name"] for each in plan.unwritten(world, after) if each["kind"] == "Deployment"]


def test_a_deployment_whose_fingerprint_was_edited_keeps_its_replicas_and_gets_it_back(cluster, reconciler):
    for number in range(2):
        cluster.put(a_warm_pod(f"p{number}", number))
    cluster.tell()
    cluster.apply(plan.decide(reconciler.observe(KEY, NOW), NOW))
    cluster.tell()
    before = plan.decide(reconciler.observe(KEY, NOW), NOW)
    edited = deepcopy(cluster.objects["Deployment", NAME])
    edited["metadata"]["annotations"][names.ANNOTATION_FINGERPRINT] = "0" * 32
    cluster.put(edited)
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    after = plan.decide(world, NOW)
    assert (after.objects, after.route, after.pod_updates) == (before.objects, before.route, before.pod_updates)
    assert [each["kind"] for each in plan.unwritten(world, after)] == ["Deployment"]


def test_a_deployment_of_somebody_else_is_no_revision_whatever_its_name(cluster, reconciler):
    cluster.objects["Deployment", NAME]["metadata"]["labels"].clear()
    cluster.objects["Deployment", NAME]["metadata"]["ownerReferences"][0]["uid"] = "another"
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    assert world.revisions == ()
    assert plan.decide(world, NOW).objects == ()


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


# --- writes that fail ----------------------------------------------------------------------------------------


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
REFUSED = {"400", "403", "404", "413", "422", "500, an object that does not fit the schema", "500, a webhook"}


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


@pytest.fixture
def wanted(reconciler, monkeypatch):
    jobs = []
    monkeypatch.setattr(reconciler._warmups, "want", lambda key, found, now: jobs.append([each.pod for each in found]))
    return jobs


def passes(reconciler, count=6):
    """Run passes as the queue does: what a pass raises makes it run again."""
    due = []
    for _ in range(count):
        with contextlib.suppress(ClusterError):
            due.append(reconciler.run(KEY, NOW))
    return due


@pytest.mark.parametrize("fails", WRITES)
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_write_fails_and_however_all_others_are_made_and_it_is_told(
    half_warm, reconciler, wanted, fails, fault
):
    cluster = half_warm
    del cluster.objects["PodDisruptionBudget", NAME]
    cluster.tell()
    reconciler._writer = writer = FailingWriter(fails, *FAULTS[fault])
    due = passes(reconciler)
    assert wanted[-1] == ["cold"]
    assert due[-1] <= plan.WAITING, "the next pass comes as soon as ever, whatever Retry-After one object has"
    done = " ".join(writer.written)
    assert [each for each in WRITES if each not in (fails, "Secret") and each not in done] == []
    if fails == "Secret":
        return  # routers exchange nothing without it; a line of the log tells it
    ready, degraded = writer.told["Ready"], writer.told["Degraded"]
    if fails != "PromptGroup support":
        assert FAULTS[fault][1] in degraded["message"]
        assert FAULTS[fault][1] in ready["message"]
        assert (ready["status"], degraded["status"]) == ("False", "True")
        assert (writer.told["Accepted"]["status"] == "False") == (fault in REFUSED)
        assert degraded["reason"] == ("ObjectRefused" if fault in REFUSED else "WriteFailed")
        assert any(FAULTS[fault][1] in each.message and each.type == "Warning" for each in writer.events)
    tries = [each for each in writer.tried if each.startswith(fails)]
    assert len(tries) <= (4 if fault == "409" else 2), "it is not repeated with every pass"


def test_while_a_template_is_refused_the_number_of_replicas_is_followed(half_warm, cluster, reconciler):
    cluster.put(a_group(engine={"image": "vllm/vllm-openai:v0.33.0"}, replicas=5))
    cluster.tell()
    reconciler._writer = writer = FailingWriter("", 500, TYPED)
    standing = plan.live(reconciler.observe(KEY, NOW), a_deployment())["spec"]["template"]
    applied = []

    def apply(manifest, seen):
        if manifest["kind"] == "Deployment":
            applied.append(manifest)
            if manifest["spec"]["template"] != standing:
                raise ClusterError(TYPED, status=500)

    writer.apply = apply
    passes(reconciler)
    assert next(each["spec"]["replicas"] for each in applied if each["spec"]["template"] == standing) == 5


def test_what_is_written_otherwise_is_tried_at_once(half_warm, cluster, reconciler):
    reconciler._writer = writer = FailingWriter("Deployment", 422, "no")
    passes(reconciler)
    before = len(writer.tried)
    cluster.put(a_group(engine={"image": "vllm/vllm-openai:v0.34.0"}))
    cluster.tell()
    writer.fails = "nothing"
    passes(reconciler, 1)
    assert f"Deployment {NAME}" in writer.tried[before:]
    assert "ObjectRefused" not in {each["reason"] for each in writer.told.values()}


def test_a_conflict_now_and_then_is_told_to_nobody(half_warm, reconciler):
    reconciler._writer = writer = FailingWriter("Deployment", 409, "the object has been modified")
    with pytest.raises(ClusterError, match="has been modified"):
        reconciler.run(KEY, NOW)
    writer.fails = "nothing"
    reconciler.run(KEY, NOW)
    assert "WriteFailed" not in {each["reason"] for each in writer.told.values()}


def test_no_message_quotes_a_prompt(half_warm, cluster, reconciler, caplog):
    del cluster.objects["PodDisruptionBudget", NAME]
    cluster.tell()
    reconciler._writer = writer = FailingWriter("PodDisruptionBudget", 403, f"denied: {TEXT!r}")
    passes(reconciler)
    assert TEXT not in str(writer.told)
    assert TEXT not in caplog.text
    assert "denied" in writer.told["Degraded"]["message"]


@pytest.mark.parametrize("away", [(None, "no answer"), (500, "etcdserver: request timed out"), (429, "too many")])
def test_an_api_server_that_is_away_is_not_asked_for_more(half_warm, reconciler, monkeypatch, away):
    reconciler._writer = writer = FailingWriter("", *away)

    def request(*_, **__):
        raise ClusterError(away[1], status=away[0])

    world = reconciler.observe(KEY, NOW)
    monkeypatch.setattr(reconciler._reader._client, "request", request)
    with pytest.raises(ClusterError):
        reconciler.act(world, plan.decide(world, NOW), NOW)
    assert (len(writer.tried), writer.written, writer.told) == (1, [], {})


def test_the_outcome_of_a_warm_up_that_could_not_be_written_is_written_by_a_later_pass(half_warm, reconciler, wanted):
    reconciler._writer = writer = FailingWriter("Pod cold", 503, "no")
    passes(reconciler, 1)
    outcome = Outcome(WarmReason.PROVEN, "all of it was found")
    job = Warmup(
        "cold",
        "uid-cold",
        "containerd://cold",
        "a:1",
        GROUP.spec.engine.type,
        "llama",
        Prompt(TEXT),
        "c",
        0,
        False,
        NOW,
    )
    reconciler._report_warmup(KEY, job, outcome)
    assert reconciler._queue.take() == KEY
    passes(reconciler, 2)
    assert wanted[-1] == [], "it is warm: only nobody could write that yet"
    assert writer.told["Degraded"]["reason"] == "WriteFailed"
    writer.fails = "nothing"
    reconciler._failed_writes.forget(KEY)
    passes(reconciler, 1)
    assert "Pod cold warm True" in writer.written
    assert reconciler._unsaid[KEY] == {}


# --- reads that fail -----------------------------------------------------------------------------------------


READS = {
    "texts": "the prompt's ConfigMap",
    "engine-key": "the engines' credential",
    "engine-ca": "the authority that engines are trusted by",
    names.SECRET_PEERS: "the routers' key",
    f"configmaps/{NAME}": "the copy of the prompt",
    f"poddisruptionbudgets/{NAME}": "an object that has a name of the group's",
    GONE_BUDGET: "the Deployment of a revision that is gone",
}
REFERENCES = ("texts", "engine-key", "engine-ca")


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


@pytest.mark.parametrize("read_before", [True, False])
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("fault", [each for each in FAULTS if each != "404"])
def test_whatever_read_fails_and_however_the_pass_goes_on_and_it_is_told(
    referring, reconciler, wanted, unreadable, *, name, fault, read_before
):
    if read_before:
        reconciler._reader.cache._clock = lambda: 0.0
        reconciler.observe(KEY, NOW)
        reconciler._reader.cache._clock = lambda: 1000.0
    reconciler._writer = writer = FailingWriter("nothing", 0, "")
    tried = unreadable(name, *FAULTS[fault])
    due = passes(reconciler, 3)
    assert len(due) == 3
    assert due[-1] <= plan.WAITING
    assert wanted[-1] == ["cold"]
    unknown = name in REFERENCES and not read_before
    stopped = (f"Deployment {NAME}",) if unknown else ()
    done = " ".join(writer.written)
    assert [write for write in WRITES if write not in ("Secret", *stopped) and write not in done] == []
    degraded = writer.told["Degraded"]
    assert (degraded["status"], degraded["reason"]) == ("True", "ReadFailed")
    assert FAULTS[fault][1] in degraded["message"]
    assert writer.told["Accepted"]["status"] == "True"
    assert writer.told["ResolvedRefs"]["status"] == ("Unknown" if unknown else "True")
    assert name != names.SECRET_PEERS or f"Secret {name}" not in writer.written, "nobody knows that it is missing"
    assert len(tried) == 1, "it is not repeated with every pass"


def test_a_read_that_succeeds_again_is_told_no_more(referring, reconciler, wanted, unreadable):
    reconciler._writer = writer = FailingWriter("nothing", 0, "")
    unreadable("engine-key", 503, "no")
    passes(reconciler, 1)
    assert writer.told["Degraded"]["reason"] == "ReadFailed"
    unreadable("nothing", 0, "")
    reconciler._reader.cache._clock = lambda: float("inf")
    passes(reconciler, 1)
    assert writer.told["ResolvedRefs"]["status"] == "True"
    assert writer.told["Degraded"]["reason"] != "ReadFailed"


def test_a_group_of_which_nothing_can_be_known_is_left_as_it_is_and_told(referring, reconciler, unreadable):
    reconciler._writer = writer = FailingWriter("nothing", 0, "")
    deployment = referring.objects["Deployment", NAME]
    deployment["metadata"]["labels"] = {}
    referring.put(deployment)
    referring.tell()
    unreadable(NAME, 403, "forbidden")
    assert passes(reconciler, 2)[-1] == plan.WAITING
    assert set(writer.written) == {"PromptGroup support"}, "whose pods serve, and must not lose their Deployment"
    assert "forbidden" in writer.told["Degraded"]["message"]


# --- changes that never became warm --------------------------------------------------------------------------


@pytest.fixture
def replaced(cluster):
    """Two warm replicas, a change of the engine whose replica does not start, and then another prompt."""
    changed = group_object(replicas=2, engine={"image": "vllm/vllm-openai:broken"})
    source = PromptRef("ConfigMap", NAME)
    template = desired.deployment(changed, FINGERPRINT, 2, source, records={})
    owner = {"kind": "ReplicaSet", "name": f"{NAME}-1", "controller": True}
    standing = deepcopy(a_deployment()["spec"]["template"])
    standing["metadata"]["labels"]["pod-template-hash"] = "1"
    cluster.put(
        {"kind": "ReplicaSet", "metadata": {"namespace": "chat", "name": f"{NAME}-1"}, "spec": {"template": standing}}
    )
    for number in range(2):
        pod_made = a_warm_pod(f"warm-{number}", number)
        pod_made["metadata"]["ownerReferences"] = [owner]
        cluster.put(pod_made)
    broken = a_pod("broken", running=False)
    broken["metadata"]["annotations"][names.ANNOTATION_SETTINGS] = desired.settings_of(template)
    del broken["metadata"]["annotations"][names.ANNOTATION_CREDENTIAL]
    for made in (broken, template, desired.prompt_object(GROUP, FINGERPRINT, Prompt(TEXT), "ConfigMap")):
        cluster.put(made)
    cluster.put(a_group(prompt={"system": "another prompt"}))
    cluster.tell()
    return cluster


def templates_applied(reconciler, writer):
    applied = {}

    def apply(manifest, seen):
        if manifest["kind"] == "Deployment":
            applied[manifest["metadata"]["name"]] = manifest["spec"]["template"]

    reconciler._writer, writer.apply = writer, apply
    passes(reconciler, 1)
    return applied


def test_a_change_of_the_engine_that_never_became_warm_leaves_when_another_prompt_comes(replaced, reconciler, wanted):
    template = templates_applied(reconciler, FailingWriter("nothing", 0, ""))[NAME]
    assert template == a_deployment()["spec"]["template"], "what the warm replicas run: Kubernetes removes the others"


@pytest.mark.parametrize("why", ["it is warm on one", "the prompt stays", "its template cannot be read"])
def test_a_change_of_the_engine_stays_where(replaced, reconciler, wanted, unreadable, why):
    if why == "it is warm on one":
        warm = replaced.objects["Pod", "warm-0"]
        warm["metadata"]["annotations"][names.ANNOTATION_SETTINGS] = replaced.objects["Pod", "broken"]["metadata"][
            "annotations"
        ][names.ANNOTATION_SETTINGS]
        replaced.put(warm)
    elif why == "the prompt stays":
        replaced.put(a_group(engine={"image": "vllm/vllm-openai:broken"}))
    else:
        unreadable(f"{NAME}-1", 403, "forbidden")
    replaced.tell()
    applied = templates_applied(reconciler, FailingWriter("nothing", 0, ""))
    standing = replaced.objects["Deployment", NAME]["spec"]["template"]
    assert applied.get(NAME, standing)["spec"]["containers"][0]["image"] == "vllm/vllm-openai:broken"


# --- what a pass does -----------------------------------------------------------------------------------------


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


WARM = Outcome(WarmReason.PROVEN, "all of it was found")
BARE, MARKED = ConditionChange("p0", "u0", WARM), ConditionChange("p1", "u1", WARM)
MARK = PodUpdate("p1", "u1", 0, None)
CONFIG, ROUTE = ({"kind": kind, "metadata": {"name": "x"}, "spec": {}} for kind in ("ConfigMap", "PromptRoute"))
GONE, EVENT = Deletion("Deployment", "old", "u"), Event("Normal", "Warm", "all replicas are warm")
TODO = plan.Plan(
    conditions=(BARE, MARKED),
    objects=(CONFIG,),
    pod_updates=(MARK,),
    route=ROUTE,
    deletions=(GONE,),
    status={"warm": "1/1"},
    events=(EVENT,),
)
WRITTEN = ["set_condition", "apply", "update_pod", "apply", "delete", "write_status", "emit_event"]


def acted(cluster, reconciler, writer):
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    reconciler._writer = writer
    reconciler.act(world, TODO, NOW)
    return world


def test_a_plan_is_performed_whole_and_in_order_and_a_slot_comes_with_its_condition(cluster, reconciler):
    writer = Writer()
    world = acted(cluster, reconciler, writer)
    assert writer.calls == [
        ("set_condition", "chat", BARE),
        ("apply", CONFIG, None),
        ("update_pod", "chat", MARK, MARKED, NOW),
        ("apply", ROUTE, None),
        ("delete", "chat", GONE),
        ("write_status", KEY, TODO.status),
        ("emit_event", world.group, EVENT, NOW),
    ]


def test_an_event_that_is_refused_ends_no_pass(cluster, reconciler):
    acted(cluster, reconciler, Writer(len(WRITTEN) - 1))


def test_a_pass_says_when_the_next_is_due_unless_the_group_is_gone(cluster, reconciler):
    cluster.tell()
    reconciler._writer = Writer()
    assert reconciler.run(KEY, NOW) == plan.decide(reconciler.observe(KEY, NOW), NOW).requeue_after
    del cluster.objects["PromptGroup", "support"]
    cluster.tell()
    assert reconciler.run(KEY, NOW) is None


@pytest.mark.parametrize("outcome", [WARM, Outcome(WarmReason.REFUSED, "status 400")])
def test_the_outcome_of_a_warm_up_is_written_counted_and_looked_at_by_the_next_pass(reconciler, outcome):
    reconciler._writer = writer = Writer()
    job = Warmup("p0", "u0", "c", "a:1", GROUP.spec.engine.type, "llama", Prompt(TEXT), "c", 0, False, NOW)
    reconciler._report_warmup(KEY, job, outcome)
    assert writer.calls == [("set_condition", "chat", ConditionChange("p0", "u0", outcome))]
    counted = {each.labels["outcome"]: each.value for each in reconciler._warmup_outcomes.collect()[0].samples}
    assert counted[outcome.reason] == 1
    assert reconciler._queue.take() == KEY


# --- how often routers are read -------------------------------------------------------------------------------


def a_revision(text, replicas):
    return revision(text, [pod(f"{text}{number}") for number in range(replicas)], replicas=replicas)


SIZED = {"replicas": None, "sizing": {"minReplicas": 1, "maxReplicas": 9}}
LOOKS = {
    "a group at rest, of a fixed size": ({}, [a_revision("a", 2)], None),
    "beside a revision that has retired": ({}, [a_revision("a", 2), a_revision("b", 0)], None),
    "a group that the operator sizes": (SIZED, [a_revision("a", 2)], PERIOD),
    "one that it sizes, beside a revision that has retired": (SIZED, [a_revision("a", 2), a_revision("b", 0)], PERIOD),
    "a release": ({}, [a_revision("a", 1), a_revision("b", 1)], RELEASE_PERIOD),
    "a group that has too many": ({}, [a_revision("a", 3)], RELEASE_PERIOD),
}


@pytest.mark.parametrize("case", LOOKS)
def test_routers_are_read_often_where_a_release_or_what_leaves_needs_their_figures(reconciler, monkeypatch, case):
    spec, revisions, period = LOOKS[case]
    asked = []
    monkeypatch.setattr(reconciler._router_scraper, "read", lambda _, now, period: asked.append(period) or {})
    monkeypatch.setattr(reconciler, "_observes_all", False)
    text = PromptText(Prompt(TEXT), FINGERPRINT, secret=False)
    state = ClusterState(group_object(**{"replicas": 2, **spec}), text, tuple(revisions), (), {})
    reconciler._read_routers(state, NOW)
    assert asked == ([period] if period is not None else [])


@pytest.mark.parametrize(
    ("slot", "warm_for", "seconds"),
    [(None, 1, READ_WARM_SECONDS), (0, 1, READ_SECONDS), (None, 60, READ_SECONDS)],
    ids=["has just become warm", "has a slot", "has none for long"],
)
def test_engines_that_do_not_answer_keep_a_replica_that_is_warm_from_its_slot_for_a_second(
    reconciler, monkeypatch, slot, warm_for, seconds
):
    asked = []
    monkeypatch.setattr(
        reconciler._readers, "map", lambda _, job, pods, within: asked.append(within) or [None for _ in pods]
    )
    condition = PodCondition("True", "PrefixCached", "", ago(seconds=warm_for))
    found = revision(TEXT, [pod("p0"), pod("p1", slot, warm=condition)])
    text = PromptText(Prompt(TEXT), FINGERPRINT, secret=False)
    reconciler._read_engines(ClusterState(GROUP, text, (found,), (), {}), NOW)
    assert asked == [seconds]
