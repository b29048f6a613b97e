import pytest

from promptgroup_contract import names
from promptgroup_contract.table import SYSTEM_KEY
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.store import Store
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.plan import plan
from promptgroup_operator.world.effects import Deletion
from promptgroup_operator.world.kept import SHORTENED, WHOLE_CHARACTERS, kept
from promptgroup_operator.world.lookup import KINDS
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
    show(stores["PromptGroup"], [kept(group(), "PromptGroup")], "1")
    return stores


def images(state):
    found = (each for (kind, _), each in state.live.items() if kind == "Deployment")
    return [each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found]


def test_a_long_template_is_read_once_for_each_change_of_it(shown):
    server = ApiServer(deployment("2", "one"))
    reader = GroupReader(server, shown)

    def told(found, event="MODIFIED"):
        store = shown["Deployment"]
        (store.delete if event == "DELETED" else store.put)(with_uid(kept(found, "Deployment")))

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
    shown["Deployment"].put(kept(deployment("2", "one", notes=""), "Deployment"))
    state = GroupReader(server, shown).observe(KEY)
    assert (images(state), server.reads) == (["one"], 0)
    assert state.revisions[0].replicas == 2


def test_a_long_template_of_a_deployment_that_is_not_the_groups_is_not_read(shown):
    foreign = deployment("2", "one")
    foreign["metadata"]["ownerReferences"] = [{"uid": "another"}]
    server = ApiServer(foreign)
    shown["Deployment"].put(kept(foreign, "Deployment"))
    assert (GroupReader(server, shown).observe(KEY).revisions, server.reads) == ((), 0)


def test_a_prompt_whose_copy_is_gone_is_not_among_the_objects_that_live(shown):
    shown["Deployment"].put(kept(deployment("2", "one", notes=""), "Deployment"))
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
