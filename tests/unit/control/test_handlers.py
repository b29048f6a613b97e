import json
import signal
import subprocess
import sys
import threading
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3

from promptgroup_operator import handlers
from promptgroup_operator.base.settings import Settings
from support.ports import free_ports
from support.rawobjects import kubeconfig
from support.scriptedkube import Answer, scripted_kube

LISTS = {
    "/apis/promptgroup.dev/v1alpha1/promptgroups",
    "/apis/promptgroup.dev/v1alpha1/promptroutes",
    "/apis/apps/v1/deployments",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/pods",
}


@pytest.fixture
def kube(tmp_path):
    with scripted_kube(tmp_path) as kube:
        kube.watched = set()
        kube.all_watched = threading.Event()

        def serve(method, path):
            split = urlsplit(path)
            if "watch" not in parse_qs(split.query):
                return Answer(body=json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode())
            kube.watched.add(split.path)
            if kube.watched >= LISTS:
                kube.all_watched.set()
            return Answer(body=b"", watch=True)

        kube.serve = serve
        yield kube


def test_each_kind_is_watched_once_and_kopf_asks_for_nothing(kube, tmp_path, monkeypatch):
    health, metrics = free_ports(2)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(kube, tmp_path, "chat")))
    argv = ["run", "--host=127.0.0.1", f"--health-port={health}", f"--metrics-port={metrics}"]
    process = subprocess.Popen([sys.executable, "-m", "promptgroup_operator", *argv], stderr=subprocess.PIPE)
    try:
        assert kube.all_watched.wait(60)
        answer = urllib3.request("GET", f"http://127.0.0.1:{health}/healthz", timeout=10).json()
        assert answer == {
            "passes": "passes end",
            "watches": "watches deliver events",
            "leads": True,
            "leader": "this process, without a lease",
        }
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        said = process.stderr.read().decode()
        process.stderr.close()
    asked = [urlsplit(path) for _, path, _, _ in kube.requests]
    assert sorted(each.path for each in asked) == sorted([*LISTS, *LISTS]), "one list and one watch of each kind"
    assert said == ""


def test_a_pass_that_does_not_end_fails_the_probe(kube, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(kube, tmp_path, "chat")))
    registry, operator = handlers.build(Settings())
    (probe,) = [each for each in registry._activities.get_all_handlers() if each.id == "passes"]
    assert probe.fn() == "passes end"
    monkeypatch.setattr(operator, "stuck", lambda now: [handlers.Key("chat", "support")])
    with pytest.raises(handlers.kopf.PermanentError, match="chat/support"):
        probe.fn()
