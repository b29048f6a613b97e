"""docs/how-to/install.md: the chart installs what the manifests do, upgrades under load, and leaves groups behind."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients import Plan, clients, service
from harness.cluster import Cluster, shell
from harness.group import group, prompt
from harness.images import REGISTRY, ROOT, Images
from harness.install import SYSTEM, uninstall
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl
from support.gotools import MissingToolError, program

pytestmark = pytest.mark.alone

CHART = ROOT / "charts/promptgroup"
RELEASE, TEAM, NAME = "promptgroup", "e2e-helm", "charted"
SECONDS = "170s"


class Helm:
    """One release."""

    def __init__(self, program: str, kubeconfig: Path, images: Images) -> None:
        self._program = program
        self._base = (f"--kubeconfig={kubeconfig}", f"--namespace={SYSTEM}")
        image = {
            name: {"image": {"tag": images.tags[f"{name}"], "pullPolicy": "Never"}} for name in ("operator", "router")
        }
        small = {"requests": {"cpu": "50m", "memory": "64Mi"}}
        self.values = {
            "imageRegistry": REGISTRY,
            "operator": {**image["operator"], "resources": small},
            "router": {**image["router"], "resources": small, "namespaces": [TEAM], "createNamespaces": True},
        }

    def run(self, *arguments: str) -> str:
        return shell(self._program, *self._base, *arguments)

    def apply(self, command: str, **values: str) -> None:
        """Install or upgrade, and wait until all runs."""
        given = [f"--set-json={key}={json.dumps(value)}" for key, value in (self.values).items()]
        more = [f"--set={key.replace('__', '.')}={value}" for key, value in values.items()]
        self.run(command, RELEASE, str(CHART), *given, *more, "--wait", f"--timeout={SECONDS}")


@pytest.fixture
def helm(cluster: Cluster, images: Images) -> Iterator[Helm]:
    """Helm, and a cluster that has nothing of the project."""
    try:
        path = program("helm")
    except MissingToolError as missing:
        pytest.skip(f"NO HELM HERE: {missing}")
    everywhere = cluster.kubectl()
    uninstall(everywhere, images)
    everywhere.run("delete", "namespace", TEAM, "--ignore-not-found")
    everywhere.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    yield Helm(path, cluster.kubeconfig, images)
    uninstall(everywhere, images)
    everywhere.delete("namespace", TEAM, wait=False)


def test_a_release_is_installed_upgraded_under_load_and_removed(cluster: Cluster, images: Images, helm: Helm) -> None:
    helm.apply("install")
    kubectl = cluster.kubectl(TEAM)
    kubectl.apply(group(NAME, images, prompt("a"), replicas=2))
    kubectl.wait_warm(NAME, "2/2")
    before = generation(kubectl)
    with clients(cluster, images, kubectl, NAME, Plan((service(TEAM),), NAME)) as load, load.watched(24) as seen:
        helm.apply("upgrade", operator__replicas="1", router__replicas="3")
    assert unharmed(seen)
    kubectl.wait_warm(NAME, "2/2")
    assert generation(kubectl) == before
    assert len(kubectl.list("pods", "app.kubernetes.io/name=promptgroup-router")) == 3

    helm.run("uninstall", RELEASE, "--wait", f"--timeout={SECONDS}")
    # groups, and the engines that serve them, are the users': no operator is there that would take them away
    assert kubectl.get("promptgroup", NAME) is not None
    assert len(kubectl.list("pods", f"promptgroup.dev/group={NAME}")) == 2
    assert kubectl.list("deployments", "app.kubernetes.io/name=promptgroup-router") == []
    assert cluster.kubectl(SYSTEM).list("deployments") == []


def generation(kubectl: Kubectl) -> int:
    return int((kubectl.get("promptgroup", NAME) or {})["metadata"]["generation"])
