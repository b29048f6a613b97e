from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_contract.table import SYSTEM_KEY
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.kube.read import OWN_SECONDS, ClusterReader
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.kube.write import ClusterWriter
from promptgroup_operator.plan import plan
from promptgroup_operator.world.effects import ConditionChange, Deletion, Event, PodUpdate
from promptgroup_operator.world.engine_facts import Measured, decode
from promptgroup_operator.world.kept import kept
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.warming import Outcome, WarmReason
from support.builders import CREATED, NOW, TEXT, group, world

KEY = Key("chat", "support")
STRATEGIC = "application/strategic-merge-patch+json"


class Server:
    """Stores what is applied under its path, patches by merging the metadata, counts what is read."""

    def __init__(self):
        self.objects = {}
        self.version = 100
        self.reads = []

    def put(self, path, found):
        self.version += 1
        metadata = {"uid": f"uid-{path}", "creationTimestamp": CREATED, "generation": 1, **found["metadata"]}
        self.objects[path] = {**found, "metadata": {**metadata, "resourceVersion": str(self.version)}}
        return self.objects[path]

    def request(self, method, path, body=None, content_type=None, query=None, *, limit=None):
        path = path.removesuffix("/status")
        if method == "GET":
            self.reads.append(path)
        if method == "PATCH" and content_type == STRATEGIC:
            known = self.objects[path]
            labels = known["metadata"]["labels"] | body["metadata"].get("labels", {})
            metadata = {**known["metadata"], **body["metadata"], "labels": labels}
            return self.put(
                path, {**known, "metadata": metadata, "status": {**known["status"], **body.get("status", {})}}
            )
        if method == "PATCH":
            return self.put(path, {**self.objects.get(path, {}), **body})
        if method == "DELETE":
            del self.objects[path]
            return {}
        if path not in self.objects:
            raise ClusterError("none", status=404)
        return self.objects[path]


class Cluster:
    """Reader and writer, as a pass has them."""

    def __init__(self, server, term, stores, **fields):
        self.reader = ClusterReader(server, stores, **fields)
        self.writer = ClusterWriter(server, term, stores, self.reader.cache)

    def __getattr__(self, name):
        return getattr(self.reader if hasattr(self.reader, name) else self.writer, name)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def stores():
    return {kind: Store(kind, lambda _: None) for kind in KINDS}


@pytest.fixture
def cluster(server, stores):
    deliver(server, stores, promptgroup("support"))
    return Cluster(server, Term(until=float("inf")), stores)


def promptgroup(name, **spec):
    base = {"model": "llama", "prompt": {"system": TEXT}, "engine": {"image": "vllm"}, "replicas": 2}
    return {"kind": "PromptGroup", "metadata": {"namespace": "chat", "name": name}, "spec": {**base, **spec}}


def pod(name):
    metadata = {"namespace": "chat", "name": name, "labels": {"promptgroup.dev/group": "support"}}
    return {"kind": "Pod", "metadata": metadata, "status": {"podIP": "10.0.0.1"}}


PLURALS = {
    "PromptGroup": "/apis/promptgroup.dev/v1alpha1/namespaces/chat/promptgroups",
    "Pod": "/api/v1/namespaces/chat/pods",
}


def deliver(server, stores, found):
    """Somebody else wrote it, and the watch tells of it."""
    stored = server.put(f"{PLURALS[found['kind']]}/{found['metadata']['name']}", found)
    stores[found["kind"]].put(kept(stored, found["kind"]))


def create(cluster):
    """What a first pass writes."""
    todo = plan.decide(world(of=cluster.observe(KEY).group), NOW)
    for manifest in (*todo.objects, todo.route):
        cluster.apply(manifest, None)


def test_a_group_at_rest_is_seen_without_a_request(cluster, server):
    create(cluster)
    server.reads.clear()
    seen = cluster.observe(KEY)
    (revision,) = seen.revisions
    assert revision.prompt.system == TEXT
    assert {kind for kind, _ in seen.live} >= {"Deployment", "ConfigMap", "PromptRoute"}
    assert server.reads == []


def test_a_group_that_is_gone_or_going_is_not_seen(cluster, server, stores):
    assert cluster.observe(Key("chat", "another")) is None
    going = promptgroup("support")
    going["metadata"]["deletionTimestamp"] = CREATED
    deliver(server, stores, going)
    assert cluster.observe(KEY) is None


def test_what_was_written_is_seen_before_any_watch_tells(cluster, server, stores):
    create(cluster)
    deliver(server, stores, pod("p"))
    cluster.update_pod("chat", PodUpdate("p", "uid", 1, None), None, NOW)
    cluster.write_status(KEY, {"warm": "1/2"})
    assert cluster.observe(KEY).group.status == {"warm": "1/2"}
    (found,) = stores["Pod"].list_group(KEY)
    assert found["metadata"]["labels"]["promptgroup.dev/slot"] == "1"


