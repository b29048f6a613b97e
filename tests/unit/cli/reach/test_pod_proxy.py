import contextlib
import ssl

import pytest

from promptgroup_cli.reach import pod_proxy
from promptgroup_cli.reach.pod_proxy import AdminPort, ask_pod
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.kube import api_server
from support.hostile import HOSTILE, hostile_server
from support.rawobjects import kubeconfig
from support.scriptedkube import Answer, refusal

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
    monkeypatch.setattr(pod_proxy, "SECONDS", 0.5)
    monkeypatch.setattr(pod_proxy, "ANSWER_BYTES", 1 << 16)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(kube.folder / "tls.pem")
    with hostile_server(HOSTILE[answer], context) as address:
        kube.port = int(address.rpartition(":")[2])
        kubeconfig(kube, tmp_path)
        with contextlib.closing(api_server.connect(Settings())) as api, pytest.raises(ClusterError):
            ask_pod(api, ROUTER, "/metrics")
