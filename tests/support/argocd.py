"""Argo CD's repo-server and application controller as processes, a Valkey for them, and a Git repository of a test."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.ports import free_ports
from support.definitions import Modules, definitions
from support.redisserver import BINARY

NAMESPACE = "argocd"
DEFINED: Modules = {
    "github.com/argoproj/argo-cd/v3@v3.2.11": (
        "manifests/crds/*.yaml",
        ("Application", "ApplicationSet", "AppProject"),
    )
}
SECONDS = 240.0
"""Longest wait for the controller, which looks at an Application every few seconds."""
RESYNC = 3
"""Seconds between two comparisons of an Application with its repository; three minutes by default."""


class ArgoCd:
    """The Applications of a running controller, and the repository of a test.

    Attributes:
        kube: the namespace of its Applications.
        repository: URL of the repository.
    """

    def __init__(self, kube: Kubectl, folder: Path) -> None:
        self.kube = kube
        self.repository = f"file://{folder}"
        self._folder = folder
        folder.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")

    def publish(self, content: Mapping[str, bytes]) -> str:
        """Let the branch main have these files and no others: path → content. Return the commit."""
        self._git("rm", "-r", "--quiet", "--ignore-unmatch", ".")
        for path, text in content.items():
            file = self._folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message=groups")
        return self._git("rev-parse", "HEAD").strip()

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of an Application, `{}` where it has none yet."""
        status: dict[str, Any] = (self.kube.get("application", name) or {}).get("status", {})
        return status

    def state(self, name: str) -> tuple[str, str, str]:
        """Return the commit that an Application was compared with, whether it is as there, and its health."""
        status = self.status(name)
        sync = status.get("sync", {})
        return sync.get("revision", ""), sync.get("status", ""), status.get("health", {}).get("status", "")

    def wait_state(self, name: str, *state: str) -> None:
        """Wait until an Application is in this state: commit, Synced or OutOfSync, health."""
        wait_for(
            lambda: True if self.state(name) == state else None,
            f"Application {name}: {state}",
            lambda: self.status(name),
            SECONDS,
        )

    def reconcile(self, name: str) -> None:
        """Have the controller compare an Application with its repository now; wait until it has done so."""
        before = self.status(name)["reconciledAt"]
        self.kube.patch("application", name, {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}})
        wait_for(
            lambda: True if self.status(name)["reconciledAt"] > before else None,
            f"Application {name}: a comparison",
            lambda: self.status(name),
            SECONDS,
        )

    def _git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=self._folder, check=True, capture_output=True, text=True, timeout=60).stdout


@contextmanager
def argo_cd(cluster: LocalCluster, program: str, settings: Mapping[str, str]) -> Iterator[ArgoCd]:
    """Run repo-server and application controller until the block ends.

    Args:
        cluster: the cluster, which keeps their kinds.
        program: path of `argocd`, which has both programs.
        settings: data of the ConfigMap `argocd-cm`.
    """
    folder = cluster.folder / "argocd"
    folder.mkdir()
    kube = cluster.kubectl(NAMESPACE)
    kube.make_namespace(NAMESPACE)
    kinds = definitions(DEFINED)
    kube.run("create", "-f", "-", stdin=yaml.safe_dump_all(kinds))
    established = ("wait", *(f"crd/{kind['metadata']['name']}" for kind in kinds), "--for=condition=Established")
    # a definition without any condition yet is an error of this command, which does not wait for one
    wait_for(lambda: True if kube.run(*established, check=False).returncode == 0 else None, "the kinds of Argo CD")
    kube.apply(*_objects(settings))
    redis, repo, metrics, controller = free_ports(4)
    environment = {
        **os.environ,
        "KUBECONFIG": str(_in_namespace(cluster, folder)),
        "ARGOCD_FAKE_IN_CLUSTER": "true",
        "ARGOCD_GPG_ENABLED": "false",
        "ARGOCD_TLS_DATA_PATH": str(folder / "tls"),
        "ARGOCD_SSH_DATA_PATH": str(folder / "ssh"),
        "ARGOCD_PLUGINSOCKFILEPATH": str(folder / "plugins"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "TMPDIR": str(folder),
    }
    common = (f"--redis=127.0.0.1:{redis}", "--logformat=text", "--loglevel=info")
    local = ("--address=127.0.0.1", "--disable-tls")
    # how long a commit stands for its branch; three minutes by default
    repo_server = (f"--port={repo}", f"--metrics-port={metrics}", "--revision-cache-expiration=1s", *local, *common)
    application_controller = (
        f"--repo-server=127.0.0.1:{repo}",
        "--repo-server-plaintext",
        f"--metrics-port={controller}",
        f"--app-resync={RESYNC}",
        "--app-resync-jitter=0",
        f"--self-heal-backoff-timeout-seconds={RESYNC}",
        "--self-heal-backoff-cap-seconds=5",
        *common,
    )
    with ExitStack() as stack:
        valkey = (str(BINARY), "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
        stack.enter_context(_process(valkey, environment, folder / "valkey.log"))
        for name, flags in (
            ("argocd-repo-server", repo_server),
            ("argocd-application-controller", application_controller),
        ):
            own = environment | {"HOSTNAME": f"{name}-0"}
            stack.enter_context(_process((program, name, *flags), own, folder / f"{name}.log"))
            if name == "argocd-repo-server":
                wait_for(lambda: True if _listens(repo) else None, "the repo-server")
        yield ArgoCd(kube, folder / "repository")


def _in_namespace(cluster: LocalCluster, folder: Path) -> Path:
    """Return a kubeconfig whose namespace is Argo CD's, where its programs look for Applications and settings."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = NAMESPACE
    path = folder / "kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def _objects(settings: Mapping[str, str]) -> list[dict[str, Any]]:
    labels = {"app.kubernetes.io/part-of": "argocd"}
    maps = {
        "argocd-cm": dict(settings),
        "argocd-tls-certs-cm": {},
        "argocd-ssh-known-hosts-cm": {},
        "argocd-gpg-keys-cm": {},
    }
    everything = {"group": "*", "kind": "*"}
    project = {
        "sourceRepos": ["*"],
        "destinations": [{"server": "*", "namespace": "*"}],
        "clusterResourceWhitelist": [everything],
    }
    return [
        *(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data}
            for name, data in maps.items()
        ),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "argocd-secret", "labels": labels},
            "stringData": {"server.secretkey": "for a test"},
        },
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "default"},
            "spec": project,
        },
    ]


@contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
