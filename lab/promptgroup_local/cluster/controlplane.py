"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes, RBAC on."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import urllib3
import yaml

from promptgroup_local.cluster import process
from promptgroup_local.cluster.certs import Authority, Pair
from promptgroup_local.ports import free_ports

READY_SECONDS = 120.0
"""Longest start: two to three seconds on a free machine."""

SERVICE_RANGE = "10.96.0.0/16"
"""Range of ClusterIPs; nothing routes to them."""

UNTHROTTLED = ("--kube-api-qps=1000", "--kube-api-burst=1000")
"""The default, 20 requests a second, guards an API server that others use."""

COLLECTED_SELDOM = {"GOGC": "400"}
"""Go's garbage collector takes a fifth of an API server's CPU by default; so it takes a quarter of that, for memory."""


class NotReady(Exception):  # noqa: N818
    """A part of the control plane does not start; the message names it and its log."""


class ControlPlane:
    """One control plane, its state in one folder. Its processes end with the thread that started them."""

    def __init__(self, programs: Path, folder: Path, api_flags: Sequence[str] = ()) -> None:
        self._programs = programs
        self._api_flags = api_flags
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = dict(zip(("etcd", "peer", "api", "manager", "scheduler"), free_ports(5), strict=True))
        authority = Authority(folder / "pki")
        self.ca = authority.file
        self._accounts = authority.signing_key("service-accounts")
        self._serving = authority.server(
            "apiserver", ["localhost", "kubernetes", "kubernetes.default.svc"], ["127.0.0.1", "10.96.0.1"]
        )
        self._to_agents = authority.client("apiserver-to-agents", "kube-apiserver")
        self.agent_serving = authority.server("agent-serving", ["localhost"], ["127.0.0.1"])
        """Certificate that agents present to the API server when it requests the output of a pod."""
        self.kubeconfig = self._kubeconfig("admin", authority.client("admin", "admin", "system:masters"))
        self.agent_kubeconfig = self._kubeconfig("agent", authority.client("agent", "promptgroup-local-agent"))
        self._manager = self._kubeconfig(
            "controller-manager", authority.client("controller-manager", "system:kube-controller-manager")
        )
        self._scheduler = self._kubeconfig("scheduler", authority.client("scheduler", "system:kube-scheduler"))
        self._pool = urllib3.PoolManager(
            ca_certs=str(self.ca),
            cert_file=str(folder / "pki/admin.crt"),
            key_file=str(folder / "pki/admin.key"),
            retries=False,
            timeout=5,
        )

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self._ports['api']}"

    @property
    def port(self) -> int:
        """Port of the API server."""
        return self._ports["api"]

    def pid(self, name: str) -> int:
        """The process of a part."""
        return self._running[name].pid

    def start(self) -> None:
        """Start everything and wait until the API server is ready.

        Raises:
            NotReady: a process ended, or is not ready in time.
        """
        (self._folder / "etcd").mkdir(parents=True, exist_ok=True)
        self._start(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{self._ports['etcd']}",
            f"--advertise-client-urls=http://127.0.0.1:{self._ports['etcd']}",
            f"--listen-peer-urls=http://127.0.0.1:{self._ports['peer']}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{self._ports['peer']}",
            f"--initial-cluster=default=http://127.0.0.1:{self._ports['peer']}",
            "--unsafe-no-fsync",  # a trial cluster survives its processes, not a power cut
            "--log-level=warn",
        )
        self.start_apiserver()
        self._start_controllers()

    def _start_controllers(self) -> None:
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self._manager}",
            "--use-service-account-credentials",
            *UNTHROTTLED,  # it gets a token for each of its forty controllers before it starts any
            f"--service-account-private-key-file={self._accounts}",
            f"--root-ca-file={self.ca}",
            "--leader-elect=false",
            f"--secure-port={self._ports['manager']}",
            "--bind-address=127.0.0.1",
            # endpoints refuse loopback addresses, which pods have here
            "--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller,"
            "-node-ipam-controller,-node-route-controller,-persistentvolume-attach-detach-controller",
        )
        self._start(
            "kube-scheduler",
            f"--kubeconfig={self._scheduler}",
            *UNTHROTTLED,
            "--leader-elect=false",
            f"--secure-port={self._ports['scheduler']}",
            "--bind-address=127.0.0.1",
        )

    def start_apiserver(self) -> None:
        """Start the API server, on the port that it had, and wait until it is ready."""
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            f"--secure-port={self._ports['api']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # a loopback address is no endpoint
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
            f"--client-ca-file={self.ca}",
            f"--kubelet-client-certificate={self._to_agents.certificate}",
            f"--kubelet-client-key={self._to_agents.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            f"--service-account-key-file={self._accounts}",
            f"--service-account-signing-key-file={self._accounts}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            *self._api_flags,
        )
        self._wait_ready()

    def stop_apiserver(self) -> None:
        """Stop the API server at once, as an outage would; the rest goes on and waits for it."""
        running = self._running.pop("kube-apiserver", None)
        if running is not None:
            running.kill()  # after SIGTERM it drains its watches for a minute; etcd has all state
            process.stop(running)

    def restart_controllers(self) -> None:
        """Start controllers and scheduler anew: their watches resume late after a long outage, up to a minute."""
        self._stop("kube-scheduler", "kube-controller-manager")
        self._start_controllers()

    def stop(self) -> None:
        """Stop everything, the store last."""
        self.stop_apiserver()
        self._stop("kube-scheduler", "kube-controller-manager", "etcd")
        self._pool.clear()

    def _stop(self, *names: str) -> None:
        for name in names:
            running = self._running.pop(name, None)
            if running is not None:
                process.stop(running)

    def _start(self, name: str, *flags: str) -> None:
        self._running[name] = process.start(
            [str(self._programs / name), *flags], self._log(name), COLLECTED_SELDOM | os.environ
        )

    def _log(self, name: str) -> Path:
        return self._folder / "logs" / f"{name}.log"

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self._ready():
            self.check()
            if time.monotonic() > deadline:
                raise NotReady(
                    f"kube-apiserver is not ready after {READY_SECONDS:.0f} s: see its log in {self._folder}"
                )
            time.sleep(0.1)

    def check(self) -> None:
        """Raise NotReady when a process has ended that should run."""
        for name, running in self._running.items():
            if running.poll() is not None:
                raise NotReady(f"{name} ended with status {running.returncode}: see {self._log(name)}")

    def _ready(self) -> bool:
        try:
            return self._pool.request("GET", f"{self.server}/readyz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _kubeconfig(self, name: str, pair: Pair) -> Path:
        path = self._folder / f"{name}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": self.server, "certificate-authority": str(self.ca)}}],
            "users": [
                {"name": name, "user": {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}}
            ],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": name}}],
            "current-context": "local",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path
