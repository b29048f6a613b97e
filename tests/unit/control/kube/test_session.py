"""Kopf before a scripted API server, through the connection that the operator gives it."""

import json

import pytest

from promptgroup_operator.base.errors import StoredSpecError
from promptgroup_operator.kube import session
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.world.snapshot import Key
from support.kopfrun import until, watching
from support.rawobjects import kubeconfig
from support.scriptedkube import Answer, refusal, scripted_kube
from support.watchserver import GONE, LABELLED, WatchServer, event, found

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # sockets that Kopf leaves to the loop


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "PAUSES", (0.02,) * 20)
    monkeypatch.setattr(session, "WATCH_SECONDS_APART", 0.05)
    with scripted_kube(tmp_path) as kube:
        kube.watches_end = True
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(kube, tmp_path, "chat")))
        yield WatchServer(kube)


def names(operator, kind="Pod"):
    return sorted(name for _, name in operator.stores[kind].versions())


@pytest.mark.heavy
def test_kinds_are_listed_and_watched_with_the_servers_selectors_and_passes_wait_for_the_lists(server):
    server.objects["pods"] = [found("Pod", "a", 3)]
    server.watches["pods"] = [event("ADDED", found("Pod", "b", 51)) + event("DELETED", found("Pod", "a", 52))]
    server.kube.watches_end = False
    with watching() as operator:
        assert operator.resync.wait_until_filled()
        until(lambda: names(operator) == ["b"])
        until(lambda: all(server.watched(plural) for plural in ("promptgroups", *LABELLED)))
        for plural in LABELLED:
            assert {each["labelSelector"] for each in server.watched(plural)} == {"promptgroup.dev/group"}
        assert {each["resourceVersion"] for each in server.watched("pods")} == {"50"}


@pytest.mark.heavy
def test_only_the_namespaces_that_are_served_are_watched(server):
    with watching(("chat", "sales")):
        until(lambda: len({path for path, query in server.asked if "watch" in query}) == 2 * 6 + 1)
    watched = {path for path, query in server.asked if "watch" in query} - {"/api/v1/nodes"}
    assert {path.split("/namespaces/")[1].split("/")[0] for path in watched} == {"chat", "sales"}


@pytest.mark.heavy
def test_deletions_between_two_lists_are_found(server):
    server.objects["pods"] = [found("Pod", "stays", 3), found("Pod", "goes", 4)]

    def forgotten(path, query):
        if path.endswith("/pods") and "watch" in query and names(operator) == ["goes", "stays"]:
            server.objects["pods"], server.version = [found("Pod", "stays", 3)], 90
            return Answer(body=GONE, watch=True)
        return None

    with watching() as operator:
        server.faults.append(forgotten)
        until(lambda: names(operator) == ["stays"])


@pytest.mark.heavy
@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 500, 503])
def test_a_refusal_of_a_list_or_of_a_watch_ends_nothing(server, status):
    server.objects["pods"] = [found("Pod", "a", 3)]
    refused = refusal(status, **({"Retry_After": "0"} if status == 429 else {}))

    def fault(watch):
        return lambda path, query: refused if path.endswith("/pods") and ("watch" in query) == watch else None

    server.faults = [fault(False), *([] if status == 410 else [fault(True)])]
    with watching() as operator:
        until(lambda: names(operator) == ["a"] and server.watched("pods"))
        assert operator.resync.wait_until_filled()


@pytest.mark.heavy
def test_kopf_waits_for_crds_that_are_applied_after_the_operator(server):
    server.missing = {"promptgroup.dev"}
    server.objects["promptgroups"] = [found("PromptGroup", "support", 3, spec={}, status={})]
    with watching() as operator:
        until(lambda: len([1 for path, _ in server.asked if path == "/apis"]) > 2)
        assert server.watched("pods") == []
        server.missing = set()
        until(lambda: names(operator, "PromptGroup") == ["support"])


@pytest.mark.heavy
def test_watches_that_end_at_once_have_a_pause(server, monkeypatch):
    monkeypatch.setattr(session, "WATCH_SECONDS_APART", 3600.0)
    with watching() as operator:
        assert operator.resync.wait_until_filled()
        until(lambda: all(len(server.watched(plural)) == 1 for plural in LABELLED))


def deep_group(name, depth):
    """A PromptGroup whose template nests, as the API server sends it."""
    spec = {"model": "m", "prompt": {"system": name}, "engine": {"image": "i", "template": "nested"}}
    text = json.dumps(found("PromptGroup", name, 60, spec=spec))
    return text.replace('"nested"', '{"a":' * depth + "1" + "}" * depth)


@pytest.mark.heavy
@pytest.mark.parametrize("depth", [65, 1100, 3000])
@pytest.mark.parametrize("how", ["listed", "watched"])
def test_a_group_that_nests_too_deeply_keeps_no_other_from_being_read(server, depth, how):
    groups = [deep_group("evil", depth), deep_group("plain", 64)]
    events = "".join(f'{{"type":"ADDED","object":{each}}}\n' for each in groups).encode()
    server.watches["promptgroups"] = [events] if how == "watched" else []

    def listed(path, query):
        if path.endswith("/promptgroups") and "watch" not in query and how == "listed":
            return Answer(body=f'{{"metadata":{{"resourceVersion":"61"}},"items":[{",".join(groups)}]}}'.encode())
        return None

    server.faults.append(listed)
    with watching() as operator:
        until(lambda: names(operator, "PromptGroup") == ["evil", "plain"])
        reader = GroupReader(None, operator.stores)
        assert reader._stores["PromptGroup"].get("chat", "plain")["spec"]["prompt"]["system"] == "plain"
        with pytest.raises(StoredSpecError, match=r"spec\.engine\.template: .*more than 64 levels deep"):
            reader.observe(Key("chat", "evil"))


@pytest.mark.heavy
def test_a_role_without_nodes_stops_nothing_and_they_are_seldom_asked_for(server):
    server.objects["pods"] = [found("Pod", "a", 3)]

    def refuse(path, query):
        if path == "/api/v1/nodes":
            server.faults.append(refuse)
            return refusal(403)
        return None

    server.faults.append(refuse)
    with watching() as operator:
        assert operator.resync.wait_until_filled()
        until(lambda: names(operator) == ["a"])
        until(lambda: all(server.watched(plural) for plural in ("promptgroups", *LABELLED)))
        assert sum(path == "/api/v1/nodes" for path, _ in server.asked) == 1


@pytest.mark.heavy
def test_a_notice_of_a_node_queues_the_groups_with_pods_there_and_a_heartbeat_none(server):
    server.objects["pods"] = [found("Pod", "a", 3, spec={"nodeName": "n1"})]
    server.kube.watches_end = False
    metadata = {"name": "n1", "uid": "n1", "resourceVersion": "51"}
    spot = {"taints": [{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]}
    with watching() as operator:
        assert operator.resync.wait_until_filled()
        until(lambda: names(operator) == ["a"])
        queued = []
        operator.queue.add = queued.append
        operator.note_node({"kind": "Node", "metadata": metadata, "spec": {}}, deleted=False)
        assert queued == []
        operator.note_node({"kind": "Node", "metadata": metadata, "spec": spot}, deleted=False)
        assert queued == [Key("chat", "support")]
        operator.note_node({"kind": "Node", "metadata": metadata, "spec": spot}, deleted=False)
        assert queued == [Key("chat", "support")]
