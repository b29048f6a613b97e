import pytest

from promptgroup_contract import names
from promptgroup_contract.table import SYSTEM_KEY
from promptgroup_operator.base.errors import ClusterError, UnreadGroupError
from promptgroup_operator.kube.store import Store
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.plan import plan
from promptgroup_operator.world.effects import Deletion
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Problem
from promptgroup_operator.world.trimmed import SHORTENED, WHOLE_CHARACTERS, trimmed
from support.builders import CREATED, NOW, world
from support.stores import show, with_uid
from support.writtenkube import KEY, create


class ApiServer:
    """A group and its Deployment, and how often that is read."""

    def __init__(self, deployment):
        self.deployment, self.reads = deployment, 0

    def request(self, method, path, **_):
        if path.endswith("/deployments/support-ffffffff"):
            self.reads += 1
            if self.deployment is not None:
                return self.deployment
        raise ClusterError("none", status=404)


def deployment(version, image, notes="x" * WHOLE_CHARACTERS):
    annotations = {names.ANNOTATION_FINGERPRINT: "f" * 64, names.ANNOTATION_APPLIED: "0" * 16}
    owners = [{"uid": "u"}]
    metadata = {"namespace": "chat", "name": "support-ffffffff", "uid": "d", "creationTimestamp": CREATED}
    metadata |= {"labels": {names.LABEL_GROUP: "support"}, "annotations": annotations, "ownerReferences": owners}
    container = {
        "name": "engine",
        "image": image,
        "args": ["--max-num-batched-tokens", "512"],
        "env": [{"name": notes}],
    }
    template = {"metadata": {}, "spec": {"containers": [container]}}
    return {"metadata": metadata | {"resourceVersion": version}, "spec": {"replicas": 2, "template": template}}


def group(generation=1, version=1, **prompt):
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "creationTimestamp": CREATED}
    spec = {"model": "m", "prompt": prompt, "engine": {"image": "i"}, "replicas": 1}
    return {"metadata": metadata | {"generation": generation, "resourceVersion": str(version)}, "spec": spec}


@pytest.fixture
def shown():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    show(stores["PromptGroup"], [trimmed(group(), "PromptGroup")], "1")
    return stores


def images(state):
    found = (each for (kind, _), each in state.live.items() if kind == "Deployment")
    return [each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found]


def test_a_long_template_is_read_once_for_each_change_of_it(shown):
    server = ApiServer(deployment("2", "one"))
    reader = GroupReader(server, shown)

    def told(found, event="MODIFIED"):
        store = shown["Deployment"]
        (store.delete if event == "DELETED" else store.put)(with_uid(trimmed(found, "Deployment")))

    told(server.deployment)
    assert images(reader.observe(KEY)) == images(reader.observe(KEY)) == ["one"]
    assert server.reads == 1

    server.deployment = deployment("3", "one") | {"status": {"observedGeneration": 1, "availableReplicas": 2}}
    told(server.deployment)  # its status has changed: the copy's template stands
    state = reader.observe(KEY)
    assert (images(state), server.reads) == (["one"], 1)
    assert state.live["Deployment", "support-ffffffff"]["status"]["availableReplicas"] == 2
    assert SHORTENED not in state.live["Deployment", "support-ffffffff"]

    server.deployment = deployment("4", "two")
    told(server.deployment)
    assert (images(reader.observe(KEY)), server.reads) == (["two"], 2)

    server.deployment = deployment("6", "four")
    told(deployment("5", "three"))  # the watch is behind what is read
    assert (images(reader.observe(KEY)), server.reads) == (["four"], 3)

    server.deployment = None
    told(deployment("7", "five"))
    assert images(reader.observe(KEY)) == []


def test_a_short_template_is_kept_and_never_read(shown):
    server = ApiServer(None)
    shown["Deployment"].put(trimmed(deployment("2", "one", notes=""), "Deployment"))
    state = GroupReader(server, shown).observe(KEY)
    assert (images(state), server.reads) == (["one"], 0)
    assert state.revisions[0].replicas == 2


def test_a_long_template_of_a_deployment_that_is_not_the_groups_is_not_read(shown):
    foreign = deployment("2", "one")
    foreign["metadata"]["ownerReferences"] = [{"uid": "another"}]
    server = ApiServer(foreign)
    shown["Deployment"].put(trimmed(foreign, "Deployment"))
    assert (GroupReader(server, shown).observe(KEY).revisions, server.reads) == ((), 0)


def test_a_prompt_whose_copy_is_gone_is_not_among_the_objects_that_live(shown):
    shown["Deployment"].put(trimmed(deployment("2", "one", notes=""), "Deployment"))
    state = GroupReader(ApiServer(None), shown).observe(KEY)
    assert None not in state.live.values()
    assert state.revisions[0].prompt is None


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


