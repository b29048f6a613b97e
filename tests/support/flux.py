"""Flux's kustomize-controller as a process, and a server of artifacts in the place of its source-controller.

The controller applies the artifact that the status of a source names, here a GitRepository. A test publishes each
artifact and writes it into that status, as source-controller does after it has read a repository.
"""

import hashlib
import http.server
import io
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.ports import free_ports
from support.definitions import Modules, definitions

NAMESPACE = "flux-system"
DEFINED: Modules = {
    "github.com/fluxcd/kustomize-controller@v1.9.6": ("config/crd/bases/*.yaml", ("Kustomization",)),
    "github.com/fluxcd/source-controller@v1.9.0": (
        "config/crd/bases/source.toolkit.fluxcd.io_[!h]*.yaml",
        ("Bucket", "ExternalArtifact", "GitRepository", "OCIRepository"),
    ),
}
"""The kinds that the controller watches: it does not start without one of them."""
SECONDS = 240.0
"""Longest wait for the controller, which itself waits for warm replicas."""

Tree = Mapping[str, bytes]
"""The content of a repository: path → content of the file."""


def tree(root: Path, *folders: str) -> dict[str, bytes]:
    """Return the files in some folders of a repository."""
    paths = (path for folder in folders for path in sorted((root / folder).rglob("*")))
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}


class Flux:
    """The objects of a running controller, and the artifacts that it gets.

    Attributes:
        kube: the namespace of its Kustomizations and GitRepositories.
    """

    def __init__(self, kube: Kubectl, artifacts: dict[str, bytes], port: int) -> None:
        self.kube = kube
        self._artifacts = artifacts
        self._port = port

    def publish(self, repository: str, content: Tree) -> str:
        """Let a GitRepository have this content; return its revision."""
        artifact = _packed(content)
        digest = hashlib.sha256(artifact).hexdigest()
        path = f"{digest[:12]}.tar.gz"
        self._artifacts[f"/{path}"] = artifact
        revision = f"main@sha1:{digest[:40]}"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {
            "observedGeneration": 1,
            "artifact": {
                "path": path,
                "url": f"http://127.0.0.1:{self._port}/{path}",
                "revision": revision,
                "digest": f"sha256:{digest}",
                "lastUpdateTime": now,
                "size": len(artifact),
            },
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": now}
            ],
        }
        patch = json.dumps({"status": status})
        self.kube.run("patch", "gitrepository", repository, "--subresource=status", "--type=merge", "-p", patch)
        return revision

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a Kustomization, `{}` where it has none yet."""
        status: dict[str, Any] = (self.kube.get("kustomization", name) or {}).get("status", {})
        return status

    def ready(self, name: str) -> tuple[str, str]:
        """Return status and reason of a Kustomization's condition Ready."""
        for condition in self.status(name).get("conditions", []):
            if condition["type"] == "Ready":
                return condition["status"], condition["reason"]
        return "Unknown", ""

    def wait_ready(self, name: str, status: str, reason: str) -> None:
        """Wait until the condition Ready of a Kustomization has this status for this reason."""
        wait_for(
            lambda: True if self.ready(name) == (status, reason) else None,
            f"Kustomization {name}: Ready={status} {reason}",
            lambda: self.status(name),
            SECONDS,
        )

    def wait_applied(self, name: str, revision: str) -> None:
        """Wait until a revision is applied, and everything that it waits for is current."""
        wait_for(
            lambda: True if self.status(name).get("lastAppliedRevision") == revision else None,
            f"Kustomization {name}: {revision}",
            lambda: self.status(name),
            SECONDS,
        )

    def reconcile(self, name: str) -> None:
        """Have the controller compare the cluster with the source now, as `interval` does; wait until it has done so.

        Source: https://fluxcd.io/flux/components/kustomize/kustomizations/#triggering-a-reconcile
        """
        now = datetime.now(UTC).isoformat()
        self.kube.patch("kustomization", name, {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": now}}})

        def holds() -> bool | None:
            handled = self.status(name).get("lastHandledReconcileAt") == now
            return True if handled and self.ready(name)[0] == "True" else None

        wait_for(holds, f"Kustomization {name}: a reconciliation", lambda: self.status(name), SECONDS)


@contextmanager
def controller(cluster: LocalCluster, program: str) -> Iterator[Flux]:
    """Run the controller for all namespaces of a cluster, which keeps its kinds, until the block ends."""
    kube = cluster.kubectl(NAMESPACE)
    kube.make_namespace(NAMESPACE)
    health, metrics = free_ports(2)
    flags = (
        f"--health-addr=127.0.0.1:{health}",
        f"--metrics-addr=127.0.0.1:{metrics}",
        "--requeue-dependency=1s",
        "--log-encoding=console",
    )
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "RUNTIME_NAMESPACE": NAMESPACE}
    kinds = definitions(DEFINED)
    kube.apply(*kinds)
    established = ("--for=condition=Established", "--timeout=60s")
    kube.run("wait", *(f"crd/{kind['metadata']['name']}" for kind in kinds), *established)
    with _serving() as (artifacts, port):
        with (cluster.folder / "logs/kustomize-controller.log").open("wb") as log:
            process = subprocess.Popen([program, *flags], env=environment, stdout=log, stderr=log)
        try:
            yield Flux(kube, artifacts, port)
        finally:
            process.kill()
            process.wait()


@contextmanager
def _serving() -> Iterator[tuple[dict[str, bytes], int]]:
    """Serve artifacts by HTTP: path → content, to which a caller adds; and the port."""
    artifacts: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = artifacts.get(self.path, b"")
            self.send_response(200 if content else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield artifacts, server.server_port
        finally:
            server.shutdown()
            thread.join()


def _packed(content: Tree) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in content.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))
    return packed.getvalue()
