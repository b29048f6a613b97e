import json
import queue
import threading
from datetime import timedelta

import pytest
from kubernetes import client
from prometheus_client import Counter

from promptgroup_operator.base.errors import ClusterError, StoredSpecError
from promptgroup_operator.kube.api_server import KubeClient
from promptgroup_operator.kube.read import ClusterReader
from promptgroup_operator.kube.reflector import SILENT_SECONDS, Failures, RateLimit, Reflector, Reflectors
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.world.snapshot import Key
from support.builders import CREATED
from support.scriptedkube import Answer, refusal, scripted_kube

PATH = "/api/v1/pods"


def pod(name, version):
    labels = {"promptgroup.dev/group": "support"}
    return {"metadata": {"namespace": "chat", "name": name, "resourceVersion": str(version), "labels": labels}}


def event(kind, found):
    return {"type": kind, "object": {"kind": "Pod", **found}}


class Server:
    """Lists what it holds; each watch is one of `watches`, an error among its events is raised; others end at once."""

    def __init__(self):
        self.items, self.version = [], "5"
        self.watches = []
        self.asked = []

    def request(self, method, path, *, query, accept="application/json"):
        assert method == "GET"
        self.asked.append(("list", path, query))
        return {"metadata": {"resourceVersion": self.version}, "items": self.items}

    def watch(self, path, query, silent):
        assert silent == SILENT_SECONDS
        self.asked.append(("watch", path, query))
        # a reflector that a test has started may ask once more before it sees that it was stopped
        for each in self.watches.pop(0) if self.watches else ():
            if isinstance(each, Exception):
                raise each
            yield each


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def store():
    return Store("Pod", lambda _: None)


@pytest.fixture
def reflector(server, store):
    return Reflector(server, "Pod", "", store)


def since(server):
    """Versions from which watches began."""
    return [query["resourceVersion"] for what, _, query in server.asked if what == "watch"]


def test_a_watch_goes_on_from_the_list(server, store, reflector):
    server.items = [pod("a", 1)]
    server.watches = [[event("ADDED", pod("b", 6)), event("DELETED", pod("a", 7))]]
    reflector.list()
    assert reflector.listed.is_set()
    reflector.watch()
    assert list(store.versions()) == [("chat", "b")]
    assert since(server) == ["5"]
    assert {query["labelSelector"] for _, _, query in server.asked} == {"promptgroup.dev/group"}
    assert {path for _, path, _ in server.asked} == {PATH}


def test_the_next_watch_goes_on_from_the_last_event_whatever_ended_the_one_before(server, store, reflector):
    # as the API server sends it: what the kind requires is there, and null
    version = {"resourceVersion": "9", "creationTimestamp": None}
    empty = {"kind": "Pod", "apiVersion": "v1", "metadata": version, "spec": {"containers": None}, "status": {}}
    bookmark = {"type": "BOOKMARK", "object": empty}
    server.watches = [[event("ADDED", pod("a", 6)), bookmark], [event("ADDED", pod("b", 11)), ClusterError("cut")], []]
    reflector.list()
    reflector.watch()
    with pytest.raises(ClusterError):
        reflector.watch()
    reflector.watch()
    assert since(server) == ["5", "9", "11"]
    assert len(store.versions()) == 2


def deep_group(name, depth):
    """A PromptGroup whose template nests, as the API server sends it."""
    metadata = {"namespace": "chat", "name": name, "uid": name, "generation": 1, "creationTimestamp": CREATED}
    spec = {"model": "m", "prompt": {"system": name}, "engine": {"image": "i", "template": "nested"}}
    text = json.dumps({"metadata": {**metadata, "resourceVersion": "7"}, "spec": spec})
    return text.replace('"nested"', '{"a":' * depth + "1" + "}" * depth)


