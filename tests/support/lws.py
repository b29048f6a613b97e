"""The controller of LeaderWorkerSets itself, as a process beside a local cluster; gotools says where it comes from."""

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_local.cluster import process
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports
from support.definitions import Modules, defined, module_folder
from support.gotools import MissingToolError, pinned, program
from support.tlsfiles import TlsFiles

KINDS = ("LeaderWorkerSet", "DisaggregatedSet")
"""The controller does not start without the second."""


@contextmanager
def leader_worker_sets(cluster: LocalCluster, folder: Path) -> Iterator[None]:
    """A cluster with LeaderWorkerSets; the test is skipped where the controller has not been built (`make lws`)."""
    try:
        path = program("lws", build=False)
    except MissingToolError as error:
        pytest.skip(f"NO LEADERWORKERSETS HERE: {error}")
    module = f"sigs.k8s.io/lws@{pinned('lws')}"
    modules: Modules = {module: ("config/crd/bases/*.yaml", KINDS)}
    kube = cluster.kubectl()
    tls = TlsFiles(folder / "lws-tls")
    port, health = free_ports(2)
    config = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(tls.cert.parent)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }
    (folder / "lws.yaml").write_text(yaml.safe_dump(config))
    hooks = [*_webhooks(module_folder(module), tls, port)]
    log = folder / "lws.log"
    with defined(kube, modules):
        running = process.start(
            [path, f"--config={folder / 'lws.yaml'}", "--zap-log-level=2"],
            log,
            {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        )
        try:
            wait_for(lambda: _answers(running, tls, port), "the controller of LeaderWorkerSets", log.read_text)
            kube.apply(*hooks)
            yield
        finally:
            for hook in hooks:
                kube.delete(hook["kind"].lower(), hook["metadata"]["name"])
            process.stop(running)


def _webhooks(module: Path, tls: TlsFiles, port: int) -> Iterator[dict[str, Any]]:
    """The controller's registrations, at its own address, for pods of LeaderWorkerSets alone."""
    for manifest in yaml.safe_load_all((module / "config/webhook/manifests.yaml").read_text()):
        for webhook in manifest["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{port}{path}",
                "caBundle": base64.b64encode(tls.cert.read_bytes()).decode(),
            }
            if "pods" in webhook["rules"][0]["resources"]:
                of_a_set = {"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}
                webhook["objectSelector"] = {"matchExpressions": [of_a_set]}
        manifest["metadata"]["name"] = f"lws-{manifest['metadata']['name']}"
        yield manifest


def _answers(running: "subprocess.Popen[bytes]", tls: TlsFiles, port: int) -> bool | None:
    assert running.poll() is None, f"the controller ended with {running.returncode}"
    try:
        with urllib3.PoolManager(ssl_context=tls.client(), retries=False, timeout=2) as pool:
            return pool.request("GET", f"https://127.0.0.1:{port}/mutate--v1-pod").status != 404 or None
    except urllib3.exceptions.HTTPError:
        return None