# --- replicas of several nodes ---------------------------------------------------------------------------------

SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/chat/leaderworkersets/"


class SetServer:
    """LeaderWorkerSets by name, or an error for all of them."""

    def __init__(self, *names_of_sets, error=None):
        self.error = error or ClusterError("none", status=404)
        self.sets = {SETS + name: leader_worker_set(name) for name in names_of_sets}
        self.seen = []

    def request(self, method, path, **_):
        if path.startswith(SETS):
            self.seen.append(path.removeprefix(SETS))
        if path in self.sets:
            return self.sets[path]
        raise self.error if path.startswith(SETS) else ClusterError("none", status=404)


def leader_worker_set(name):
    made = deployment("2", "one", notes="")
    metadata = made["metadata"] | {"name": name}
    metadata["annotations"] = {names.ANNOTATION_FINGERPRINT: name[-8:] * 8, names.ANNOTATION_APPLIED: "0" * 16}
    parts = {"size": 2, "leaderTemplate": made["spec"]["template"], "workerTemplate": {"spec": {"containers": []}}}
    return {"metadata": metadata, "spec": {"replicas": 2, "leaderWorkerTemplate": parts}}


def leader(revision, **metadata):
    owner = {"kind": "StatefulSet", "name": f"support-{revision}", "uid": "s"}
    metadata |= {"namespace": "chat", "name": f"support-{revision}-1", "creationTimestamp": CREATED, "uid": "p"}
    metadata |= {"resourceVersion": "3", "ownerReferences": [owner], "labels": {names.LABEL_GROUP: "support"}}
    annotations = {names.ANNOTATION_FINGERPRINT: revision * 8}
    return trimmed({"metadata": metadata | {"annotations": annotations}, "spec": {}}, "Pod")


@pytest.fixture
def several(shown):
    of = group(version=2, system="You are the support assistant.")
    of["spec"]["engine"] |= {"nodes": 2, "args": ["-tp=2"]}
    of["status"] = {"revisions": [{"fingerprint": "f" * 64}]}
    shown["PromptGroup"].put(trimmed(of, "PromptGroup"))
    return shown


def test_leader_worker_sets_of_all_known_revisions_are_read_by_name(several):
    several["Pod"].put(leader("aaaaaaaa"))
    server = SetServer("support-ffffffff", "support-aaaaaaaa")
    state = GroupReader(server, several).observe(KEY)
    assert {revision.workload for revision in state.revisions} == {"LeaderWorkerSet"}
    assert {revision.deployment for revision in state.revisions} == {"support-ffffffff", "support-aaaaaaaa"}
    assert ("LeaderWorkerSet", "support-ffffffff") in state.live
    assert len(server.seen) == 3  # those, and the one that the spec names, once each
    (pod,) = next(revision.pods for revision in state.revisions if revision.pods)
    assert pod.ordinal == 1
    assert not isinstance(state.prompt, Problem)


def test_a_group_with_one_node_asks_for_none(shown):
    server = SetServer()
    shown["Deployment"].put(trimmed(deployment("2", "one", notes=""), "Deployment"))
    state = GroupReader(server, shown).observe(KEY)
    assert (server.seen, state.revisions[0].workload) == ([], "Deployment")


MISSING_KIND = ClusterError("404 page not found", status=404, unknown_kind=True)


def test_a_cluster_without_the_kind_is_a_problem_with_a_remedy(several):
    server = SetServer(error=MISSING_KIND)
    reader = GroupReader(server, several)
    state = reader.observe(KEY)
    assert (state.prompt.reason, state.revisions) == ("NoLeaderWorkerSets", ())
    assert "install the LeaderWorkerSet controller" in state.prompt.message
    server.error = ClusterError("none", status=404)
    assert not isinstance(reader.observe(KEY).prompt, Problem)


@pytest.mark.parametrize("error", [MISSING_KIND, ClusterError("forbidden", status=403)], ids=["kind", "right"])
def test_a_group_with_leaders_that_run_is_not_taken_for_one_without_revisions(several, error):
    several["Pod"].put(leader("aaaaaaaa"))
    with pytest.raises(UnreadGroupError):
        GroupReader(SetServer(error=error), several).observe(KEY)


def test_a_leader_that_terminates_holds_nothing_up_where_the_kind_was_removed(several):
    several["Pod"].put(leader("aaaaaaaa", deletionTimestamp=CREATED))
    state = GroupReader(SetServer(error=MISSING_KIND), several).observe(KEY)
    assert state.prompt.reason == "NoLeaderWorkerSets"
