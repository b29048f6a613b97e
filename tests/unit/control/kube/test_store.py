import pytest

from promptgroup_operator.kube.store import KINDS, Mirror, lean
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
def mirror(told):
    return Mirror("Pod", told.append)


def names(mirror, key=SUPPORT):
    return [each["metadata"]["name"] for each in mirror.of_group(key)]


def test_a_list_and_the_events_after_it_are_what_passes_read(mirror):
    mirror.replace("", [pod("a", 1), pod("b", 2, group="other")], "5")
    mirror.tell("", "ADDED", pod("c", 6))
    mirror.tell("", "MODIFIED", pod("a", 7, phase="Running"))
    assert [each["status"] for each in mirror.of_group(SUPPORT)] == [{"phase": "Running"}, {}]
    mirror.tell("", "DELETED", pod("a", 8))
    assert names(mirror) == ["c"]
    assert names(mirror, Key("chat", "other")) == ["b"]
    assert mirror.versions() == {("chat", "b"): "2", ("chat", "c"): "6"}


def test_what_a_later_list_does_not_show_is_gone_and_its_group_is_told_of(mirror, told):
    mirror.replace("", [pod("a", 1), pod("b", 2)], "5")
    told.clear()
    mirror.replace("", [pod("b", 2)], "9")
    assert names(mirror) == ["b"]
    assert told == [SUPPORT]


def test_a_list_of_one_namespace_says_nothing_of_the_others(mirror):
    mirror.replace("chat", [pod("a", 1)], "5")
    mirror.replace("else", [pod("b", 2, namespace="else")], "6")
    assert set(mirror.versions()) == {("chat", "a"), ("else", "b")}


def test_the_own_write_is_read_before_the_watch_tells_of_it(mirror, told):
    mirror.replace("", [pod("a", 1)], "5")
    mirror.wrote(pod("a", 7, phase="Running"))
    mirror.tell("", "MODIFIED", pod("a", 6))
    assert mirror.get("chat", "a")["status"] == {"phase": "Running"}
    told.clear()
    mirror.tell("", "MODIFIED", pod("a", 7, phase="Running"))
    assert told == []  # nothing that was not known


def test_an_answer_that_the_watch_has_passed_brings_nothing_back(mirror):
    mirror.replace("", [pod("a", 1)], "5")
    mirror.tell("", "MODIFIED", pod("a", 6))
    mirror.tell("", "DELETED", pod("a", 8))
    mirror.wrote(pod("a", 6))
    mirror.wrote(pod("a", 8))
    assert mirror.get("chat", "a") is None


def test_a_bookmark_passes_answers_too(mirror):
    mirror.replace("", [], "5")
    mirror.tell("", "BOOKMARK", bookmark(9))
    mirror.wrote(pod("a", 8))
    assert mirror.get("chat", "a") is None
    mirror.wrote(pod("a", 10))
    assert mirror.get("chat", "a") is not None


def test_each_namespace_has_a_watch_of_its_own_and_none_passes_for_another(mirror):
    mirror.replace("chat", [], "5")
    mirror.replace("else", [], "50")
    mirror.wrote(pod("a", 8))
    assert names(mirror) == ["a"]


def test_a_write_after_the_list_was_taken_outlives_it(mirror):
    mirror.replace("", [], "5")
    mirror.wrote(pod("a", 8))
    mirror.replace("", [], "7")
    assert names(mirror) == ["a"]
    mirror.replace("", [], "8")
    assert names(mirror) == []


def test_a_deletion_told_late_does_not_take_what_has_the_name_since(mirror):
    mirror.replace("", [pod("a", 1)], "5")
    mirror.wrote(pod("a", 9))
    mirror.tell("", "DELETED", pod("a", 7))
    assert names(mirror) == ["a"]


def test_an_object_that_changes_its_group_is_told_of_to_both(mirror, told):
    mirror.replace("", [pod("a", 1)], "5")
    told.clear()
    mirror.tell("", "MODIFIED", pod("a", 6, group="other"))
    assert set(told) == {SUPPORT, Key("chat", "other")}
    assert names(mirror) == []


def test_an_answer_without_the_label_takes_the_object_out(mirror):
    mirror.replace("", [pod("a", 1)], "5")
    bare = pod("a", 9)
    del bare["metadata"]["labels"]
    mirror.wrote(bare)
    assert names(mirror) == []


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_object_belongs_to_the_group_of_its_label_or_of_its_name(kind):
    mirror = Mirror(kind, lambda _: None)
    mirror.replace("", [pod("support", 1)], "1")
    assert names(mirror) == ["support"]


def test_a_namespaces_objects(mirror):
    mirror.replace("", [pod("a", 1), pod("b", 2, namespace="else")], "5")
    assert [each["metadata"]["name"] for each in mirror.within("chat")] == ["a"]


def test_an_items_kind_is_filled_in_and_its_managed_fields_are_left_out():
    assert lean({"metadata": {"name": "a", "managedFields": [{}]}, "spec": 1}, "Pod") == {
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": 1,
    }


def test_all_is_every_object_of_every_namespace(mirror):
    mirror.replace("", [pod("a", 1), pod("b", 2, namespace="else")], "5")
    assert [each["metadata"]["name"] for each in mirror.all()] == ["a", "b"]