def test_a_text_that_is_not_that_of_its_revision_is_no_prompt(cluster):
    """Somebody else's object has the name: replicas would be proven warm for a prompt that nobody sends."""
    for manifest in plan.decide(world(of=cluster.observe(KEY).group), NOW).objects:
        other = {"data": {SYSTEM_KEY: "another prompt"}} if manifest["kind"] == "ConfigMap" else {}
        cluster.apply(manifest | other, None)
    assert cluster.observe(KEY).revisions[0].prompt is None


def test_a_deleted_prompt_object_is_read_anew(cluster, server):
    create(cluster)
    (revision,) = cluster.observe(KEY).revisions
    cluster.delete("chat", Deletion("ConfigMap", revision.deployment, "uid"))
    server.reads.clear()
    assert cluster.observe(KEY).revisions[0].prompt is None
    assert [path.rpartition("/")[2] for path in server.reads] == [revision.deployment]


def test_a_refused_write_has_the_object_read_anew(cluster, server, monkeypatch):
    create(cluster)
    (revision,) = cluster.observe(KEY).revisions
    seen = cluster.get_cached(KEY, "ConfigMap", revision.deployment)

    def refuse(*_, **__):
        raise ClusterError("conflict", status=409)

    with monkeypatch.context() as refusing:
        refusing.setattr(server, "request", refuse)
        with pytest.raises(ClusterError):
            cluster.apply(seen, seen)
    server.reads.clear()
    cluster.observe(KEY)
    assert len(server.reads) == 1


def test_a_users_object_is_read_anew_though_our_own_are_not(server, stores):
    source = {"configMapKeyRef": {"name": "prompts", "key": "support"}}
    deliver(server, stores, promptgroup("support", prompt={"systemFrom": source}))
    path = "/api/v1/namespaces/chat/configmaps/prompts"
    server.put(path, {"metadata": {"namespace": "chat", "name": "prompts"}, "data": {"support": TEXT}})
    clock = [0.0]
    cluster = Cluster(server, Term(until=float("inf")), stores, clock=lambda: clock[0])
    assert cluster.observe(KEY).prompt.prompt.system == TEXT
    cluster.get_cached(KEY, "ConfigMap", "prompts")
    assert server.reads.count(path) == 1
    clock[0] = plan.REFERENCED.total_seconds()
    cluster.observe(KEY)
    assert server.reads.count(path) == 2
    clock[0] += OWN_SECONDS - 1
    cluster.get_cached(KEY, "ConfigMap", "prompts")
    assert server.reads.count(path) == 2


def test_rivals_are_the_namespaces_groups_of_the_same_model(cluster, server, stores):
    deliver(server, stores, promptgroup("same"))
    deliver(server, stores, promptgroup("other", model="qwen"))
    assert [rival.name for rival in cluster.observe(KEY).siblings] == ["same"]


def test_the_other_groups_are_read_for_a_group_with_aliases_alone(cluster, server, stores):
    deliver(server, stores, promptgroup("same", modelAliases=["x"]))
    assert cluster.observe(KEY).others == ()
    deliver(server, stores, promptgroup("support", modelAliases=["gpt"]))
    (found,) = cluster.observe(KEY).others
    assert (found.name, found.model, found.aliases) == ("same", "llama", ("x",))


def test_a_pods_proof_and_its_condition_are_one_write(cluster, server, stores):
    deliver(server, stores, pod("p"))
    before = server.version
    change = ConditionChange("p", "uid", Outcome(WarmReason.PROVEN, "in cache", Measured(prefix_tokens=96)))
    cluster.set_condition("chat", change, warm=True, now=NOW, container="containerd://1")
    assert server.version == before + 1
    (found,) = stores["Pod"].list_group(KEY)
    assert found["metadata"]["annotations"]["promptgroup.dev/warmed-container"] == "containerd://1"
    assert found["status"]["conditions"][0]["status"] == "True"


@pytest.mark.parametrize(("again", "rate"), [("containerd://1", 9_800), ("containerd://2", 0)], ids=["same", "another"])
def test_a_second_warm_up_of_a_container_keeps_what_the_first_measured(cluster, server, stores, again, rate):
    deliver(server, stores, pod("p"))
    for container, found in (("containerd://1", Measured(400_000, 9_800, 96)), (again, Measured(400_000, 0, 96))):
        change = ConditionChange("p", "uid", Outcome(WarmReason.PROVEN, "in cache", found))
        cluster.set_condition("chat", change, warm=True, now=NOW, container=container)
    (kept,) = stores["Pod"].list_group(KEY)
    assert decode(kept["metadata"]["annotations"]["promptgroup.dev/engine"]) == Measured(400_000, rate, 96)


