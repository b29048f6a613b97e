import threading

import pytest

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.resync import Resync
from promptgroup_operator.passes.work_queue import WorkQueue
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Key
from support.stores import with_uid

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
        items = [{"metadata": {**each, "uid": each["name"]}} for each in self.lists.get(path, [])]
        return {"metadata": {"resourceVersion": "9"}, "items": items}


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def queue():
    return WorkQueue()


def deliver(stores, kind, event, metadata):
    found = with_uid({"metadata": {**metadata, "labels": {"promptgroup.dev/group": "support"}}})
    (stores[kind].delete if event == "DELETED" else stores[kind].put)(found)


def meta(name, version, namespace="chat"):
    return {"namespace": namespace, "name": name, "resourceVersion": version}


def test_lists_come_again_also_after_an_error_until_it_is_stopped(server, queue, stores, monkeypatch):
    resync, steps = Resync(server, queue.add, stores, (), 0.001), []
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


def test_every_group_gets_a_pass(server, queue, stores):
    server.lists[GROUPS.format("")] = [meta("one", "1")]
    deliver(stores, "PromptGroup", "ADDED", meta("one", "1"))
    Resync(server, queue.add, stores, (), 300).step()
    assert queue.take() == Key("chat", "one")


def test_what_is_not_ours_is_not_listed(server, queue, stores):
    Resync(server, queue.add, stores, (), 300).step()
    assert {path.rpartition("/")[2]: selector for path, selector in server.asked} == {
        "promptgroups": None,
        "promptroutes": None,
        "poddisruptionbudgets": "promptgroup.dev/group",
        "deployments": "promptgroup.dev/group",
        "daemonsets": "promptgroup.dev/group",
        "pods": "promptgroup.dev/group",
    }


def test_of_the_namespaces_that_are_served_only(server, queue, stores):
    Resync(server, queue.add, stores, ("a", "b"), 300).step()
    assert {path.split("/namespaces/")[1].split("/")[0] for path, _ in server.asked} == {"a", "b"}


def test_a_watch_that_tells_is_not_silent(server, queue, stores):
    resync = Resync(server, queue.add, stores, (), 300)
    for version in ("1", "2", "3"):
        resync.step()
        server.lists[GROUPS.format("")] = [meta("one", version)]
        deliver(stores, "PromptGroup", "MODIFIED", meta("one", version))
        assert resync.silent == ()


def test_a_watch_that_misses_a_change_is_silent_until_it_tells_again(server, queue, stores):
    resync = Resync(server, queue.add, stores, (), 300)
    deliver(stores, "PromptGroup", "ADDED", meta("one", "1"))
    server.lists[GROUPS.format("")] = [meta("one", "2")]
    resync.step()
    assert resync.silent == ()
    resync.step()
    assert resync.silent == ("PromptGroup",)
    deliver(stores, "PromptGroup", "MODIFIED", meta("one", "2"))
    resync.step()
    assert resync.silent == ()


def test_what_no_list_shows_is_gone(server, queue, stores):
    resync = Resync(server, queue.add, stores, (), 300)
    deliver(stores, "Pod", "ADDED", meta("missed", "1"))
    deliver(stores, "Pod", "ADDED", meta("newer", "10"))
    resync.step()
    assert list(stores["Pod"].versions()) == [("chat", "newer")]
    resync.step()
    assert resync.silent == ()


PODS = "/api/v1/pods"


@pytest.fixture
def resync(server, queue, stores):
    resync = Resync(server, queue.add, stores, (), 300)
    resync.start()
    yield resync
    resync.stop()
    resync._thread.join(10)
    assert not resync._thread.is_alive()


def test_what_a_list_of_kopfs_did_not_bring_again_goes_also_if_the_server_is_away_for_a_moment(
    server, stores, resync, monkeypatch
):
    gone = threading.Event()
    monkeypatch.setattr("promptgroup_operator.kube.resync.RETRY_SECONDS", 0.01)
    monkeypatch.setattr(stores["Pod"], "_changed", lambda _: gone.set())
    deliver(stores, "Pod", "ADDED", meta("missed", "1"))
    gone.clear()
    server.down = True
    resync.relisted("Pod", "")
    server.down = False
    assert gone.wait(10)
    assert stores["Pod"].versions() == {}


def test_passes_wait_until_the_stores_have_what_was_there_at_the_start(server, stores, resync):
    filled = threading.Thread(target=resync.wait_until_filled)
    filled.start()
    server.lists[PODS] = [meta("slow", "2")]
    for kind in KINDS:
        resync.relisted(kind, "")
    filled.join(0.2)
    assert filled.is_alive()
    deliver(stores, "Pod", "ADDED", meta("slow", "2"))
    filled.join(10)
    assert not filled.is_alive()


def test_nobody_waits_for_stores_of_a_process_that_ends(server, queue, stores):
    resync = Resync(server, queue.add, stores, (), 300)
    resync.stop()
    assert not resync.wait_until_filled()


def test_an_outage_says_nothing_about_watches(server, queue, stores):
    resync = Resync(server, queue.add, stores, (), 300)
    server.lists[GROUPS.format("")] = [meta("one", "1")]
    resync.step()
    server.down = True
    with pytest.raises(ClusterError):
        resync.step()
    server.down = False
    deliver(stores, "PromptGroup", "ADDED", meta("one", "1"))
    resync.step()
    assert resync.silent == ()


def test_the_start_is_complete_though_the_list_behind_kopfs_is_refused_at_first(server, queue, stores, monkeypatch):
    monkeypatch.setattr("promptgroup_operator.kube.resync.RETRY_SECONDS", 0.01)
    plain, refused = server.request, ["once", "twice"]

    def request(*arguments, **options):
        if refused:
            refused.pop()
            raise ClusterError("down")
        return plain(*arguments, **options)

    monkeypatch.setattr(server, "request", request)
    resync = Resync(server, queue.add, stores, (), 300)
    resync.start()
    for kind in KINDS:
        resync.relisted(kind, "")
    filled = threading.Thread(target=resync.wait_until_filled, daemon=True)
    filled.start()
    filled.join(10)
    assert not filled.is_alive()
    resync.stop()
    resync._thread.join(10)
