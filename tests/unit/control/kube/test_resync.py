import threading

import pytest

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.resync import Resync
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.kube.work_queue import WorkQueue
from promptgroup_operator.world.snapshot import Key

GROUPS = "/apis/promptgroup.dev/v1alpha1/{}promptgroups"


class Server:
    """Lists by path; asked for metadata only."""

    def __init__(self):
        self.lists = {}
        self.asked = []
        self.down = False

    def request(self, method, path, *, query, accept):
        assert (method, "PartialObjectMetadataList" in accept) == ("GET", True)
        if self.down:
            raise ClusterError("down")
        self.asked.append((path, query.get("labelSelector")))
        items = [{"metadata": each} for each in self.lists.get(path, [])]
        return {"metadata": {"resourceVersion": "9"}, "items": items}


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def queue():
    return WorkQueue()


@pytest.fixture
def stores():
    return {kind: Store(kind, lambda _: None) for kind in KINDS}


def deliver(stores, kind, event, metadata):
    labels = {"promptgroup.dev/group": "support"}
    stores[kind].handle_event("", event, {"metadata": {**metadata, "labels": labels}})


def meta(name, version, namespace="chat"):
    return {"namespace": namespace, "name": name, "resourceVersion": version}


def test_lists_come_again_also_after_an_error_until_it_is_stopped(server, queue, stores, monkeypatch):
    resync, steps = Resync(server, queue, stores, (), 0.001), []
    ended = threading.Event()

    def step():
        steps.append(1)
        if len(steps) < 3:
            raise ClusterError("down")
        resync.stop()
        ended.set()

    monkeypatch.setattr(resync, "step", step)
    resync.start()
    assert ended.wait(10)
    resync._thread.join(10)
    assert len(steps) == 3


def test_every_group_gets_a_pass_known_or_not(server, queue, stores):
    server.lists[GROUPS.format("")] = [meta("unheard-of", "1")]
    Resync(server, queue, stores, (), 300).step()
    queue.add(Key("chat", "unheard-of"))
    assert queue.take() == Key("chat", "unheard-of")


def test_what_is_not_ours_is_not_listed(server, queue, stores):
    Resync(server, queue, stores, (), 300).step()
    assert {path.rpartition("/")[2]: selector for path, selector in server.asked} == {
        "promptgroups": None,
        "promptroutes": None,
        "poddisruptionbudgets": "promptgroup.dev/group",
        "deployments": "promptgroup.dev/group",
        "pods": "promptgroup.dev/group",
        "inferencepools": "promptgroup.dev/group",
    }


def test_a_kind_that_the_cluster_does_not_have_is_not_listed(server, queue, stores):
    stores["InferencePool"].refuse("", 404)
    Resync(server, queue, stores, (), 300).step()
    assert "inferencepools" not in {path.rpartition("/")[2] for path, _ in server.asked}


def test_of_the_namespaces_that_are_served_only(server, queue, stores):
    Resync(server, queue, stores, ("a", "b"), 300).step()
    assert {path.split("/namespaces/")[1].split("/")[0] for path, _ in server.asked} == {"a", "b"}


def test_a_watch_that_tells_is_not_silent(server, queue, stores):
    resync = Resync(server, queue, stores, (), 300)
    for version in ("1", "2", "3"):
        resync.step()
        server.lists[GROUPS.format("")] = [meta("one", version)]
        deliver(stores, "PromptGroup", "MODIFIED", meta("one", version))
        assert resync.silent == ()


def test_a_watch_that_misses_a_change_is_silent_until_it_tells_again(server, queue, stores):
    resync = Resync(server, queue, stores, (), 300)
    deliver(stores, "PromptGroup", "ADDED", meta("one", "1"))
    server.lists[GROUPS.format("")] = [meta("one", "2")]
    resync.step()
    assert resync.silent == ()
    resync.step()
    assert resync.silent == ("PromptGroup",)
    deliver(stores, "PromptGroup", "MODIFIED", meta("one", "2"))
    resync.step()
    assert resync.silent == ()


def test_a_missed_deletion_is_found_and_a_told_one_is_none(server, queue, stores):
    resync = Resync(server, queue, stores, (), 300)
    for name in ("told", "missed"):
        deliver(stores, "Pod", "ADDED", meta(name, "1"))
    deliver(stores, "Pod", "DELETED", meta("told", "2"))
    resync.step()
    resync.step()
    assert resync.silent == ("Pod",)


def test_an_outage_says_nothing_about_watches(server, queue, stores):
    resync = Resync(server, queue, stores, (), 300)
    server.lists[GROUPS.format("")] = [meta("one", "1")]
    resync.step()
    server.down = True
    with pytest.raises(ClusterError):
        resync.step()
    server.down = False
    deliver(stores, "PromptGroup", "ADDED", meta("one", "1"))
    resync.step()
    assert resync.silent == ()
