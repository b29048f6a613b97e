import pytest

from promptgroup_operator.base.errors import StoredSpecError
from promptgroup_operator.kube.store import Store
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.trimmed import WHOLE_CHARACTERS, trimmed
from support.builders import CREATED, TEXT
from support.pages import Pages
from support.stores import show
from support.writtenkube import KEY, create, deliver, promptgroup


def group(generation=1, version=1, **prompt):
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "creationTimestamp": CREATED}
    spec = {"model": "m", "prompt": prompt, "engine": {"image": "i"}, "replicas": 1}
    return {"metadata": metadata | {"generation": generation, "resourceVersion": str(version)}, "spec": spec}


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


def test_a_group_that_an_older_version_stored_names_the_field_and_never_its_value():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "generation": 3, "creationTimestamp": CREATED}
    spec = {"model": 7, "prompt": {"system": {"secret": "words"}}}
    stored = {"metadata": {**metadata, "resourceVersion": "1"}, "spec": spec}
    show(stores["PromptGroup"], [trimmed(stored, "PromptGroup")], "1")
    with pytest.raises(StoredSpecError, match=r"spec\.model: .*spec\.prompt\.system: ") as refused:
        GroupReader(Pages(), stores).observe(KEY)
    assert refused.value.generation == 3
    assert "words" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_reference_that_leads_to_another_namespace_is_that_groups_fault_and_nothing_is_read():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    reference = {"secretKeyRef": {"name": "../../victim/secrets/db", "key": "password"}}
    show(stores["PromptGroup"], [trimmed(group(systemFrom=reference), "PromptGroup")], "1")
    pages = Pages()
    with pytest.raises(StoredSpecError, match=r"systemFrom\.secretKeyRef\.name: String should match pattern"):
        GroupReader(pages, stores).observe(KEY)
    assert not pages.asked


def test_a_long_prompt_is_read_when_a_pass_needs_it_and_not_kept_by_the_store():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    long, longer = "a" * WHOLE_CHARACTERS, "b" * WHOLE_CHARACTERS
    pages = Pages([group(system=long)])
    reader = GroupReader(pages, stores)

    def told(version, generation, text):
        found = group(generation, version, system=text) | {"status": {"revision": str(version)}}
        in_store = trimmed(found, "PromptGroup")
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
