"""manifests/ as a user installs them: `kubectl apply -k` of an overlay that names the images under test."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from harness.images import REGISTRY, ROOT, Images
from promptgroup_local.kubectl import Kubectl

SYSTEM = "promptgroup-system"
"""Namespace of the operator."""
KEY = "promptgroup-router-peers"
"""Secret with the key that routers of a namespace share."""
ROLLOUT = "--timeout=170s"
"""Longest wait for a Deployment of ours: a router that goes serves its running requests to their end."""

SMALL = {
    "target": {"kind": "Deployment"},
    "patch": yaml.safe_dump(
        [{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests", "value": {"cpu": "50m"}}]
    ),
}
"""Requests that fit on a machine which plays four nodes."""


def registry(source: Path) -> str:
    """What stands before the images' names in the manifests of a source tree, which may be an earlier one."""
    named = yaml.safe_load((source / "manifests/images/kustomization.yaml").read_text())["images"]
    return str(next(item["newName"] for item in named)).rpartition("/")[0]


@contextmanager
def overlay(path: str, images: Images, source: Path = ROOT, **fields: Any) -> Iterator[str]:
    """Folder of a kustomization that has a part of a source tree with the images under test."""
    with tempfile.TemporaryDirectory(prefix="promptgroup-e2e-") as folder:
        resources = [os.path.relpath((source / path).resolve(), Path(folder).resolve())]
        named = registry(source)
        tags = [
            {"name": f"{named}/{name}", "newName": f"{REGISTRY}/{name}", "newTag": tag}
            for name, tag in images.tags.items()
        ]
        kustomization = {"resources": resources, "images": tags, **fields}
        Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        yield folder


@contextmanager
def whole(images: Images, source: Path = ROOT) -> Iterator[str]:
    """The whole, as on a laptop's kind cluster: operator, CRDs, a first team's namespace and its routers."""
    with overlay("manifests/overlays/kind", images, source) as folder:
        yield folder


@contextmanager
def routers(images: Images, namespace: str, source: Path = ROOT) -> Iterator[str]:
    """Routers of one more team."""
    with overlay("manifests/router", images, source, namespace=namespace, patches=[SMALL]) as folder:
        yield folder


def install(kubectl: Kubectl, images: Images, source: Path = ROOT) -> None:
    """Apply the whole, and wait until the operator runs."""
    with whole(images, source) as folder:
        kubectl.run("apply", "--server-side", "-k", folder)
    kubectl.within(SYSTEM).run("rollout", "status", "deployment/promptgroup-operator", ROLLOUT)


def install_routers(kubectl: Kubectl, images: Images, source: Path = ROOT) -> None:
    """Apply routers to a namespace, and wait until they run.

    Their key is there before them, as in a namespace that has had a group before: a kubelet shows them one that comes
    later after a minute, and until then each knows its own sessions only.
    """
    if kubectl.get("secret", KEY) is None:
        kubectl.run("create", "secret", "generic", KEY, f"--from-literal=key={secrets.token_hex(32)}")
    with routers(images, kubectl.namespace, source) as folder:
        kubectl.run("apply", "--server-side", "-k", folder)
    kubectl.run("rollout", "status", "deployment/promptgroup-router", ROLLOUT)


def team(kubectl: Kubectl) -> None:
    """A namespace for a team, with the rules that the manifests give to theirs."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kubectl.namespace, "labels": labels}})


def uninstall(kubectl: Kubectl, images: Images) -> None:
    """Take all away that was installed, groups first: what owns nothing any more leaves nothing behind."""
    if kubectl.get("crd", "promptgroups.promptgroup.dev") is not None:
        kubectl.run("delete", "promptgroups", "--all", "--all-namespaces", "--cascade=foreground")
    with whole(images) as folder:
        kubectl.run("delete", "--ignore-not-found", "-k", folder)
