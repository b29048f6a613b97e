import pytest

from promptgroup_operator.kube.store import Store
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Key

SUPPORT = Key("chat", "support")


def pod(name, version, group="support", namespace="chat", uid="", **status):
    metadata = {"namespace": namespace, "name": name, "uid": uid or name, "resourceVersion": str(version)}
    return {"kind": "Pod", "metadata": {**metadata, "labels": {"promptgroup.dev/group": group}}, "status": status}


@pytest.fixture
def told():
    return []


@pytest.fixture
def store(told):
    return Store("Pod", told.append)


def names(store, key=SUPPORT):
    return [each["metadata"]["name"] for each in store.list_at(key)]


def put(store, *found):
    for each in found:
        store.put(each)


def test_what_is_put_is_what_passes_read(store):
    put(store, pod("a", 1), pod("b", 2, group="other"), pod("c", 6), pod("a", 7, phase="Running"))
    assert [each["status"] for each in store.list_at(SUPPORT)] == [{"phase": "Running"}, {}]
    store.delete(pod("a", 8))
    assert names(store) == ["c"]
    assert names(store, Key("chat", "other")) == ["b"]
    assert store.versions() == {("chat", "b"): 2, ("chat", "c"): 6}


def test_what_a_later_list_does_not_show_is_gone_and_its_group_is_told_of(store, told):
    put(store, pod("a", 1), pod("b", 2))
    told.clear()
    store.keep_only("", {("chat", "b")}, 9)
    assert names(store) == ["b"]
    assert told == [SUPPORT]


def test_a_list_of_one_namespace_says_nothing_of_the_others(store):
    put(store, pod("a", 1), pod("b", 2, namespace="else"))
    store.keep_only("chat", {("chat", "a")}, 5)
    store.keep_only("else", {("else", "b")}, 6)
    assert set(store.versions()) == {("chat", "a"), ("else", "b")}


def test_the_own_write_is_read_before_the_watch_tells_of_it(store, told):
    put(store, pod("a", 1), pod("a", 7, phase="Running"), pod("a", 6))
    assert store.get("chat", "a")["status"] == {"phase": "Running"}
    told.clear()
    store.put(pod("a", 7, phase="Running"))
    assert told == []  # nothing that was not known


def test_what_is_from_before_a_deletion_brings_nothing_back(store):
    put(store, pod("a", 1), pod("a", 6))
    store.delete(pod("a", 8))
    put(store, pod("a", 6), pod("a", 8))
    assert store.get("chat", "a") is None
    put(store, pod("b", 3))
    store.keep_only("", set(), 9)
    put(store, pod("b", 5), pod("b", 9))
    assert store.get("chat", "b") is None


def test_an_object_that_gets_its_label_back_is_there_again_whichever_event_comes_first(store):
    put(store, pod("a", 1))
    store.delete(pod("a", 8))
    put(store, pod("a", 9))
    assert names(store) == ["a"]
    store.delete(pod("a", 8))
    assert names(store) == ["a"]


def test_deletions_are_remembered_up_to_a_number(store, monkeypatch):
    monkeypatch.setattr("promptgroup_operator.kube.store.DELETED", 2)
    for name in ("a", "b", "c"):
        store.delete(pod(name, 5))
    put(store, pod("a", 4), pod("b", 4), pod("c", 4))
    assert names(store) == ["a"]


def test_a_write_after_the_list_was_taken_outlives_it(store):
    put(store, pod("a", 8))
    store.keep_only("", set(), 7)
    assert names(store) == ["a"]
    store.keep_only("", set(), 8)
    assert names(store) == []


def test_a_deletion_told_late_does_not_take_what_has_the_name_since(store):
    put(store, pod("a", 1), pod("a", 9, uid="another"))
    store.delete(pod("a", 7))
    assert names(store) == ["a"]


def test_a_version_that_differs_in_no_stored_field_is_stored_and_changes_no_group(store, told):
    put(store, pod("a", 1, phase="Running"))
    told.clear()
    put(store, pod("a", 2, phase="Running"))
    assert (told, store.versions()) == ([], {("chat", "a"): 2})
    assert store.list_at(SUPPORT) == store.list_at("chat") == [pod("a", 2, phase="Running")]
    put(store, pod("a", 3, phase="Running", podIP="10.0.0.5"))
    put(store, pod("a", 4, uid="later", phase="Running", podIP="10.0.0.5"))
    assert told == [SUPPORT, SUPPORT]


def test_an_object_that_changes_its_group_is_told_of_to_both(store, told):
    put(store, pod("a", 1))
    told.clear()
    put(store, pod("a", 6, group="other"))
    assert set(told) == {SUPPORT, Key("chat", "other")}
    assert names(store) == []


def test_an_answer_without_the_label_takes_the_object_out(store):
    bare = pod("a", 9)
    del bare["metadata"]["labels"]
    put(store, pod("a", 1), bare)
    assert names(store) == []


def test_a_list_has_arrived_once_its_objects_are_known_as_new_or_known_to_be_gone(store):
    listed = {("chat", "a"): ("a", 5), ("chat", "b"): ("b", 6)}
    put(store, pod("a", 4), pod("b", 7))
    assert not store.has(listed)
    put(store, pod("a", 5))
    assert store.has(listed)
    store.delete(pod("b", 8))
    assert store.has(listed)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_object_belongs_to_the_group_of_its_label_or_of_its_name(kind):
    store = Store(kind, lambda _: None)
    put(store, pod("support", 1))
    assert names(store) == ["support"]


def test_a_namespaces_objects(store):
    put(store, pod("a", 1), pod("b", 2, namespace="else"))
    assert [each["metadata"]["name"] for each in store.list_at("chat")] == ["a"]


def test_all_is_every_object_of_every_namespace(store):
    put(store, pod("a", 1), pod("b", 2, namespace="else"))
    assert [each["metadata"]["name"] for each in store.list_all()] == ["a", "b"]


def test_a_version_that_is_kept_or_older_is_known(store):
    put(store, pod("a", 7))
    assert [store.knows(pod("a", version)) for version in (6, 7, 8)] == [True, True, False]
    assert not store.knows(pod("b", 1))
