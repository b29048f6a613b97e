import contextlib
import json
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from kubernetes.config import incluster_config
from prometheus_client import Counter

from promptgroup_operator.base.errors import ClusterError, ImpossibleNameError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.kube import api_server
from promptgroup_operator.kube.api_server import KubeClient, collection_path, object_path
from promptgroup_operator.plan import router_secrets
from promptgroup_operator.world.lookup import KINDS
from support.rawobjects import kubeconfig
from support.scriptedkube import Answer, refusal, scripted_kube
from support.yamlfiles import document


@pytest.fixture
def kube(tmp_path, monkeypatch):
    with scripted_kube(tmp_path) as kube:
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(kube.port))
        yield kube


@pytest.fixture
def server(kube):
    api = api_server.connect(Settings(service_account_dir=kube.folder))
    yield KubeClient(api, Counter("requests", "By verb and code.", ["verb", "code"], registry=None))
    api.rest_client.pool_manager.clear()


def counted(server):
    found = (each for family in server._requests.collect() for each in family.samples)
    return {(each.labels["verb"], each.labels["code"]): each.value for each in found}


def test_a_collection_is_a_namespaces_or_the_clusters():
    assert collection_path("Lease", "a") == "/apis/coordination.k8s.io/v1/namespaces/a/leases"
    assert collection_path("Pod", "") == "/api/v1/pods"


@pytest.mark.parametrize(("namespace", "name"), [("a", "../../b/secrets/c"), ("a", ""), ("a/b", "c"), ("..", "c")])
def test_no_path_is_made_of_a_name_that_no_object_can_have(namespace, name):
    assert object_path("Secret", "a", "b.c") == "/api/v1/namespaces/a/secrets/b.c"
    with pytest.raises(ImpossibleNameError, match="can be named") as refused:
        object_path("Secret", namespace, name)
    assert refused.value.status == 404


def test_the_first_answer_after_a_silence_is_told(kube, server):
    told = []
    server.on_return = lambda: told.append(len(kube.requests))
    kube.answers = [Answer(), Answer(cut=True), Answer(cut=True), refusal(503), refusal(404), Answer()]
    for _ in range(6):
        with contextlib.suppress(ClusterError):
            server.request("GET", "/api/v1/pods")
    assert told == [5], "an answer of an API server that is up"


def test_a_request_carries_its_form_its_query_and_its_body(kube, server):
    kube.answers = [Answer(201, b'{"kind": "Pod"}')]
    answer = server.request("POST", "/api/v1/pods", {"a": 1}, "application/json", {"x": "y z"}, accept="some/form")
    assert answer == {"kind": "Pod"}
    ((method, path, headers, body),) = kube.requests
    assert (method, path, body) == ("POST", "/api/v1/pods?x=y%20z", b'{"a": 1}')
    assert (headers["content-type"], headers["accept"]) == ("application/json", "some/form")


def test_without_a_kubeconfig_and_outside_a_pod_there_is_no_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="no cluster"):
        api_server.connect(Settings(service_account_dir=tmp_path))


def test_a_throttled_request_says_when_to_come_again(kube, server):
    kube.answers = [refusal(429, "too many requests", Retry_After="7")]
    with pytest.raises(ClusterError, match="429 too many requests") as refused:
        server.request("GET", "/x")
    assert (refused.value.status, refused.value.retry_after) == (429, 7.0)
    assert len(kube.requests) == 1


@pytest.mark.parametrize("answer", [Answer(502, b"<html>"), Answer(503, b"[]")], ids=["a page", "a list"])
def test_an_answer_of_a_proxy_is_an_error_too(kube, server, answer):
    kube.answers = [answer]
    with pytest.raises(ClusterError) as refused:
        server.request("GET", "/x")
    assert refused.value.status == answer.status


def test_a_closed_connection_is_an_error_and_nothing_is_tried_twice(kube, server):
    kube.answers = [Answer(cut=True)]
    with pytest.raises(ClusterError, match="it closed the connection") as failed:
        server.request("PATCH", "/x", {})
    assert failed.value.status is None
    assert len(kube.requests) == 1


def test_a_server_that_does_not_answer_is_waited_for_as_long_as_was_said(kube, server):
    kube.answers = [Answer(hang=True)]
    with pytest.raises(ClusterError, match="it did not answer in time"):
        server.request("GET", "/x", limit=0.05)


