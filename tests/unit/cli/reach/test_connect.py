"""Commands and a cluster that refuses, is away, or has nothing: one line, with a way out."""

import contextlib
import http.server
import ssl
import threading
from base64 import b64encode

import pytest

from promptgroup_cli.base.errors import InputError, ReachError
from promptgroup_cli.base.flags import ClusterChoice
from promptgroup_cli.reach import connect
from promptgroup_cli.reach.connect import AdminPort, ClusterConnection, ask_pod, router_at, routers_at
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.kube import api_server
from support.hostile import HOSTILE, hostile_server
from support.rawobjects import engine, kubeconfig, promptgroup, router, serving
from support.scriptedkube import Answer, refusal


@pytest.fixture
def cluster(kube):
    with ClusterConnection(ClusterChoice()) as cluster:
        yield cluster


def test_the_namespace_is_the_contexts_unless_one_is_named(cluster):
    assert cluster.namespace == "chat"
    with ClusterConnection(ClusterChoice("sales")) as other:
        assert other.namespace == "sales"


def test_objects_by_kind_label_and_name(kube, cluster):
    serving(kube, promptgroup("a"), promptgroup("b"), promptgroup("c", namespace="sales"), engine("p", of="a"))
    names = lambda *what, **how: [each["metadata"]["name"] for each in cluster.list(*what, **how)]  # noqa: E731
    assert names("PromptGroup", "chat") == ["a", "b"]
    assert names("PromptGroup", "") == ["a", "b", "c"]
    assert names("PromptGroup", "chat", name="b") == ["b"]
    assert names("Pod", "chat", labels="promptgroup.dev/group=a") == ["p"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(cut=True), ("does not answer", "KUBECONFIG")),
        (refusal(401), ("credentials", "log in")),
        (refusal(403, 'User "u" cannot list promptgroups'), ("cannot list promptgroups", "ask for a role")),
        (refusal(404), ("no kind PromptGroup", "kubectl apply -k crds")),
        (refusal(500, "etcd is away"), ("etcd is away",)),
    ],
)
def test_what_fails_is_said_with_a_way_out(kube, cluster, answer, words):
    kube.answers = [answer]
    with pytest.raises(ReachError) as failed:
        cluster.list("PromptGroup", "chat")
    assert all(word in str(failed.value) for word in words)
    assert "\n" not in str(failed.value)


def test_without_a_kubeconfig_there_is_no_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InputError, match="set KUBECONFIG"):
        ClusterConnection(ClusterChoice())


def test_routers_are_asked_through_the_api_server(kube, cluster):
    serving(kube, router("r1", port=9191), router("r2", ready="False"), engine("p"), metrics="some text")
    ((name, ask),) = cluster.routers("chat").items()
    assert (name, ask("/metrics", None)) == ("r1", b"some text")
    assert kube.requests[-1][:2] == ("GET", "/api/v1/namespaces/chat/pods/r1:9191/proxy/metrics")
    serving(kube, router("r1"), explain={"choice": "a"})
    assert ask("/explain", b"{}") == b'{"choice": "a"}'
    method, _, headers, body = kube.requests[-1]
    assert (method, headers["content-type"], body) == ("POST", "application/json", b"{}")


def test_routers_of_all_namespaces_are_told_apart(kube, cluster):
    serving(kube, router("r1"), router("r1", namespace="other"))
    assert sorted(cluster.routers("")) == ["chat/r1", "other/r1"]


def test_no_router(kube, cluster):
    serving(kube, router("r1", ready="False"))
    with pytest.raises(
        ReachError, match=r"no router is ready in namespace chat.*--router URL.*manifests/router -n chat"
    ):
        cluster.routers("chat")


def test_a_router_that_the_api_server_does_not_reach(kube, cluster):
    serving(kube, router("r1"))
    with pytest.raises(
        ReachError, match=r"r1 does not answer.*address not allowed.*kubectl port-forward -n chat r1 9090"
    ):
        cluster.routers("chat")["r1"]("/metrics", None)


