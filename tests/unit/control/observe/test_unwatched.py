import tracemalloc

import pytest

from promptgroup_operator.kube.api_server import PAGE
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.observe.unwatched import OWN_SECONDS, UnwatchedObjects
from promptgroup_operator.plan import plan
from promptgroup_operator.world.snapshot import Key
from support.builders import TEXT
from support.pages import Pages
from support.writtenkube import KEY, Cluster, deliver, promptgroup


def router(name, *, running=True):
    state = {"running": {}} if running else {"waiting": {}}
    return {
        "metadata": {"namespace": "chat", "name": name},
        "spec": {"containers": [{"name": "router", "ports": [{"name": "admin", "containerPort": 9090}]}]},
        "status": {"podIP": "10.0.0.1", "containerStatuses": [{"containerID": name, "state": state}]},
    }


def test_lists_are_read_in_pages():
    pages = Pages([router("a"), router("b", running=False)], [router("c")])
    reader = UnwatchedObjects(pages)
    assert reader.list_routers("chat") == {"a": "10.0.0.1:9090", "c": "10.0.0.1:9090"}
    assert pages.asked == [(str(PAGE), None), (str(PAGE), "token-1")]


def test_a_list_without_objects_may_have_null_in_their_place():
    assert UnwatchedObjects(Pages(None)).list_routers("chat") == {}


def test_of_routers_pods_no_more_is_kept_than_what_is_read_of_them():
    def pod(number):
        return router(f"r{number}") | {"metadata": {"name": f"r{number}", "annotations": {"a": "b" * 200_000}}}

    class Large(Pages):
        def request(self, method, path, *, query, accept):
            self.pages[0] = [pod(len(self.asked))]
            return super().request(method, path, query=query, accept=accept)

    reader = UnwatchedObjects(Large(*[[]] * 40))
    tracemalloc.start()
    try:
        assert len(reader.list_routers("chat")) == 40
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


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
    values = UnwatchedObjects(One(found)).values(Key("chat", "support"), kind, "p")
    assert values == {"a": "x"}
    assert values.unreadable["system"].startswith(why)


def test_a_users_object_is_read_anew_though_our_own_are_not(server, stores):
    source = {"configMapKeyRef": {"name": "prompts", "key": "support"}}
    deliver(server, stores, promptgroup("support", prompt={"systemFrom": source}))
    path = "/api/v1/namespaces/chat/configmaps/prompts"
    server.put(path, {"metadata": {"namespace": "chat", "name": "prompts"}, "data": {"support": TEXT}})
    clock = [0.0]
    cluster = Cluster(server, Term(until=float("inf")), stores, clock=lambda: clock[0])
    assert cluster.observe(KEY).prompt.prompt.system == TEXT
    cluster.unwatched.get(KEY, "ConfigMap", "prompts")
    assert server.reads.count(path) == 1
    clock[0] = plan.REFERENCED.total_seconds()
    cluster.observe(KEY)
    assert server.reads.count(path) == 2
    clock[0] += OWN_SECONDS - 1
    cluster.unwatched.get(KEY, "ConfigMap", "prompts")
    assert server.reads.count(path) == 2
