import json
import signal
import subprocess
import sys
import threading
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3

from promptgroup_local.ports import free_ports
from promptgroup_operator import handlers
from promptgroup_operator.base.settings import Settings
from support.rawobjects import kubeconfig
from support.scriptedkube import Answer, scripted_kube

LISTS = {
    "/apis/promptgroup.dev/v1alpha1/promptgroups",
    "/apis/promptgroup.dev/v1alpha1/promptroutes",
    "/apis/apps/v1/deployments",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/pods",
    "/apis/inference.networking.k8s.io/v1/inferencepools",
}

ENDS = "kopf._core.reactor.running"
"""Logger of what Kopf says when it ends."""
TELLING_OF_ITS_END = f"""
import logging
from promptgroup_operator.__main__ import main
logging.getLogger("{ENDS}").setLevel("DEBUG")
raise SystemExit(main())
"""
"""The operator, with that."""
NO_TASK_LEFT = "Hung tasks stopping is skipped: no tasks given."
"""What Kopf says when it has waited for no task: it waits for five seconds if one does not end by itself."""


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


@pytest.mark.heavy
def test_each_kind_is_watched_once_and_kopf_asks_for_nothing(kube, tmp_path, monkeypatch):
    health, metrics = free_ports(2)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(kube, tmp_path, "chat")))
    argv = ["run", "--host=127.0.0.1", f"--health-port={health}", f"--metrics-port={metrics}"]
    process = subprocess.Popen([sys.executable, "-c", TELLING_OF_ITS_END, *argv], stderr=subprocess.PIPE)
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
        said = process.stderr.read().decode().splitlines()
        process.stderr.close()
    asked = [urlsplit(path) for _, path, _, _ in kube.requests]
    assert sorted(each.path for each in asked) == sorted([*LISTS, *LISTS]), "one list and one watch of each kind"
    of_its_end = [line for line in said if f"{ENDS} " in line]
    assert [line for line in said if line not in of_its_end or " WARNING " in line or " ERROR " in line] == []
    assert any(line.endswith(NO_TASK_LEFT) for line in of_its_end), said


def test_a_pass_that_does_not_end_fails_the_probe(kube, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(kube, tmp_path, "chat")))
    registry, operator = handlers.build(Settings())
    (probe,) = [each for each in registry._activities.get_all_handlers() if each.id == "passes"]
    assert probe.fn() == "passes end"
    monkeypatch.setattr(operator, "stuck", lambda now: [handlers.Key("chat", "support")])
    with pytest.raises(handlers.kopf.PermanentError, match="chat/support"):
        probe.fn()