@pytest.mark.parametrize("depth", [65, 129, 950, 1100, 3000])
@pytest.mark.parametrize("how", ["listed", "watched"])
def test_a_group_that_nests_too_deeply_keeps_no_other_from_being_read(tmp_path, depth, how):
    groups = [deep_group("evil", depth), deep_group("plain", 64)]
    events = "".join(f'{{"type":"ADDED","object":{each}}}\n' for each in groups)
    listed = groups if how == "listed" else []

    def serve(method, path):
        if "/promptgroups" not in path:
            return refusal(404)
        if "watch=true" in path:
            return Answer(200, events.encode() if how == "watched" else b"", watch=True)
        return Answer(200, f'{{"metadata":{{"resourceVersion":"5"}},"items":[{",".join(listed)}]}}'.encode())

    with scripted_kube(tmp_path) as kube:
        kube.serve, kube.watches_end = serve, True
        configuration = client.Configuration()
        configuration.host, configuration.ssl_ca_cert = f"https://127.0.0.1:{kube.port}", str(tmp_path / "ca.crt")
        server = KubeClient(client.ApiClient(configuration), Counter("r", "R.", ["verb", "code"], registry=None))
        stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
        reflector = Reflector(server, "PromptGroup", "", stores["PromptGroup"])
        reflector.list()
        reflector.watch()
        reader = ClusterReader(server, stores)
        assert reader.observe(Key("chat", "plain")).group.spec.prompt.system == "plain"
        with pytest.raises(StoredSpecError, match=r"spec\.engine\.template: .*more than 64 levels deep"):
            reader.observe(Key("chat", "evil"))
        server.close()


def test_an_expired_version_ends_the_watch_with_its_status(server, reflector):
    server.watches = [[{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}]]
    reflector.list()
    with pytest.raises(ClusterError, match="too old") as ended:
        reflector.watch()
    assert ended.value.status == 410


def test_deletions_during_an_outage_are_found_by_the_list_after_it(server):
    over = threading.Event()
    changes = queue.SimpleQueue()
    store = Store("Pod", changes.put)

    def outage():
        server.items, server.version = [], "20"
        yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}

    def calm():
        yield from ()
        over.wait(5)

    server.items = [pod("a", 1)]
    server.watches = [outage(), calm()]
    reflector = Reflector(server, "Pod", "", store)
    reflector.start()
    changes.get(timeout=5)  # listed
    changes.get(timeout=5)  # and listed again, without the pod
    assert store.versions() == {}
    reflector.stop()
    over.set()
    reflector._thread.join(5)
    assert not reflector._thread.is_alive()


def test_the_refusals_of_a_server_that_was_away_begin_the_waits_anew():
    failures = Failures()
    assert [failures.add(status) for status in (None, None, None, 403, 403, None)] == [1, 2, 3, 1, 2, 1]


def test_a_watch_that_told_something_has_not_failed_before(server, reflector):
    server.watches = [[ClusterError("cut")], [event("ADDED", pod("a", 6)), ClusterError("cut")]]
    reflector.list()
    reflector._failures.add(None)
    with pytest.raises(ClusterError):
        reflector.watch()
    assert reflector._failures.add(None) == 2
    with pytest.raises(ClusterError):
        reflector.watch()
    assert reflector._failures.add(None) == 1


def test_passes_wait_for_the_first_list_of_every_kind(server, store):
    every = Reflectors(server, {"Pod": store}, ("chat", "else"))
    assert not every.wait(lambda: True)
    for each in every._all:
        each.list()
    assert every.wait(lambda: False)
    assert [path for _, path, _ in server.asked] == [f"/api/v1/namespaces/{name}/pods" for name in ("chat", "else")]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_first_watch_does_not_wait_and_the_next_waits_for_its_turn():
    limit = RateLimit(2.0, Clock())
    assert [limit.reserve(), limit.reserve(), limit.reserve()] == [0.0, 2.0, 4.0]


def test_a_watch_that_comes_late_does_not_wait():
    clock = Clock()
    limit = RateLimit(2.0, clock)
    limit.reserve()
    clock.now += 300
    assert limit.reserve() == 0.0


