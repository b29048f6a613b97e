import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial

import pytest
import urllib3

from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports
from promptgroup_operator import handlers
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from support.fakelease import FakeLeases
from support.rawobjects import kubeconfig
from support.scriptedkube import Answer, refusal, scripted_kube
from support.watchserver import WatchServer, event

KINDS = {
    "/apis/promptgroup.dev/v1alpha1/promptgroups",
    "/apis/promptgroup.dev/v1alpha1/promptroutes",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/daemonsets",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/pods",
}
"""Kinds that are stored, and therefore listed once more."""
NODES = "/api/v1/nodes"
WATCHED = {*KINDS, NODES}
DISCOVERY = {"/api", "/apis", "/api/v1", "/apis/promptgroup.dev/v1alpha1", "/apis/apps/v1", "/apis/policy/v1"}


@pytest.fixture
def kube(tmp_path, monkeypatch):
    with scripted_kube(tmp_path) as kube:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(kube, tmp_path, "chat")))
        yield kube


@pytest.fixture
def server(kube):
    return WatchServer(kube)


def operator(health, *flags, **environment):
    argv = ["run", "--host=127.0.0.1", f"--health-port={health}", "--metrics-port=0", *flags]
    command = [sys.executable, "-m", "promptgroup_operator", *argv]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, **environment})


def watching(server, count):
    return True if sum("watch" in query for _, query in server.asked) >= count else None


def end(process):
    """What it said."""
    process.kill()
    process.wait()
    said = process.stderr.read().decode().splitlines()
    process.stderr.close()
    return said


@pytest.mark.heavy
def test_kopf_lists_and_watches_each_kind_once_and_asks_for_nothing_but_what_there_is(server):
    (health,) = free_ports(1)
    process = operator(health)
    try:
        wait_for(
            lambda: True if {path for path, query in server.asked if "watch" in query} == WATCHED else None, "watches"
        )
        well = {
            "passes": "passes end",
            "watches": "watches deliver events",
            "leads": True,
            "leader": "this process, without a lease",
        }

        def healthy():
            with contextlib.suppress(urllib3.exceptions.HTTPError):  # its server may start after the watches
                answer = urllib3.request("GET", f"http://127.0.0.1:{health}/healthz", timeout=30)
                return True if answer.json() == well else None
            return None

        wait_for(healthy, f"the health {well}")
        # Kopf's list, and one of metadata after it by which the first lists are known to have arrived
        wait_for(lambda: True if sum(path in KINDS for path, _ in server.asked) >= 3 * len(KINDS) else None, "lists")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        said = end(process)
    asked = Counter(path for path, _ in server.asked)
    assert {path: count for path, count in asked.items() if path in KINDS} == dict.fromkeys(KINDS, 3)
    assert asked[NODES] == 2
    assert asked.keys() - WATCHED <= DISCOVERY
    assert {method for method, *_ in server.kube.requests} == {"GET"}
    assert said == []


@pytest.mark.heavy
def test_an_error_of_a_watch_other_than_410_ends_the_process_with_a_line_that_says_why(server):
    server.watches["pods"] = [event("ERROR", {"kind": "Status", "code": 500, "message": "etcd is corrupt"})]
    process = operator(free_ports(1)[0])
    try:
        assert process.wait(60) == 1
    finally:
        said = end(process)
    assert "Kopf watches no more, so this process ends: Error in the watch-stream: " in said[-1]
    assert "etcd is corrupt" in said[-1]


@pytest.mark.heavy
def test_a_leader_whose_watch_has_an_error_hands_over_before_it_ends(server, tmp_path):
    leases, kube, broken, holders = FakeLeases(), server.kube, threading.Event(), []

    def serve(method, path):
        if "/leases" in path:
            body = json.loads(kube.asking.body) if kube.asking.body else None
            try:
                found = leases.request(method, path, body, limit=1.0)
            except ClusterError as error:
                return refusal(error.status)
            holders.append(found["spec"]["holderIdentity"].partition("_")[0])
            return Answer(body=json.dumps(found).encode())
        first = kube.asking.headers["authorization"] == "Bearer first"
        if broken.is_set() and first and "/pods?" in path and "watch=true" in path:
            return Answer(body=event("ERROR", {"kind": "Status", "code": 500, "message": "x"}), watch=True)
        return server.serve(method, path)

    kube.serve = serve
    processes = []
    try:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            config = str(kubeconfig(kube, tmp_path / name, token=name))
            flags = ("--lease=chat/operator", f"--identity={name}")
            processes.append(operator(free_ports(1)[0], *flags, KUBECONFIG=config))
            wait_for(partial(watching, server, len(KINDS) * len(processes)), "watches")
            wait_for(lambda: True if holders and holders[-1] == "first" else None, "the first process to lead")
        broken.set()
        kube.watches_end = True
        kube.over.set()
        wait_for(lambda: True if holders[-1] == "second" else None, "the second process to lead")
        assert processes[0].wait(60) == 1
        assert "" in holders, "the Lease was released"
        assert processes[1].poll() is None
    finally:
        said = [end(process) for process in processes]
    assert "Kopf watches no more" in said[0][-1]


def test_a_pass_that_does_not_end_fails_the_probe(kube, monkeypatch):
    registry, operator = handlers.build(Settings())
    (probe,) = [each for each in registry._activities.get_all_handlers() if each.id == "passes"]
    assert probe.fn() == "passes end"
    monkeypatch.setattr(operator, "stuck", lambda now: [handlers.Key("chat", "support")])
    with pytest.raises(handlers.kopf.PermanentError, match="chat/support"):
        probe.fn()
