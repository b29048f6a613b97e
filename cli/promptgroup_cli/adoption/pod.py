"""Decides which fields of a Deployment's pods stay in `spec.engine.template`, and why others do not."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from promptgroup_cli.adoption.decision import FieldDecision, Verdict
from promptgroup_cli.adoption.workload import EngineDeployment, mapping, mappings

HOME, ROOT = "/home/engine", "/root"
"""Home of the operator's engines, and of those that run as root."""

_DEFAULTS: Mapping[str, object] = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "securityContext": {},
    "enableServiceLinks": True,
    "serviceAccount": "",
    "progressDeadlineSeconds": 600,
    "revisionHistoryLimit": 10,
    "minReadySeconds": 0,
    "lifecycle": {},
}
"""Defaults that the API server fills in."""
_POD_FIELDS = frozenset(
    {
        *("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName", "schedulerName"),
        *("serviceAccountName", "automountServiceAccountToken", "imagePullSecrets", "securityContext", "dnsPolicy"),
        *("dnsConfig", "hostAliases", "topologySpreadConstraints", "resourceClaims", "preemptionPolicy", "overhead"),
        *("shareProcessNamespace", "priority", "volumes", "initContainers"),
    }
)
_POD_LEFT = {
    "hostNetwork": "replicas that share a node would share its ports",
    "hostIPC": "engines run under the restricted Pod Security Standard: shared memory is a volume at /dev/shm",
    "hostPID": "engines run under the restricted Pod Security Standard",
    "terminationGracePeriodSeconds": "the operator sets it, by rollout.drainTimeout",
    "hostname": "replicas are found by their addresses",
    "subdomain": "replicas are found by their addresses",
    "readinessGates": "the operator's own gate waits for the proof of warmth",
    "enableServiceLinks": "the operator turns it off: engines take a Service's variables for settings",
    "serviceAccount": "an old name of serviceAccountName",
    "nodeName": "the scheduler chooses nodes",
}
_CONTAINER_FIELDS = frozenset({"env", "envFrom", "imagePullPolicy", "securityContext", "volumeMounts", "workingDir"})
_CONTAINER_READ = frozenset({"name", "image", "command", "args", "ports", "resources"})
"""Fields of the container that have a field of their own in the PromptGroup."""
_PROBE = "the operator's own probes ask the engine's /health"
_CONTAINER_LEFT = {
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": "the operator's own hook waits until requests have ended",
    "terminationMessagePolicy": "the operator has the end of the log in the status",
    "stdin": "no terminal is needed",
    "tty": "no terminal is needed",
}
_OF_OWNERS = (
    "kubectl.kubernetes.io/",
    "checksum/",
    "deployment.kubernetes.io/",
    "serving.kserve.io",
    "internal.serving",
)
"""Prefixes of annotations that belong to the creator of the Deployment."""
_KEYS = ("VLLM_API_KEY",)
"""Variables that hold the key of an engine."""


@dataclass(slots=True)
class KeptPodParts:
    """The parts of a PromptGroup that are copied from pods."""

    annotations: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    """Fields of the pods, without their containers."""
    container: dict[str, Any] = field(default_factory=dict)
    """The engine's container in it, without its name."""
    credential: dict[str, str] | None = None
    """`spec.engine.credentialFrom`."""
    decisions: list[FieldDecision] = field(default_factory=list)

    def note(self, name: str, verdict: Verdict, why: str = "") -> None:
        """Add a decision."""
        self.decisions.append(FieldDecision(name, verdict, why))


def parts(workload: EngineDeployment, port: int) -> KeptPodParts:
    """Return the parts of the pods that remain.

    Args:
        workload: the Deployment.
        port: port on which the engine serves.
    """
    made = KeptPodParts()
    _metadata(made, workload)
    for name, value in workload.pod.items():
        if name == "containers" or _is_default(name, value):
            continue
        if name in _POD_FIELDS:
            _keep(made, name, copy.deepcopy(value))
        else:
            made.note(f"pod {name}", Verdict.LEFT_OUT, _POD_LEFT.get(name, "it is not known here: see engine.template"))
    _container(made, workload, port)
    _move_home(made, workload)
    for other in mappings(workload.pod.get("containers")):
        if other is not workload.container:
            why = "routers reach the engine itself; if it is still needed, add it to engine.template"
            made.note(f"container {other.get('name')}", Verdict.LEFT_OUT, why)
    return made


def _metadata(made: KeptPodParts, workload: EngineDeployment) -> None:
    metadata = mapping(workload.template.get("metadata"))
    if metadata.get("labels"):
        why = "the old Service finds pods by them: it would send requests past the routers"
        made.note("pod labels", Verdict.LEFT_OUT, why)
    for name, value in mapping(metadata.get("annotations")).items():
        if any(part in str(name) for part in (*_OF_OWNERS, "promptgroup.dev/")):
            made.note(f"annotation {name}", Verdict.LEFT_OUT, "it is of what made the Deployment")
        else:
            made.annotations[name] = value
            made.note(f"annotation {name}", Verdict.UNCHANGED)