NO_LISTS = {
    "a status": {"kind": "Status"},
    "items that are a text": {"metadata": {"resourceVersion": "1"}, "items": "many"},
    "items without metadata": {"metadata": {"resourceVersion": "1"}, "items": [{}]},
    "items that are numbers": {"metadata": {"resourceVersion": "1"}, "items": [1]},
    "an object without a version": {
        "metadata": {"resourceVersion": "1"},
        "items": [{"metadata": {"namespace": "a", "name": "b", "labels": {"promptgroup.dev/group": "c"}}}],
    },
    "a version that is no number": {"metadata": {"resourceVersion": "x"}, "items": []},
}


@pytest.mark.parametrize("case", NO_LISTS)
def test_an_answer_that_is_no_list_is_an_error_that_is_retried(case, server, store, reflector, monkeypatch):
    monkeypatch.setattr(server, "request", lambda *_, **__: NO_LISTS[case])
    with pytest.raises(ClusterError):
        reflector.list()
    assert not reflector.listed.is_set()


@pytest.mark.parametrize(
    "event", [{}, {"type": "ADDED"}, {"type": "ADDED", "object": 1}, {"type": "ERROR", "object": 1}]
)
def test_an_event_that_is_none_ends_the_watch_and_a_list_follows(event, server, store, reflector):
    server.watches = [[event]]
    reflector.list()
    with pytest.raises(ClusterError) as error:
        reflector.watch()
    assert error.value.status == 410


def test_a_kind_that_others_install_holds_up_nothing_while_it_is_missing(server, monkeypatch):
    store = Store("InferencePool", lambda _: None)
    reflector = Reflector(server, "InferencePool", "", store)
    listed = server.request

    def missing(*_, **__):
        raise ClusterError("none", status=404)

    monkeypatch.setattr(server, "request", missing)
    with pytest.raises(ClusterError):
        reflector.list()
    assert reflector.listed.is_set()
    assert store.refused("chat") == store.refused() == 404
    monkeypatch.setattr(server, "request", listed)
    reflector.list()
    assert store.refused("chat") is None


def test_a_kind_that_is_missing_is_asked_for_again_only_while_a_group_wants_it(server, monkeypatch):
    told: queue.Queue[Key] = queue.Queue()
    store = Store("InferencePool", told.put)
    server.watches = [[ClusterError("away")]] * 100
    reflector = Reflector(server, "InferencePool", "", store)
    listed, asked, again = server.request, threading.Event(), threading.Event()

    def missing(*_, **__):
        (again if asked.is_set() else asked).set()
        raise ClusterError("none", status=404)

    monkeypatch.setattr(server, "request", missing)
    monkeypatch.setattr("promptgroup_operator.kube.reflector.backoff", lambda *_: timedelta())
    reflector.start()
    try:
        assert asked.wait(10)
        assert not again.wait(0.3)
        group = Key("chat", "support")
        store.miss(group, missed=True)
        assert again.wait(10)
        monkeypatch.setattr(server, "request", listed)
        assert told.get(timeout=10) == group  # its pass finds the kind
        store.miss(group, missed=False)
        assert not store.wanted.is_set()
    finally:
        reflector.stop()


def test_any_other_kind_that_is_missing_is_waited_for(server, reflector, store, monkeypatch):
    def missing(*_, **__):
        raise ClusterError("none", status=404)

    monkeypatch.setattr(server, "request", missing)
    with pytest.raises(ClusterError):
        reflector.list()
    assert not reflector.listed.is_set()
    assert store.refused() is None


def test_an_api_server_that_is_away_is_no_missing_kind(server, monkeypatch):
    def away(*_, **__):
        raise ClusterError("away")

    monkeypatch.setattr(server, "request", away)
    reflector = Reflector(server, "InferencePool", "", Store("InferencePool", lambda _: None))
    with pytest.raises(ClusterError):
        reflector.list()
    assert not reflector.listed.is_set()