def test_of_a_warm_up_that_recorded_nothing_nothing_is_known(cluster, server, stores):
    deliver(server, stores, pod("p"))
    for found in (Measured(), Measured(400_000, 9_800, 96)):
        change = ConditionChange("p", "uid", Outcome(WarmReason.PROVEN, "in cache", found))
        cluster.set_condition("chat", change, warm=True, now=NOW, container="containerd://1")
        (kept,) = stores["Pod"].list_group(KEY)
        kept["metadata"]["annotations"].pop("promptgroup.dev/engine", None)
    assert cluster._measured("chat", "p", "containerd://1") == Measured()


def test_a_pods_slot_and_its_shut_gate_are_one_write(cluster, server, stores):
    deliver(server, stores, pod("p"))
    before = server.version
    change = ConditionChange("p", "uid", Outcome(WarmReason.STARTING, "waits"))
    cluster.update_pod("chat", PodUpdate("p", "uid", 1, None), change, NOW)
    assert server.version == before + 1
    assert stores["Pod"].list_group(KEY)[0]["status"]["conditions"][0]["reason"] == "WaitingForContainers"


def test_a_pod_that_is_gone_when_it_is_marked_is_no_error(cluster, server, stores, monkeypatch):
    def refuse(*_, **__):
        raise ClusterError("gone", status=404)

    monkeypatch.setattr(server, "request", refuse)
    cluster.update_pod("chat", PodUpdate("p", "uid", 1, None), None, NOW)
    assert stores["Pod"].list_group(KEY) == []


def test_nothing_is_written_when_the_term_is_over(server, stores):
    cluster = Cluster(server, Term(until=float("-inf")), stores)
    todo = plan.decide(replace(world(), group=group()), NOW)
    with pytest.raises(ClusterError):
        cluster.apply(todo.route, None)
    assert server.objects == {}


def test_an_object_that_was_not_seen_is_applied_without_force_and_one_that_was_with_its_version(server, stores):
    asked = []

    class Recording(Server):
        def request(self, method, path, body=None, content_type=None, query=None, *, limit=None):
            asked.append((method, query.get("force"), body["metadata"].get("resourceVersion")))
            return super().request(method, path, body, content_type, query, limit=limit)

    cluster = Cluster(Recording(), Term(until=float("inf")), stores)
    manifest = {"kind": "ConfigMap", "metadata": {"namespace": "chat", "name": "a"}}
    cluster.apply(manifest, None)
    cluster.apply(manifest, {"metadata": {"resourceVersion": "7"}})
    assert asked == [("PATCH", None, None), ("PATCH", "true", "7")]


def test_an_event_that_is_repeated_is_counted(server, stores):
    posted = []

    class Recording(Server):
        def request(self, method, path, body=None, content_type=None, query=None, *, limit=None):
            posted.append((body["count"], body["firstTimestamp"], body["lastTimestamp"]))
            return {}

    cluster = Cluster(Recording(), Term(until=float("inf")), stores)
    for seconds in (0, 1, 2, 90):
        cluster.emit_event(group(), Event("Normal", "Warm", "all"), NOW + timedelta(seconds=seconds))
    assert [count for count, _, _ in posted] == [1, 4]
    assert posted[1][1] == posted[0][2]


@pytest.mark.parametrize(
    ("changed", "written"),
    [
        ({"status": {"availableReplicas": 1}}, True),
        ({"metadata": {"generation": 2}}, False),
        ({"metadata": {"annotations": {"promptgroup.dev/fingerprint": "x"}}}, False),
        ({"metadata": {"uid": "another"}}, False),
        (None, False),
    ],
    ids=["status", "spec", "annotation", "another object", "gone"],
)
def test_a_deployment_of_which_the_status_alone_has_changed_is_written_at_once(
    cluster, server, monkeypatch, changed, written
):
    create(cluster)
    ((_, deployment),) = [each for each in cluster.observe(KEY).live.items() if each[0][0] == "Deployment"]
    path = f"/apis/apps/v1/namespaces/chat/deployments/{deployment['metadata']['name']}"
    found = server.objects.pop(path)
    if changed is not None:
        server.put(path, {**found, **changed, "metadata": {**found["metadata"], **changed.get("metadata", {})}})
    plain, applied = server.request, []

    def request(method, path, body=None, content_type=None, query=None, **options):
        if method == "PATCH":
            version = server.objects.get(path, found)["metadata"]["resourceVersion"]
            if body["metadata"]["resourceVersion"] != version or path not in server.objects:
                raise ClusterError("the object has been modified", status=409)
            applied.append(path)
        return plain(method, path, body, content_type, query, **options)

    monkeypatch.setattr(server, "request", request)
    manifest = {key: deployment[key] for key in ("kind", "spec")}
    manifest["metadata"] = {key: deployment["metadata"][key] for key in ("namespace", "name")}
    if written:
        cluster.apply(manifest, deployment)
    else:
        with pytest.raises(ClusterError, match="has been modified"):
            cluster.apply(manifest, deployment)
    assert applied == ([path] if written else [])
