import pytest

from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.world.snapshot import Key

SUPPORT = Key("chat", "support")


def pod(name, version, group="support", namespace="chat", **status):
    metadata = {"namespace": namespace, "name": name, "resourceVersion": str(version)}
    return {"kind": "Pod", "metadata": {**metadata, "labels": {"promptgroup.dev/group": group}}, "status": status}


def bookmark(version):
    return {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}


@pytest.fixture
def told():
    return []


@pytest.fixture
def store(told):
    return Store("Pod", told.append)


def names(store, key=SUPPORT):
    return [each["metadata"]["name"] for each in store.list_group(key)]


def test_a_list_and_the_events_after_it_are_what_passes_read(store):
    store.replace("", [pod("a", 1), pod("b", 2, group="other")], "5")
    store.handle_event("", "ADDED", pod("c", 6))
    store.handle_event("", "MODIFIED", pod("a", 7, phase="Running"))
    assert [each["status"] for each in store.list_group(SUPPORT)] == [{"phase": "Running"}, {}]
    store.handle_event("", "DELETED", pod("a", 8))
    assert names(store) == ["c"]
    assert names(store, Key("chat", "other")) == ["b"]
    assert store.versions() == {("chat", "b"): "2", ("chat", "c"): "6"}


def test_what_a_later_list_does_not_show_is_gone_and_its_group_is_told_of(store, told):
    store.replace("", [pod("a", 1), pod("b", 2)], "5")
    told.clear()
    store.replace("", [pod("b", 2)], "9")
    assert names(store) == ["b"]
    assert told == [SUPPORT]


def test_a_list_of_one_namespace_says_nothing_of_the_others(store):
    store.replace("chat", [pod("a", 1)], "5")
    store.replace("else", [pod("b", 2, namespace="else")], "6")
    assert set(store.versions()) == {("chat", "a"), ("else", "b")}


def test_the_own_write_is_read_before_the_watch_tells_of_it(store, told):
    store.replace("", [pod("a", 1)], "5")
    store.record_write(pod("a", 7, phase="Running"))
    store.handle_event("", "MODIFIED", pod("a", 6))
    assert store.get("chat", "a")["status"] == {"phase": "Running"}
    told.clear()
    store.handle_event("", "MODIFIED", pod("a", 7, phase="Running"))
    assert told == []  # nothing that was not known


def test_an_answer_that_the_watch_has_passed_brings_nothing_back(store):
    store.replace("", [pod("a", 1)], "5")
    store.handle_event("", "MODIFIED", pod("a", 6))
    store.handle_event("", "DELETED", pod("a", 8))
    store.record_write(pod("a", 6))
    store.record_write(pod("a", 8))
    assert store.get("chat", "a") is None


def test_a_bookmark_passes_answers_too(store):
    store.replace("", [], "5")
    store.handle_event("", "BOOKMARK", bookmark(9))
    store.record_write(pod("a", 8))
    assert store.get("chat", "a") is None
    store.record_write(pod("a", 10))
    assert store.get("chat", "a") is not None


def test_each_namespace_has_a_watch_of_its_own_and_none_passes_for_another(store):
    store.replace("chat", [], "5")
    store.replace("else", [], "50")
    store.record_write(pod("a", 8))
    assert names(store) == ["a"]


def test_a_write_after_the_list_was_taken_outlives_it(store):
    store.replace("", [], "5")
    store.record_write(pod("a", 8))
    store.replace("", [], "7")
    assert names(store) == ["a"]
    store.replace("", [], "8")
    assert names(store) == []


def test_a_deletion_told_late_does_not_take_what_has_the_name_since(store):
    store.replace("", [pod("a", 1)], "5")
    store.record_write(pod("a", 9))
    store.handle_event("", "DELETED", pod("a", 7))
    assert names(store) == ["a"]


def test_an_object_that_changes_its_group_is_told_of_to_both(store, told):
    store.replace("", [pod("a", 1)], "5")
    told.clear()
    store.handle_event("", "MODIFIED", pod("a", 6, group="other"))
    assert set(told) == {SUPPORT, Key("chat", "other")}
    assert names(store) == []


def test_an_answer_without_the_label_takes_the_object_out(store):
    store.replace("", [pod("a", 1)], "5")
    bare = pod("a", 9)
    del bare["metadata"]["labels"]
    store.record_write(bare)
    assert names(store) == []


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_object_belongs_to_the_group_of_its_label_or_of_its_name(kind):
    store = Store(kind, lambda _: None)
    store.replace("", [pod("support", 1)], "1")
    assert names(store) == ["support"]


def test_a_namespaces_objects(store):
    store.replace("", [pod("a", 1), pod("b", 2, namespace="else")], "5")
    assert [each["metadata"]["name"] for each in store.list_namespace("chat")] == ["a"]


def test_all_is_every_object_of_every_namespace(store):
    store.replace("", [pod("a", 1), pod("b", 2, namespace="else")], "5")
    assert [each["metadata"]["name"] for each in store.list_all()] == ["a", "b"]


def test_a_kind_that_is_refused_has_no_objects_and_their_groups_get_a_pass():
    told = []
    store = Store("InferencePool", told.append)
    found = {
        "namespace": "chat",
        "name": "support",
        "resourceVersion": "3",
        "labels": {"promptgroup.dev/group": "support"},
    }
    store.replace("", [{"metadata": found}], "4")
    told.clear()
    store.refuse("", 403)
    assert (store.list_all(), store.refused("chat"), told) == ([], 403, [Key("chat", "support")])
