"""Every manifest, and every object on a page of the documentation, as the API server sees it.

It is a server-side dry run, in which a warning is a failure.

https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
"""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from promptgroup_contract.table import PromptRef
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, KubectlError
from promptgroup_operator.observe.decode import group_of
from promptgroup_operator.plan import desired
from promptgroup_operator.world.snapshot import Key
from support.operators import SYSTEM

pytestmark = pytest.mark.integration

FOLDER = lab.ROOT / "manifests"
DOCS = lab.ROOT / "docs"
OTHERS = {
    "monitoring.coreos.com", "argoproj.io", "keda.sh", "cert-manager.io", "trust.cert-manager.io",
    "gateway.networking.k8s.io", "inference.networking.k8s.io", "networking.istio.io", "networking.gke.io",
}  # fmt: skip
"""API groups of which there is no CRD here; with those of Flux."""


def foreign(manifest: dict[str, Any]) -> bool:
    group = manifest["apiVersion"].rpartition("/")[0]
    return group in OTHERS or group.endswith(".fluxcd.io")


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if isinstance(each, dict) and {"apiVersion", "kind"} <= set(each)]


def kustomizations() -> Iterator[Path]:
    """Folders that are applied with -k; components are a part of those that name them."""
    for file in sorted(FOLDER.rglob("kustomization.yaml")):
        if yaml.safe_load(file.read_text())["kind"] == "Kustomization":
            yield file.parent


def files() -> Iterator[Path]:
    """Files of whole objects."""
    for file in sorted(FOLDER.rglob("*.yaml")):
        if file.name != "kustomization.yaml" and documents(file.read_text()):
            yield file


def pages() -> Iterator[Path]:
    """Pages of the documentation that show whole objects; files that they include are looked at as files."""
    for page in sorted(DOCS.rglob("*.md")):
        if shown(page):
            yield page


def shown(page: Path) -> list[dict[str, Any]]:
    """Return the whole objects in a page's blocks of YAML. A kustomization is none: it is a file of Kustomize's."""
    blocks = re.findall(r"^( *)```yaml\n(.*?)^\1```", page.read_text(), re.MULTILINE | re.DOTALL)
    found = [each for _, text in blocks if "--8<--" not in text for each in documents(dedent(text))]
    return [each for each in found if not each["apiVersion"].startswith("kustomize.config.k8s.io/")]


def groups() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every PromptGroup that stands anywhere in the manifests."""
    for file in files():
        for each in documents(file.read_text()):
            if each["kind"] == "PromptGroup":
                yield f"{file.relative_to(FOLDER)}:{each['metadata']['name']}", each


SOURCES = {str(each.relative_to(lab.ROOT)): each for each in (*kustomizations(), *files(), *pages())}
GROUPS = dict(groups())


def objects(kube: Kubectl, source: Path) -> list[dict[str, Any]]:
    if source.suffix == ".md":
        return shown(source)
    return documents(kube.run("kustomize", str(source)).stdout if source.is_dir() else source.read_text())


@pytest.fixture
def own_namespaces(cluster: LocalCluster, kube: Kubectl, crds: None) -> Iterator[None]:
    """The namespaces that manifests bring along, for real: a dry run creates none for what comes after it."""
    known = {each["metadata"]["name"] for each in kube.list("namespaces")}
    found = [each for source in SOURCES.values() for each in objects(kube, source)]
    made = {each["metadata"]["name"]: each for each in found if each["kind"] == "Namespace"}
    meant = {each["metadata"].get("namespace", kube.namespace) for each in found} - set(made)
    made |= {name: {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in meant}
    new = [each for name, each in made.items() if name not in known]
    if new:
        kube.apply(*new)
    yield
    for each in new:
        kube.delete("namespace", each["metadata"]["name"], wait=False)


def dry(kube: Kubectl, *command: str, manifests: list[dict[str, Any]]) -> None:
    """Run kubectl without a trace; whatever it or the API server warns of is an error.

    Objects without a namespace are meant for the one that they are applied to.
    """
    flags = ("--dry-run=server", "--warnings-as-errors", "-f", "-")
    for namespace in sorted({each["metadata"].get("namespace", "") for each in manifests}):
        within = [each for each in manifests if each["metadata"].get("namespace", "") == namespace]
        kube.within(namespace or kube.namespace).run(*command, *flags, stdin=yaml.safe_dump_all(within))


def test_the_api_server_takes_every_manifest_without_a_warning(kube: Kubectl, own_namespaces: None) -> None:
    left = set()
    for source in SOURCES.values():
        found = objects(kube, source)
        assert found, source
        known = [each for each in found if not foreign(each)]
        if known:
            dry(kube, "apply", "--server-side", "--force-conflicts", manifests=known)
        left |= {f"{each['kind']} ({each['apiVersion']})" for each in found if foreign(each)}
    if left:
        pytest.skip(f"passed but for what has no CRD here: {', '.join(sorted(left))}")


def test_an_object_that_the_api_server_only_warns_of_would_fail(kube: Kubectl) -> None:
    spec: dict[str, Any] = {"containers": [{"name": "x", "image": "x"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old"}, "spec": spec}
    dry(kube, "apply", "--server-side", manifests=[pod])
    spec["nodeSelector"] = {"beta.kubernetes.io/os": "linux"}
    with pytest.raises(KubectlError, match="warning"):
        dry(kube, "apply", "--server-side", manifests=[pod])


@pytest.fixture
def restricted(kube: Kubectl) -> Kubectl:
    """The test's namespace, where nothing but the strictest Pod Security Standard is admitted."""
    kube.run("label", "namespace", kube.namespace, "pod-security.kubernetes.io/enforce=restricted")
    return kube


def admitted(kube: Kubectl, template: dict[str, Any]) -> None:
    """Create the template's pod, without a trace.

    Raises:
        KubectlError: it is not admitted, or is with a warning.
    """
    account = template["spec"].get("serviceAccountName", "default")
    if kube.get("serviceaccount", account) is None:
        kube.run("create", "serviceaccount", account)
    metadata = {**template.get("metadata", {}), "name": "pod", "namespace": kube.namespace}
    dry(kube, "create", manifests=[{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}])


@pytest.mark.parametrize("name", GROUPS)
def test_the_engines_of_every_group_are_admitted_under_the_restricted_standard(
    restricted: Kubectl, crds: None, name: str
) -> None:
    raw = {**GROUPS[name], "metadata": {**GROUPS[name]["metadata"], "uid": "u", "generation": 1}}
    raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    group = group_of(Key(restricted.namespace, raw["metadata"]["name"]), raw)
    made = desired.deployment(group, "0" * 32, 1, PromptRef("ConfigMap", "x"), records={})
    admitted(restricted, made["spec"]["template"])


def test_every_pod_of_the_manifests_is_admitted_under_the_restricted_standard(restricted: Kubectl, crds: None) -> None:
    checked = set()
    for source in SOURCES.values():
        for each in objects(restricted, source):
            if each["kind"] in ("Deployment", "StatefulSet", "DaemonSet", "Job"):
                admitted(restricted, each["spec"]["template"])
                checked.add(each["metadata"]["name"])
    assert checked >= {"promptgroup-operator", "promptgroup-router"}


def test_a_pod_with_rights_is_not_admitted(restricted: Kubectl) -> None:
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        admitted(restricted, {"spec": {"containers": [{"name": "x", "image": "x"}]}})


def test_the_operators_namespace_is_restricted(kube: Kubectl, crds: None) -> None:
    labels = (kube.get("namespace", SYSTEM) or {})["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
