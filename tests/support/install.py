"""What an install is made of: Kustomize's objects and Helm's, and what of them stands in a cluster."""

import copy
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster import binaries
from promptgroup_local.kubectl import Kubectl
from support.gotools import MissingToolError, program
from support.yamlfiles import documents

MANIFESTS = lab.ROOT / "manifests"
CHART = lab.ROOT / "charts/promptgroup"
SYSTEM, TEAM = "promptgroup-system", "promptgroup"
RELEASE = "promptgroup"

TOLERATIONS = '[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]'
DIGEST = f"sha256:{64 * 'a'}"
VARIANTS = {
    "one namespace": ("operator.namespaced=true",),
    "no prompts in Secrets": ("router.readSecrets=false",),
    "no routers": ("router.enabled=false",),
    "behind gateways": ("picker.enabled=true",),
    "gateways alone": ("picker.enabled=true", "router.enabled=false", 'picker.namespaces=["search"]'),
    "two teams": ('router.namespaces=["chat", "search"]', "router.createNamespaces=false"),
    "a namespace with others in it": ("networkPolicy.defaultDeny=false", 'router.namespaces=["promptgroup-system"]'),
    "no policies": ("networkPolicy.enabled=false", "admissionPolicies.enabled=false"),
    "rights in two namespaces": ('operator.namespaces=["chat", "search"]', "router.enabled=false"),
    "placed": (
        "operator.replicas=3",
        'operator.nodeSelector={"kubernetes.io/arch": "amd64"}',
        f"operator.tolerations={TOLERATIONS}",
        f"router.tolerations={TOLERATIONS}",
        'imagePullSecrets=[{"name": "registry"}]',
        'imageRegistry="registry.example.com"',
        f'operator.image={{"tag": "0.1.1", "digest": "{DIGEST}", "pullPolicy": "IfNotPresent"}}',
        'router.extraArgs=["--drain-timeout=60"]',
        'router.resources={"requests": {"cpu": 2, "memory": "256Mi"}}',
    ),
    "watched": (
        "monitoring.enabled=true",
        'monitoring.namespace="observability"',
        'monitoring.labels={"release": "p"}',
    ),
    "spans": (
        "picker.enabled=true",
        'tracing.endpoint="http://collector.observability:4318"',
        'tracing.variables={"OTEL_TRACES_SAMPLER_ARG": "0.1"}',
    ),
    "spans to another port": (
        "operator.namespaced=true",
        'tracing={"endpoint": "http://tempo.tempo:4318", "namespace": "tempo", "port": 14318}',
    ),
}
"""Values of the chart, as JSON, beside the defaults."""

Object = dict[str, Any]
Identity = tuple[str, str, str]
"""Kind, namespace (empty: the cluster's), name."""

OWN_LABELS = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart")
"""What Helm's conventions add to each object."""
KEPT = "helm.sh/resource-policy"


def tool(name: str) -> str:
    """Path of a program; the test is skipped, aloud, where it cannot be had."""
    try:
        return program(name)
    except MissingToolError as missing:
        pytest.skip(str(missing))


def identity(thing: Object) -> Identity:
    return thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def kustomized(folder: str = ".") -> dict[Identity, Object]:
    """What Kustomize makes of a folder of manifests/."""
    command = [binaries.kubectl(binaries.find()), "kustomize", str(MANIFESTS / folder)]
    return _read(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


class Helm:
    """Helm, without repositories and with a home of its own."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._program = tool("helm")
        self._environment = {
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin",
            **({"KUBECONFIG": str(kubeconfig)} if kubeconfig is not None else {}),
        }

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it."""
        done = subprocess.run(
            [self._program, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert not check or done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}"
        return done

    def template(self, *values: str, namespace: str = SYSTEM) -> dict[Identity, Object]:
        """What an install with these values, as JSON, would create."""
        flags = [f"--set-json={each}" for each in values]
        done = self.run("template", RELEASE, str(CHART), f"--namespace={namespace}", "--include-crds", *flags)
        return _read(done.stdout)


def _read(text: str) -> dict[Identity, Object]:
    every = [each for each in documents(text) if each]
    found = {identity(each): each for each in every}
    assert len(found) == len(every), "an object stands there twice"
    return found


def without_helm(things: Mapping[Identity, Object]) -> dict[Identity, Object]:
    """Objects without what Helm's conventions add."""
    bare = {key: copy.deepcopy(each) for key, each in things.items()}
    for each in bare.values():
        metadata = each["metadata"]
        for name in OWN_LABELS:
            metadata.get("labels", {}).pop(name, None)
        metadata.get("annotations", {}).pop(KEPT, None)
        for field in ("labels", "annotations"):
            if not metadata.get(field, True):
                del metadata[field]
    return bare


def standing(kubectl: Kubectl, things: Iterable[Identity]) -> dict[Identity, Object]:
    """Those of the objects that stand in the cluster."""
    found = {
        kind: kubectl.within(namespace).get(kind[0], kind[2]) for kind in things for namespace in [kind[1] or "default"]
    }
    return {key: each for key, each in found.items() if each is not None}


def versions(kubectl: Kubectl, things: Iterable[Identity]) -> dict[Identity, object]:
    """What must not change where nothing changes: the generation of what has a status, which controllers write."""
    with_status = ("Deployment", "ValidatingAdmissionPolicy")
    return {
        key: each["metadata"]["generation" if key[0] in with_status else "resourceVersion"]
        for key, each in standing(kubectl, things).items()
    }


def replica_sets(kubectl: Kubectl) -> set[str]:
    """Names of all ReplicaSets of the install: a rollout makes another."""
    return {each["metadata"]["name"] for name in (SYSTEM, TEAM) for each in kubectl.within(name).list("replicasets")}
