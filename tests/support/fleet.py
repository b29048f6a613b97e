"""Many groups on hollow engines, an operator as a process with its own rights, and what it asked of the API server."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import urllib3
import yaml

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.cluster.process import start
from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports
from support.adminclient import AdminClient, chunks_of_lines

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
GPUS = 20_000
"""More than all engines of a fleet and the surge of a rollout take."""
BLOCKS = 250_000
"""KV cache of a host: the prompts of its guests and those that they release are less than half of it."""
RETRY_SECONDS = 0.1
"""Between two tries to watch an API server that is away."""
WRITES = ("create", "update", "patch", "delete")
FLEET_NAME = re.compile(r"(?:fleet|guest)-[0-9]+")


@dataclass(slots=True)
class Journey:
    """When a pod was seen in each state, by the clock of one observer, in seconds since 1970."""

    ready: float | None = None
    """Its containers were."""
    warm: float | None = None
    routed: float | None = None


@dataclass(frozen=True, slots=True)
class Calls:
    """Requests of the operator in a time, by verb; what opens a watch is `watch`."""

    verbs: Counter[str]
    written: Counter[str] = field(default_factory=Counter)
    """Group of the fleet → writes of it, its pods and its other objects, as far as their paths name it."""

    @property
    def writes(self) -> int:
        return sum(self.verbs[verb] for verb in WRITES)

    @property
    def reads(self) -> int:
        return self.verbs["get"] + self.verbs["list"]


@dataclass
class Fleet:
    """A cluster whose engines are hollow; its folder holds the API server's record."""

    cluster: LocalCluster
    pods: dict[str, Journey] = field(default_factory=dict)
    guests: dict[tuple[str, str, str], Journey] = field(default_factory=dict)
    """Guest, revision, pod → when the prompt was proven there, to the second, and when the route led there."""

    def __post_init__(self) -> None:
        pki = self.cluster.folder / "pki"
        self._api = AdminClient(self.cluster.plane.server, self.cluster.plane.ca, pki / "admin.crt", pki / "admin.key")
        self._settled: dict[str, bool] = {}
        """Group → whether it is warm, and nothing of it under way."""
        self._watches: set[str] = set()
        """Paths whose watches are open."""
        self._ended = False

    def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        return self._api.request(method, path, body)

    def serves(self, path: str) -> bool | None:
        """Whether a list is answered: the API server refuses while it makes room for a new kind."""
        return True if self._api.http.request("GET", self._api.server + path).status == 200 else None

    # --- groups ----------------------------------------------------------------------------------------------

    def create(self, namespace: str, groups: int, replicas: int, spread: float = 0.0, guests: int = 0) -> None:
        """Create groups at once, each with a prompt of its own.

        Args:
            namespace: of the groups.
            groups: how many.
            replicas: of each.
            spread: engines take up to so many seconds to start, those of a later group longer.
            guests: of each group; a group with guests has no prompt.
        """
        made = [group(f"fleet-{number}", replicas, spread * number / groups, guests) for number in range(groups)]
        made += [guest(f"guest-{number}", f"fleet-{number % groups}") for number in range(groups * guests)]
        path = f"{GROUPS}/namespaces/{namespace}/promptgroups"
        self._at_once(lambda body: self.request("POST", path, body), made)

    def change_pods(self, namespace: str, rate: float) -> None:
        """Change an annotation of each pod, so many a second, as somebody else may."""
        pods = self.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        patch = {"metadata": {"annotations": {"example.com/changed": str(time.monotonic())}}}
        began = time.monotonic()
        for number, pod in enumerate(pods):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            self.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", patch)
        time.sleep(1)  # the last events, and their passes

    def roll(self, namespace: str, groups: int, replicas: int, guests: int = 0) -> None:
        """Change all groups at once: their engines, so that each pod is replaced, or the prompts of their guests."""
        changed = {f"guest-{number}": {"prompt": {"system": prompt(f"another {number}")}} for number in range(guests)}
        if not guests:
            for number in range(groups):
                engine = group(f"fleet-{number}", replicas, 0.0)["spec"]["engine"]
                engine["template"]["spec"]["containers"][0]["env"].append({"name": "ROLLED", "value": "1"})
                changed[f"fleet-{number}"] = {"engine": engine}
        self._settled.update(dict.fromkeys(changed, False))
        path = f"{GROUPS}/namespaces/{namespace}/promptgroups"
        self._at_once(lambda name: self.request("PATCH", f"{path}/{name}", {"spec": changed[name]}), changed)

    def replace_pods(self, namespace: str, most: int) -> set[str]:
        """Delete one pod of each of some groups, as a drain of nodes would; returns the groups."""
        first = {FLEET_NAME.match(name)[0]: name for name, pod in self.pods.items() if pod.routed}  # type: ignore[index]
        groups = list(first)[:: max(1, len(first) // most)][:most]
        path = f"/api/v1/namespaces/{namespace}/pods"
        self._at_once(lambda name: self.request("DELETE", f"{path}/{first[name]}"), groups)
        return set(groups)

    @staticmethod
    def _at_once(send: Callable[[Any], Any], items: Iterable[Any]) -> None:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(send, items))

    def settled(self, groups: int) -> bool:
        """Whether so many groups are observed, all of them warm, and nothing is under way."""
        settled = list(self._settled.values())
        return len(settled) == groups and all(settled)

    # --- journeys --------------------------------------------------------------------------------------------

    def observe(self, namespace: str) -> None:
        """Note from here on when pods become ready, warm and routed, and which groups are settled."""
        for path, note in (
            (f"/api/v1/namespaces/{namespace}/pods", self._pod),
            (f"{GROUPS}/namespaces/{namespace}/promptroutes", self._route),
            (f"{GROUPS}/namespaces/{namespace}/promptgroups", self._group),
        ):
            threading.Thread(target=self._watch, args=(path, note), daemon=True).start()

    def observes(self) -> bool:
        """Whether all watches are open."""
        return len(self._watches) == 3

    def close(self) -> None:
        """Watch no more once a watch ends."""
        self._ended = True

    def _watch(self, path: str, note: Any) -> None:
        version = ""
        while not self._ended:  # the API server ends a watch whose client does not keep up
            try:
                version = self._follow(path, note, version)
            except (urllib3.exceptions.HTTPError, OSError):
                time.sleep(RETRY_SECONDS)
            finally:
                self._watches.discard(path)

    def _follow(self, path: str, note: Any, version: str) -> str:
        """One watch to its end. Returns from where to go on, empty for all that is there."""
        response = self._api.watch(f"{path}?watch=true&timeoutSeconds=3600&resourceVersion={version}")
        self._watches.add(path)
        for lines in chunks_of_lines(response):
            moment = now().timestamp()
            for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":  # the version is too old
                    return ""
                if event["type"] != "DELETED":
                    note(event["object"], moment)
                version = event["object"]["metadata"]["resourceVersion"]
        return version

    def _pod(self, pod: dict[str, Any], now: float) -> None:
        journey = self.pods.setdefault(pod["metadata"]["name"], Journey())
        holds = {each["type"] for each in pod.get("status", {}).get("conditions", []) if each["status"] == "True"}
        if journey.ready is None and "ContainersReady" in holds:
            journey.ready = now
        if journey.warm is None and "promptgroup.dev/prefix-warm" in holds:
            journey.warm = now

    def _route(self, route: dict[str, Any], now: float) -> None:
        spec, name = route["spec"], route["metadata"]["name"]
        for revision in spec.get("guest", {}).get("revisions", []):
            for proof in revision.get("warm", []):
                journey = self.guests.setdefault((name, revision["fingerprint"], proof["pod"]), Journey())
                journey.warm = journey.warm or datetime.fromisoformat(proof["since"]).timestamp()
        for revision in spec.get("revisions", []):
            for slot in revision.get("slots", []):
                if slot["state"] == "Ready":
                    journey = (
                        self.guests.setdefault((name, revision["fingerprint"], slot["pod"]), Journey())
                        if "guest" in spec
                        else self.pods.setdefault(slot["pod"], Journey())
                    )
                    journey.routed = journey.routed or now

    def _group(self, group: dict[str, Any], now: float) -> None:
        self._settled[group["metadata"]["name"]] = _is_settled(group)

    # --- the record ------------------------------------------------------------------------------------------

    def calls(self, since: datetime, until: datetime) -> Calls:
        """The operator's requests in a time; its Lease is not counted."""
        calls = Calls(Counter())
        for line in (self.cluster.folder / "audit.log").read_text().splitlines():
            entry = json.loads(line)
            target = entry.get("objectRef", {})
            if target.get("resource") == "leases":
                continue
            if entry["stage"] != ("ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete"):
                continue
            if since <= datetime.fromisoformat(entry["requestReceivedTimestamp"]) < until:
                calls.verbs[entry["verb"]] += 1
                group = FLEET_NAME.match(target.get("name", ""))
                if group is not None and entry["verb"] in WRITES:
                    calls.written[group[0]] += 1
        return calls


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """A cluster with the operator's definitions and rights, and no operator yet."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "audit.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={folder.resolve() / 'audit.log'}")
    with LocalCluster(folder, gpus=GPUS, hollow=True, api_flags=flags) as cluster:
        kubectl = cluster.kubectl("promptgroup-system")
        kubectl.make_namespace("promptgroup-system")
        kubectl.run("apply", "-k", str(lab.ROOT / "crds"))
        kubectl.run("create", "serviceaccount", "promptgroup-operator")
        kubectl.run("apply", "-f", str(lab.ROOT / "manifests/operator/rbac.yaml"))
        kubectl.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        made = Fleet(cluster)
        for plural in ("promptgroups", "promptroutes"):
            wait_for(lambda plural=plural: made.serves(f"{GROUPS}/{plural}"), f"{plural} to be served")
        try:
            yield made
        finally:
            made.close()


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
    log = cluster.folder / "logs" / "operator.log"
    process = start(argv, log, {**os.environ, "KUBECONFIG": str(path)})
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


def prompt(name: str) -> str:
    """A prompt of about 4,000 characters that differs from all others from the first words on."""
    return f"You are assistant {name}. " + " ".join(
        f"Rule {number} of {name}: answer question {number} briefly and politely." for number in range(60)
    )


def group(name: str, replicas: int, startup: float, guests: int = 0) -> dict[str, Any]:
    """A group with a prompt of its own, or without one for guests."""
    made = lab.group(name, "tiny", prompt(name), replicas=replicas)
    env = [{"name": "STANDIN_STARTUP_SECONDS", "value": f"{startup:.1f}"}]
    made["spec"]["engine"]["template"] = {"spec": {"containers": [{"name": "engine", "env": env}]}}
    if guests:
        del made["spec"]["prompt"]
        made["spec"]["engine"]["args"] = [f"--num-gpu-blocks-override={BLOCKS}"]
    return made


def guest(name: str, host: str) -> dict[str, Any]:
    """A group with a prompt on the engines of a host."""
    spec = {"engineFrom": {"promptGroup": host}, "prompt": {"system": prompt(name)}}
    kind = {"apiVersion": f"{names.API_GROUP}/{names.API_VERSION}", "kind": "PromptGroup"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def _is_settled(group: dict[str, Any]) -> bool:
    status = group.get("status", {})
    warm, _, wanted = status.get("warm", "").partition("/")
    holds = {(each["type"], each["status"]) for each in status.get("conditions", [])}
    return (
        status.get("observedGeneration") == group["metadata"]["generation"]
        and {("Ready", "True"), ("Progressing", "False")} <= holds
        and warm == wanted != ""
    )
