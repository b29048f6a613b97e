"""The controller of LeaderWorkerSets on the kind cluster: its own manifests, with an image of the built program."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
import yaml

from harness.cluster import Cluster, load, shell
from harness.images import REGISTRY
from harness.install import ROLLOUT
from support.definitions import module_folder
from support.gotools import MissingToolError, pinned, program

NAME = "leader-worker-sets"
SPACE = "lws-system"
DEPLOYMENT = "lws-controller-manager"


def install_leader_worker_sets(cluster: Cluster) -> None:
    """Put the controller on a cluster; the test is skipped where it has not been built (`make lws`)."""
    try:
        binary = program("lws", build=False)
    except MissingToolError as error:
        pytest.skip(f"NO LEADERWORKERSETS HERE: {error}")
    image = f"{REGISTRY}/{NAME}:{pinned('lws')}"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(binary, Path(folder, "manager"))
        Path(folder, "Dockerfile").write_text("FROM scratch\nCOPY manager /manager\nUSER 65532:65532\n")
        shell("docker", "build", "--quiet", "--tag", image, folder)
    load(cluster, [image])
    kubectl = cluster.kubectl()
    rendered = kubectl.run("kustomize", str(module_folder(f"sigs.k8s.io/lws@{pinned('lws')}") / "config/default"))
    manifests = list(yaml.safe_load_all(rendered.stdout))
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            manifest["spec"]["replicas"] = 1
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            container |= {"image": image, "imagePullPolicy": "Never", "resources": {"requests": {"cpu": "50m"}}}
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    kubectl.run("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))
    # it is ready once its certificate is there and the registrations of its webhooks have it
    kubectl.within(SPACE).run("rollout", "status", f"deployment/{DEPLOYMENT}", ROLLOUT)