def _keep(made: KeptPodParts, name: str, value: Any) -> None:
    if name == "initContainers":
        sidecars = [item for item in mappings(value) if item.get("restartPolicy") == "Always"]
        for sidecar in sidecars:
            why = "a container beside the engine: routers reach the engine itself"
            made.note(f"init container {sidecar.get('name')}", Verdict.LEFT_OUT, why)
        value = [item for item in mappings(value) if item not in sidecars]
        if not value:
            return
    why = ""
    if name == "volumes" and any("persistentVolumeClaim" in item for item in mappings(value)):
        why = "both Deployments mount the claims meanwhile: pods on several nodes need ReadWriteMany"
    if name == "volumes" and any("hostPath" in item for item in mappings(value)):
        why = (
            "hostPath: the restricted Pod Security Standard refuses it, the namespace needs the annotation "
            "promptgroup.dev/allowed-host-access, and each node the folder"
        )
    if name == "serviceAccountName":
        why = "the namespace needs the annotation promptgroup.dev/allowed-service-accounts"
    if name in ("affinity", "topologySpreadConstraints") and "labelSelector" in str(value):
        why = "its selectors name labels that the new pods have not: write promptgroup.dev/group there"
    made.spec[name] = value
    made.note(f"pod {name}", Verdict.UNCHANGED, why)


def _container(made: KeptPodParts, workload: EngineDeployment, port: int) -> None:
    container = workload.container
    for name, value in container.items():
        if name in _CONTAINER_READ or _is_default(name, value):
            continue
        if name in _CONTAINER_FIELDS:
            made.container[name] = copy.deepcopy(value)
            made.note(f"container {name}", Verdict.UNCHANGED)
        else:
            why = _CONTAINER_LEFT.get(name, "it is not known here: see engine.template")
            made.note(f"container {name}", Verdict.LEFT_OUT, why)
    others = [item for item in mappings(container.get("ports")) if item.get("containerPort") != port]
    if others:
        made.container["ports"] = [{key: value for key, value in other.items() if key != "name"} for other in others]
        made.note("container ports", Verdict.UNCHANGED, "those beside the engine's own, without their names")
    _variables(made)


def _variables(made: KeptPodParts) -> None:
    """Remove the engine's own key from its variables, and report those that hold secrets in plain text."""
    left = []
    for variable in mappings(made.container.get("env")):
        name = str(variable.get("name"))
        reference = mapping(mapping(variable.get("valueFrom")).get("secretKeyRef"))
        if name in _KEYS and reference:
            made.credential = {"name": str(reference.get("name")), "key": str(reference.get("key"))}
            made.note(f"env {name}", Verdict.CHANGED, "engine.credentialFrom: routers send the key")
        elif name in _KEYS:
            made.note(
                f"env {name}", Verdict.LEFT_OUT, "put the key into a Secret, and name it in engine.credentialFrom"
            )
        else:
            left.append(variable)
            if "value" in variable and any(word in name.upper() for word in ("TOKEN", "SECRET", "PASSWORD")):
                made.note(f"env {name}", Verdict.UNCHANGED, "it is in plain text: read it from a Secret")
    if "env" in made.container:
        made.container["env"] = left
        if not left:
            del made.container["env"]


def _move_home(made: KeptPodParts, workload: EngineDeployment) -> None:
    """Move mounts below root's home: engines of the operator run as another user, unless the pod names its own."""
    contexts = (mapping(workload.pod.get("securityContext")), mapping(workload.container.get("securityContext")))
    if any(context.get("runAsUser") == 0 for context in contexts):
        made.note(
            "securityContext", Verdict.UNCHANGED, "runAsUser 0: the restricted Pod Security Standard refuses root"
        )
        return
    if any("runAsUser" in context for context in contexts):
        return
    for mount in mappings(made.container.get("volumeMounts")):
        path = str(mount.get("mountPath", ""))
        if path == ROOT or path.startswith(f"{ROOT}/"):
            moved = HOME + path.removeprefix(ROOT)
            if isinstance(mount, dict):
                mount["mountPath"] = moved
            made.note(f"mount {path}", Verdict.CHANGED, f"{moved}: engines run as user 10001, whose home that is")


def _is_default(name: str, value: object) -> bool:
    empty = value in (None, {}, [], "")
    return empty or (name in _DEFAULTS and _DEFAULTS[name] == value)


def of_deployment(workload: EngineDeployment) -> Iterator[FieldDecision]:
    """Yield the decisions about fields of the Deployment itself."""
    why = {
        "minReadySeconds": "a replica takes requests once it is proven warm",
        "progressDeadlineSeconds": "conditions say what a replica waits for",
        "revisionHistoryLimit": "rollout.historyLimit counts prompts, not Deployments",
        "paused": "rollout.paused pauses releases of prompts",
    }
    for name, value in workload.spec.items():
        if name in why and not _is_default(name, value):
            yield FieldDecision(name, Verdict.LEFT_OUT, why[name])
    if is_without_surge(workload):
        yield FieldDecision("strategy", Verdict.CHANGED, "rollout.maxSurge: 0, since it makes no replica more either")
    elif mapping(workload.spec.get("strategy")):
        yield FieldDecision("strategy", Verdict.LEFT_OUT, "rollout says how replicas are replaced")


def is_without_surge(workload: EngineDeployment) -> bool:
    """Return True if the Deployment makes no replica more while it replaces them."""
    strategy = mapping(workload.spec.get("strategy"))
    surge = mapping(strategy.get("rollingUpdate")).get("maxSurge")
    return strategy.get("type") == "Recreate" or surge in (0, "0", "0%")
