"""Many groups on hollow engines, an operator as a process with its own rights, and what it asked of the API server."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import urllib3
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports

ACCOUNT = "system:serviceaccount:promptgroup-system:promptgroup-operator"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "Panic"],
    "rules": [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}],
}
"""What the API server keeps a record of: the operator's requests."""

GROUPS = "/apis/promptgroup.dev/v1alpha1"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Journey:
    """When a pod was seen in each state, by the clock of one observer."""

    ready: float | None = None
    """Its containers were."""
    warm: float | None = None
    routed: float | None = None


@dataclass(frozen=True, slots=True)
class Calls:
    """Requests of the operator in a time, by verb; what opens a watch is `watch`."""

    verbs: Counter[str]

    @property
    def writes(self) -> int:
        return sum(self.verbs[verb] for verb in ("create", "update", "patch", "delete"))

    @property
    def reads(self) -> int:
        return self.verbs["get"] + self.verbs["list"]


@dataclass
class Fleet:
    """A cluster whose engines are hollow; its folder holds the API server's record."""

    cluster: LocalCluster
    pods: dict[str, Journey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pki = self.cluster.folder / "pki"
        self._http = urllib3.PoolManager(
            ca_certs=str(self.cluster.plane.ca),
            cert_file=str(pki / "admin.crt"),
            key_file=str(pki / "admin.key"),
            maxsize=16,
            retries=False,
        )

    def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        answer = self._http.request(method, self.cluster.plane.server + path, json=body, headers=headers, timeout=30)
        assert answer.status < 300, (method, path, answer.data[:500])
        return json.loads(answer.data)

    def serves(self, path: str) -> bool | None:
        """Whether a list is answered: the API server refuses while it makes room for a new kind."""
        return True if self._http.request("GET", self.cluster.plane.server + path).status == 200 else None

    # --- groups ----------------------------------------------------------------------------------------------

    def create(self, namespace: str, groups: int, replicas: int, spread: float = 0.0) -> None:
        """Create groups at once, each with a prompt of its own.

        Args:
            namespace: of the groups.
            groups: how many.
            replicas: of each.
            spread: engines take up to so many seconds to start, those of a later group longer.
        """
        with ThreadPoolExecutor(8) as threads:
            made = [group(f"fleet-{number}", replicas, spread * number / groups) for number in range(groups)]
            path = f"{GROUPS}/namespaces/{namespace}/promptgroups"
            list(threads.map(lambda each: self.request("POST", path, each), made))

    def change_pods(self, namespace: str, rate: float) -> None:
        """Change an annotation of each pod, so many a second, as somebody else may."""
        names = [
            pod["metadata"]["name"] for pod in self.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        ]
        patch = {"metadata": {"annotations": {"example.com/changed": str(time.monotonic())}}}
        start = time.monotonic()
        for number, name in enumerate(names):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            self.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", patch)
        time.sleep(1)  # the last events, and their passes

    def settled(self, namespace: str, groups: int) -> bool:
        """Whether all groups are warm and nothing is under way."""
        found = self.request("GET", f"{GROUPS}/namespaces/{namespace}/promptgroups")["items"]
        return len(found) == groups and all(_is_settled(each) for each in found)

    # --- journeys --------------------------------------------------------------------------------------------

    def observe(self, namespace: str) -> None:
        """Note from here on when pods become ready, warm and routed."""
        for path, note in (
            (f"/api/v1/namespaces/{namespace}/pods", self._pod),
            (f"{GROUPS}/namespaces/{namespace}/promptroutes", self._route),
        ):
            threading.Thread(target=self._watch, args=(path, note), daemon=True).start()

    def _watch(self, path: str, note: Any) -> None:
        version = ""
        with suppress(urllib3.exceptions.HTTPError, OSError):  # the cluster ended
            while True:  # the API server ends a watch whose client does not keep up
                version = self._follow(path, note, version)

    def _follow(self, path: str, note: Any, version: str) -> str:
        """One watch to its end. Returns from where to go on."""
        url = f"{self.cluster.plane.server}{path}?watch=true&timeoutSeconds=3600&resourceVersion={version}"
        response = self._http.request("GET", url, preload_content=False, timeout=urllib3.Timeout(connect=5, read=None))
        rest = b""
        for chunk in response.stream(65536):
            now = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                told = json.loads(line)["object"]
                note(told, now)
                version = told["metadata"]["resourceVersion"]
        return version

    def _pod(self, pod: dict[str, Any], now: float) -> None:
        journey = self.pods.setdefault(pod["metadata"]["name"], Journey())
        holds = {each["type"] for each in pod.get("status", {}).get("conditions", []) if each["status"] == "True"}
        if journey.ready is None and "ContainersReady" in holds:
            journey.ready = now
        if journey.warm is None and "promptgroup.dev/prefix-warm" in holds:
            journey.warm = now

    def _route(self, route: dict[str, Any], now: float) -> None:
        for revision in route.get("spec", {}).get("revisions", []):
            for slot in revision.get("slots", []):
                if slot["state"] == "Ready":
                    journey = self.pods.setdefault(slot["pod"], Journey())
                    journey.routed = journey.routed or now

    # --- the record ------------------------------------------------------------------------------------------

    def calls(self, since: datetime, until: datetime) -> Calls:
        """The operator's requests in a time; its Lease is not counted."""
        verbs: Counter[str] = Counter()
        for line in (self.cluster.folder / "audit.log").read_text().splitlines():
            entry = json.loads(line)
            if entry.get("objectRef", {}).get("resource") == "leases":
                continue
            if entry["stage"] == ("ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete"):
                at = datetime.fromisoformat(entry["requestReceivedTimestamp"])
                verbs[entry["verb"]] += since <= at < until
        return Calls(+verbs)


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """A cluster with the operator's definitions and rights, and no operator yet."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "audit.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={folder.resolve() / 'audit.log'}")
    with LocalCluster(folder, gpus=10_000, hollow=True, api_flags=flags) as cluster:
        kubectl = cluster.kubectl("promptgroup-system")
        kubectl.make_namespace("promptgroup-system")
        kubectl.run("apply", "-k", str(lab.ROOT / "crds"))
        kubectl.run("create", "serviceaccount", "promptgroup-operator")
        kubectl.run("apply", "-f", str(lab.ROOT / "manifests/operator/rbac.yaml"))
        kubectl.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        made = Fleet(cluster)
        for plural in ("promptgroups", "promptroutes"):
            wait_for(lambda plural=plural: made.serves(f"{GROUPS}/{plural}"), f"{plural} to be served")
        yield made


@dataclass
class OperatorProcess:
    """An operator, killed at the end."""

    process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def operator(cluster: LocalCluster) -> OperatorProcess:
    """Start the operator with the rights of its service account."""
    token = cluster.kubectl("promptgroup-system").run("create", "token", "promptgroup-operator", "--duration=3h").stdout
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    path = cluster.folder / "operator.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    [port] = free_ports(1)
    flags = ("--host=127.0.0.1", f"--health-port={port}", "--metrics-port=0")
    argv = [sys.executable, "-m", "promptgroup_operator", "run", *flags]
    with (cluster.folder / "logs" / "operator.log").open("ab") as log:
        process = subprocess.Popen(argv, env={**os.environ, "KUBECONFIG": str(path)}, stdout=log, stderr=log)
    wait_for(lambda: _answers(process, port), "the operator to answer")
    return OperatorProcess(process)


def _answers(process: subprocess.Popen[bytes], port: int) -> bool | None:
    assert process.poll() is None, "the operator ended: see its log"
    try:
        urllib3.request("GET", f"http://127.0.0.1:{port}/healthz", retries=False, timeout=2)
    except urllib3.exceptions.HTTPError:
        return None
    return True


def cpu_seconds(folder: Path) -> float:
    """CPU time that a process or a thread took so far, given its folder in /proc (proc_pid_stat(5), fields 14, 15)."""
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def now() -> datetime:
    return datetime.now(UTC)


def group(name: str, replicas: int, startup: float) -> dict[str, Any]:
    """A group whose prompt of about 4,000 characters is its own from the first words on."""
    prompt = f"You are assistant {name}. " + " ".join(
        f"Rule {number} of {name}: answer question {number} briefly and politely." for number in range(60)
    )
    made = lab.group(name, "tiny", prompt, replicas=replicas)
    env = [{"name": "STANDIN_STARTUP_SECONDS", "value": f"{startup:.1f}"}]
    made["spec"]["engine"]["template"] = {"spec": {"containers": [{"name": "engine", "env": env}]}}
    return made


def _is_settled(group: dict[str, Any]) -> bool:
    wanted = {("Ready", "True"), ("Progressing", "False")}
    return wanted <= {(each["type"], each["status"]) for each in group.get("status", {}).get("conditions", [])}