def test_a_purge_is_sent_with_the_token_of_the_namespace_or_the_one_that_is_given(kube, cluster, monkeypatch):
    secret = {"metadata": {"name": "promptgroup-router-admin"}, "data": {"token": b64encode(b"word\n").decode()}}
    serving(kube, router("r1"), purge={"purged": 1}, explain={})
    ask = cluster.routers("chat")["r1"]
    monkeypatch.setattr(cluster, "list", lambda kind, _namespace, name: [secret] if kind == "Secret" else [])
    sent = []
    for path, given in (("/responses/purge", ""), ("/explain", ""), ("/responses/purge", "given")):
        cluster.admin_token = given
        ask(path, b"{}")
        sent.append(kube.requests[-1][2].get("x-promptgroup-admin-token"))
    assert sent == ["word", None, "given"]


class Admin(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"text")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def admin():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def test_a_router_by_its_address(admin):
    ask = router_at(admin)
    assert (ask("/metrics", None), ask("/explain", b"{}")) == (b"text", b"{}")
    with pytest.raises(ReachError, match="404 to /table: is it an admin port"):
        ask("/table", None)


def test_an_address_where_nobody_is():
    with pytest.raises(ReachError, match=r"--router http://127.0.0.1:1 does not answer"):
        router_at("http://127.0.0.1:1")("/metrics", None)


def test_passwords_of_addresses_are_shown_to_nobody():
    ((name, ask),) = routers_at(["http://user:word@127.0.0.1:1/"]).items()
    assert name == "http://127.0.0.1:1"
    with pytest.raises(ReachError, match=r"--router http://127.0.0.1:1 does not answer"):
        ask("/metrics", None)


ROUTER = AdminPort("chat", "r1", 9090)


@pytest.fixture
def api(kube):
    api = api_server.connect(Settings())
    yield api
    api.close()


def test_a_pod_is_asked_through_the_api_server(kube, api):
    kube.answers = [Answer(200, b"text"), Answer(200, b"posted"), refusal(503, "address not allowed")]
    assert ask_pod(api, ROUTER, "/metrics") == b"text"
    assert ask_pod(api, ROUTER, "/explain", b"{}") == b"posted"
    with pytest.raises(ClusterError, match="503 address not allowed") as refused:
        ask_pod(api, ROUTER, "/table")
    assert refused.value.status == 503
    assert [each[:2] for each in kube.requests[:2]] == [
        ("GET", "/api/v1/namespaces/chat/pods/r1:9090/proxy/metrics"),
        ("POST", "/api/v1/namespaces/chat/pods/r1:9090/proxy/explain"),
    ]
    assert kube.requests[1][3] == b"{}"
    assert all(headers["sec-promptgroup-client"] for _, _, headers, _ in kube.requests)  # the Host is the API server's
    assert all(headers["authorization"] for _, _, headers, _ in kube.requests)
    assert "x-promptgroup-admin-token" not in kube.requests[1][2]
    kube.answers = [Answer(200, b"purged")]
    assert ask_pod(api, ROUTER, "/responses/purge", b"{}", token="secret") == b"purged"
    assert kube.requests[-1][2]["x-promptgroup-admin-token"] == "secret"


@pytest.mark.heavy
@pytest.mark.parametrize("answer", HOSTILE)
def test_every_exchange_with_a_hostile_pod_ends(kube, tmp_path, monkeypatch, answer):
    monkeypatch.setattr(connect, "SECONDS", 0.5)
    monkeypatch.setattr(connect, "ANSWER_BYTES", 1 << 16)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(kube.folder / "tls.pem")
    with hostile_server(HOSTILE[answer], context) as address:
        kube.port = int(address.rpartition(":")[2])
        kubeconfig(kube, tmp_path)
        with contextlib.closing(api_server.connect(Settings())) as api, pytest.raises(ClusterError):
            ask_pod(api, ROUTER, "/metrics")
