from dataclasses import replace

import pytest

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.plan import plan
from promptgroup_operator.world.effects import PodUpdate
from support.builders import NOW, group, world
from support.writtenkube import KEY, Cluster, Server, create, deliver, pod


def test_what_was_written_is_seen_before_any_watch_tells(cluster, server, stores):
    create(cluster)
    deliver(server, stores, pod("p"))
    cluster.update_pod("chat", PodUpdate("p", "uid", 1, None), None, NOW)
    cluster.write_status(KEY, {"warm": "1/2"})
    assert cluster.observe(KEY).group.status == {"warm": "1/2"}
    (found,) = stores["Pod"].list_at(KEY)
    assert found["metadata"]["labels"]["promptgroup.dev/slot"] == "1"


def test_a_refused_write_has_the_object_read_anew(cluster, server, monkeypatch):
    create(cluster)
    (revision,) = cluster.observe(KEY).revisions
    seen = cluster.unwatched.get(KEY, "ConfigMap", revision.deployment)

    def refuse(*_, **__):
        raise ClusterError("conflict", status=409)

    with monkeypatch.context() as refusing:
        refusing.setattr(server, "request", refuse)
        with pytest.raises(ClusterError):
            cluster.apply(seen, seen)
    server.reads.clear()
    cluster.observe(KEY)
    assert len(server.reads) == 1


def test_nothing_is_written_when_the_term_is_over(server, stores):
    cluster = Cluster(server, Term(until=float("-inf")), stores)
    todo = plan.decide(replace(world(), group=group()), NOW)
    with pytest.raises(ClusterError):
        cluster.apply(todo.route, None)
    assert server.objects == {}


def test_an_object_that_was_not_seen_is_applied_without_force_and_one_that_was_with_its_version(server, stores):
    asked = []

    class Recording(Server):
        def request(self, method, path, body=None, content_type=None, query=None, *, limit=None):
            asked.append((method, query.get("force"), body["metadata"].get("resourceVersion")))
            return super().request(method, path, body, content_type, query, limit=limit)

    cluster = Cluster(Recording(), Term(until=float("inf")), stores)
    manifest = {"kind": "ConfigMap", "metadata": {"namespace": "chat", "name": "a"}}
    cluster.apply(manifest, None)
    cluster.apply(manifest, {"metadata": {"resourceVersion": "7"}})
    assert asked == [("PATCH", None, None), ("PATCH", "true", "7")]


@pytest.mark.parametrize(
    ("changed", "written"),
    [
        ({"status": {"availableReplicas": 1}}, True),
        ({"metadata": {"generation": 2}}, False),
        ({"metadata": {"annotations": {"promptgroup.dev/fingerprint": "x"}}}, False),
        ({"metadata": {"uid": "another"}}, False),
        (None, False),
    ],
    ids=["status", "spec", "annotation", "another object", "gone"],
)
def test_a_deployment_of_which_the_status_alone_has_changed_is_written_at_once(
    cluster, server, monkeypatch, changed, written
):
    create(cluster)
    ((_, deployment),) = [each for each in cluster.observe(KEY).live.items() if each[0][0] == "Deployment"]
    path = f"/apis/apps/v1/namespaces/chat/deployments/{deployment['metadata']['name']}"
    found = server.objects.pop(path)
    if changed is not None:
        server.put(path, {**found, **changed, "metadata": {**found["metadata"], **changed.get("metadata", {})}})
    plain, applied = server.request, []

    def request(method, path, body=None, content_type=None, query=None, **options):
        if method == "PATCH":
            version = server.objects.get(path, found)["metadata"]["resourceVersion"]
            if body["metadata"]["resourceVersion"] != version or path not in server.objects:
                raise ClusterError("the object has been modified", status=409)
            applied.append(path)
        return plain(method, path, body, content_type, query, **options)

    monkeypatch.setattr(server, "request", request)
    manifest = {key: deployment[key] for key in ("kind", "spec")}
    manifest["metadata"] = {key: deployment["metadata"][key] for key in ("namespace", "name")}
    if written:
        cluster.apply(manifest, deployment)
    else:
        with pytest.raises(ClusterError, match="has been modified"):
            cluster.apply(manifest, deployment)
    assert applied == ([path] if written else [])


@pytest.mark.parametrize(
    ("changed", "written"),
    [({"status": {"readyReplicas": 1}}, True), ({"metadata": {"generation": 2}}, False)],
    ids=["status", "spec"],
)
def test_so_is_a_leader_worker_set_which_is_not_watched(cluster, server, monkeypatch, changed, written):
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/chat/leaderworkersets/support-0"
    manifest = {"kind": "LeaderWorkerSet", "metadata": {"namespace": "chat", "name": "support-0"}, "spec": {}}
    server.put(path, manifest | {"status": {}})
    seen = cluster.unwatched.get(KEY, "LeaderWorkerSet", "support-0", 0)
    found = server.objects[path]
    server.put(path, {**found, **changed, "metadata": {**found["metadata"], **changed.get("metadata", {})}})
    plain = server.request

    def request(method, path, body=None, content_type=None, query=None, **options):
        if (
            method == "PATCH"
            and body["metadata"]["resourceVersion"] != server.objects[path]["metadata"]["resourceVersion"]
        ):
            raise ClusterError("the object has been modified", status=409)
        return plain(method, path, body, content_type, query, **options)

    monkeypatch.setattr(server, "request", request)
    if written:
        cluster.apply(manifest, seen)
    else:
        with pytest.raises(ClusterError, match="has been modified"):
            cluster.apply(manifest, seen)
