import tracemalloc

import pytest

from promptgroup_contract import names
from promptgroup_operator.base.errors import ClusterError, StoredSpecError
from promptgroup_operator.kube.api_server import PAGE
from promptgroup_operator.kube.read import ClusterReader
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.world.kept import SHORTENED, WHOLE_CHARACTERS, kept
from promptgroup_operator.world.snapshot import Key
from support.builders import CREATED
from support.stores import show, with_uid

KEY = Key("chat", "support")


class Pages:
    """A collection in pages, and nothing else."""

    def __init__(self, *pages):
        self.pages, self.asked = list(pages), []

    def request(self, method, path, *, query=None, accept=""):
        if query is None:
            raise ClusterError("none", status=404)
        self.asked.append((query.get("limit"), query.get("continue")))
        items = self.pages.pop(0)
        rest = {"continue": f"token-{len(self.pages)}"} if self.pages else {}
        return {"metadata": {"resourceVersion": "9", **rest}, "items": items}


def router(name, *, running=True):
    state = {"running": {}} if running else {"waiting": {}}
    return {
        "metadata": {"namespace": "chat", "name": name},
        "spec": {"containers": [{"name": "router", "ports": [{"name": "admin", "containerPort": 9090}]}]},
        "status": {"podIP": "10.0.0.1", "containerStatuses": [{"containerID": name, "state": state}]},
    }


def test_lists_are_read_in_pages():
    pages = Pages([router("a"), router("b", running=False)], [router("c")])
    reader = ClusterReader(pages, {})
    assert reader.list_routers("chat") == {"a": "10.0.0.1:9090", "c": "10.0.0.1:9090"}
    assert pages.asked == [(str(PAGE), None), (str(PAGE), "token-1")]


def test_a_list_without_objects_may_have_null_in_their_place():
    assert ClusterReader(Pages(None), {}).list_routers("chat") == {}


def test_of_routers_pods_no_more_is_kept_than_what_is_read_of_them():
    def pod(number):
        return router(f"r{number}") | {"metadata": {"name": f"r{number}", "annotations": {"a": "b" * 200_000}}}

    class Large(Pages):
        def request(self, method, path, *, query, accept):
            self.pages[0] = [pod(len(self.asked))]
            return super().request(method, path, query=query, accept=accept)

    reader = ClusterReader(Large(*[[]] * 40), {})
    tracemalloc.start()
    try:
        assert len(reader.list_routers("chat")) == 40
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_group_that_an_older_version_stored_names_the_field_and_never_its_value():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "generation": 3, "creationTimestamp": CREATED}
    spec = {"model": 7, "prompt": {"system": {"secret": "words"}}}
    stored = {"metadata": {**metadata, "resourceVersion": "1"}, "spec": spec}
    show(stores["PromptGroup"], [kept(stored, "PromptGroup")], "1")
    with pytest.raises(StoredSpecError, match=r"spec\.model: .*spec\.prompt\.system: ") as refused:
        ClusterReader(Pages(), stores).observe(KEY)
    assert refused.value.generation == 3
    assert "words" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_reference_that_leads_to_another_namespace_is_that_groups_fault_and_nothing_is_read():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    reference = {"secretKeyRef": {"name": "../../victim/secrets/db", "key": "password"}}
    show(stores["PromptGroup"], [kept(group(systemFrom=reference), "PromptGroup")], "1")
    pages = Pages()
    with pytest.raises(StoredSpecError, match=r"systemFrom\.secretKeyRef\.name: String should match pattern"):
        ClusterReader(pages, stores).observe(KEY)
    assert not pages.asked


def group(generation=1, version=1, **prompt):
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "creationTimestamp": CREATED}
    spec = {"model": "m", "prompt": prompt, "engine": {"image": "i"}, "replicas": 1}
    return {"metadata": metadata | {"generation": generation, "resourceVersion": str(version)}, "spec": spec}


def test_a_long_prompt_is_read_when_a_pass_needs_it_and_not_kept_by_the_store():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    long, longer = "a" * WHOLE_CHARACTERS, "b" * WHOLE_CHARACTERS
    pages = Pages([group(system=long)])
    reader = ClusterReader(pages, stores)

    def told(version, generation, text):
        found = group(generation, version, system=text) | {"status": {"revision": str(version)}}
        in_store = kept(found, "PromptGroup")
        assert text not in str(in_store)
        stores["PromptGroup"].put(in_store)

    told(1, 1, long)
    assert reader.observe(KEY).group.spec.prompt.system == long
    told(2, 1, long)  # its status has changed: nothing is read again
    state = reader.observe(KEY)
    assert (state.group.spec.prompt.system, state.group.status) == (long, {"revision": "2"})
    assert len(pages.asked) == 1
    told(3, 2, longer)
    pages.pages = [[group(2, 3, system=longer)]]
    assert reader.observe(KEY).group.spec.prompt.system == longer
    pages.pages = [[]]
    told(4, 3, longer)
    assert reader.observe(KEY) is None  # deleted meanwhile


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


@pytest.fixture
def stores():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    show(stores["PromptGroup"], [kept(group(), "PromptGroup")], "1")
    return stores


def images(state):
    found = (each for (kind, _), each in state.live.items() if kind == "Deployment")
    return [each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found]


def test_a_long_template_is_read_once_for_each_change_of_it(stores):
    server = ApiServer(deployment("2", "one"))
    reader = ClusterReader(server, stores)

    def told(found, event="MODIFIED"):
        store = stores["Deployment"]
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


def test_a_short_template_is_kept_and_never_read(stores):
    server = ApiServer(None)
    stores["Deployment"].put(kept(deployment("2", "one", notes=""), "Deployment"))
    state = ClusterReader(server, stores).observe(KEY)
    assert (images(state), server.reads) == (["one"], 0)
    assert state.revisions[0].replicas == 2


def test_a_long_template_of_a_deployment_that_is_not_the_groups_is_not_read(stores):
    foreign = deployment("2", "one")
    foreign["metadata"]["ownerReferences"] = [{"uid": "another"}]
    server = ApiServer(foreign)
    stores["Deployment"].put(kept(foreign, "Deployment"))
    assert (ClusterReader(server, stores).observe(KEY).revisions, server.reads) == ((), 0)


def test_a_prompt_whose_copy_is_gone_is_not_among_the_objects_that_live(stores):
    stores["Deployment"].put(kept(deployment("2", "one", notes=""), "Deployment"))
    state = ClusterReader(ApiServer(None), stores).observe(KEY)
    assert None not in state.live.values()
    assert state.revisions[0].prompt is None


class One:
    """A client of the API server that holds one object."""

    def __init__(self, found):
        self.found = found

    def request(self, method, path):
        return {"metadata": {"name": "p", "namespace": "chat"}, **self.found}


@pytest.mark.parametrize(
    ("kind", "found", "why"),
    [
        ("ConfigMap", {"data": {"a": "x"}, "binaryData": {"system": "/w=="}}, "is in binaryData"),
        ("Secret", {"data": {"a": "eA==", "system": "/w=="}}, "is not UTF-8 text"),
    ],
)
def test_a_value_that_is_no_text_is_known_as_that(kind, found, why):
    values = ClusterReader(One(found), {}).values(Key("chat", "support"), kind, "p")
    assert values == {"a": "x"}
    assert values.unreadable["system"].startswith(why)