def test_requests_are_counted_by_verb_and_status(kube, server):
    kube.answers = [Answer(), Answer(201), refusal(409), Answer(cut=True)]
    server.request("GET", "/x")
    server.request("PATCH", "/x", {})
    for method in ("PATCH", "DELETE"):
        with pytest.raises(ClusterError):
            server.request(method, "/x", {})
    server.count("WATCH", "200")  # one of Kopf's
    assert counted(server) == {
        ("GET", "200"): 1,
        ("PATCH", "201"): 1,
        ("PATCH", "409"): 1,
        ("DELETE", "none"): 1,
        ("WATCH", "200"): 1,
    }


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[1]", b"7", b"[" * 100_000], ids=["HTML", "nothing", "a list", "a number", "deep"]
)
def test_an_answer_that_is_no_json_object_is_an_error(kube, server, body):
    kube.answers = [Answer(200, body)]
    with pytest.raises(ClusterError, match="the answer is not a JSON object"):
        server.request("GET", "/x")


@pytest.mark.parametrize("character", ["<", "\u0001", "\u2028"])
def test_the_largest_object_of_etcd_is_read_however_it_is_written(kube, server, character):
    text = character * (3 * (1 << 19) // len(character.encode()))  # Go writes six bytes for each of these
    found = json.dumps({"text": text}).replace("<", "\\u003c").encode()
    kube.answers = [Answer(200, b'{"metadata":{"resourceVersion":"1"},"items":[' + found + b"]}")]
    assert api_server.list_objects(server, "/x", {})[0] == [{"text": text}]


def test_a_kubeconfig_may_leave_the_server_unverified(kube, tmp_path, monkeypatch):
    file = kubeconfig(kube, tmp_path)
    text = document(file.read_text())
    text["clusters"][0]["cluster"] = {"server": f"https://127.0.0.1:{kube.port}", "insecure-skip-tls-verify": True}
    file.write_text(yaml.safe_dump(text))
    monkeypatch.setenv("KUBECONFIG", str(file))
    api = api_server.connect(Settings(service_account_dir=tmp_path))
    kube.answers = [Answer(200, b'{"a": 1}')]
    with pytest.warns(Warning, match="Unverified"):
        assert KubeClient(api, Counter("r", "R.", ["verb", "code"], registry=None)).request("GET", "/x") == {"a": 1}
    api.rest_client.pool_manager.clear()


def test_a_kubeconfig_that_is_missing_has_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="set KUBECONFIG to another one, or run inside a pod"):
        api_server.connect(Settings(service_account_dir=tmp_path))


def test_every_kind_that_is_read_or_written_has_a_path():
    for kind in (*KINDS, "ConfigMap", "Secret", "Event", "Lease", router_secrets.KIND):
        assert object_path(kind, "chat", "x").endswith("/x")


def test_a_kubeconfig_and_a_context_of_it_can_be_named(kube, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    file = str(kubeconfig(kube, tmp_path, "sales"))
    assert api_server.connect(Settings(), file, "x").configuration.host == f"https://127.0.0.1:{kube.port}"
    with pytest.raises(ClusterError, match="cannot be used"):
        api_server.connect(Settings(), file, "y")


def test_a_replaced_token_is_used_within_a_minute(kube, server, monkeypatch):
    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + timedelta(seconds=61)

    server.request("GET", "/x")
    kube.token("token-2")
    monkeypatch.setattr(incluster_config.datetime, "datetime", Later)
    server.request("GET", "/x")
    assert kube.tokens() == ["bearer token-1", "bearer token-2"]
    (kube.folder / "token").unlink()
    monkeypatch.setattr(Later, "now", classmethod(lambda cls, tz=None: datetime.now(tz) + timedelta(minutes=5)))
    with pytest.raises(ClusterError, match="FileNotFoundError"):
        server.request("GET", "/x")


def test_a_list_is_read_page_by_page(kube, server):
    objects = [{"name": f"g{number}"} for number in range(5)]
    asked = []

    def serve(method, path):
        query = parse_qs(urlsplit(path).query)
        asked.append((query["limit"], query["labelSelector"]))
        begin = int(query.get("continue", ["0"])[0])
        metadata = {"resourceVersion": "7"} | ({"continue": str(begin + 2)} if begin + 2 < len(objects) else {})
        return Answer(body=json.dumps({"metadata": metadata, "items": objects[begin : begin + 2]}).encode())

    kube.serve = serve
    assert api_server.list_objects(server, "/x", {"labelSelector": "a in (b)"}) == (objects, "7")
    assert asked == 3 * [([str(api_server.PAGE)], ["a in (b)"])]


@pytest.mark.parametrize("body", [b"{}", b'{"items": 7}', b'{"items": [], "metadata": {}}'])
def test_an_answer_that_is_no_list_of_objects_is_an_error(kube, server, body):
    kube.answers = [Answer(200, body)]
    with pytest.raises(ClusterError, match="the answer is not a list of objects"):
        api_server.list_objects(server, "/x", {})
