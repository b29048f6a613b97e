"""What is asked without kubectl is what kubectl asks, on a real control plane."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from promptgroup_local import lab
from promptgroup_local.api_client import LAST_APPLIED, UnansweredError, api_client
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, KubectlError, wait_for
from support.controlplane import deployment, web
from support.differences import wait_no_difference
from support.groups import PROMPTS, group

pytestmark = pytest.mark.integration


def test_it_reads_what_kubectl_reads(kube: Kubectl, cluster: LocalCluster, crds: None) -> None:
    kube.apply(deployment("web", 2, web()))
    kube.rolled_out("web")
    client = api_client(cluster.kubeconfig)

    def shown(*arguments: str) -> Any:
        return json.loads(kube.run(*arguments).stdout)

    def items(*arguments: str) -> Any:
        return shown(*arguments)["items"]

    def equal(own: Callable[[], Any], told: Callable[[], Any]) -> bool | None:
        """Return True if both read the same: controllers write events and statuses between the two."""
        return True if own() == told() else None

    for kinds, selector in (
        ("pods", "app=web"),
        ("pod", "app=another"),
        ("deployments,replicasets,services", ""),
        ("events", ""),
        ("crds", ""),
        ("nodes", ""),
        ("clusterroles", ""),
        ("serviceaccounts,configmaps", ""),
        ("promptgroups,pdb,hpa,leases", ""),
    ):
        arguments = ("get", kinds, "-o", "json", *([f"--selector={selector}"] if selector else []))
        wait_for(
            partial(equal, partial(client.list, kinds, selector, kube.namespace), partial(items, *arguments)), kinds
        )
    for kind, name in (
        *(("deployment", "web"), ("deploy", "web"), ("Deployment", "web")),
        *(("namespace", kube.namespace), ("CustomResourceDefinition", "promptgroups.promptgroup.dev")),
    ):
        arguments = ("get", kind, name, "-o", "json")
        wait_for(partial(equal, partial(client.get, kind, name, kube.namespace), partial(shown, *arguments)), name)


def test_what_is_not_there_is_none_and_where_no_namespace_is_named_it_is_the_contexts(
    kube: Kubectl, cluster: LocalCluster, crds: None
) -> None:
    assert kube.get("promptgroup", "nobody") is None
    everywhere = api_client(cluster.kubeconfig)
    assert (everywhere.get("service", "kubernetes", "") or {})["metadata"]["namespace"] == "default"


def settings(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_what_it_creates_is_what_kubectl_applies(kube: Kubectl, crds: None) -> None:
    wanted = (settings("one", text="a < b & c > d"), group("two", PROMPTS["a"], replicas=0))
    assert kube.apply(*wanted).args == []  # without a process
    made = [kube.get(each["kind"], each["metadata"]["name"]) or {} for each in wanted]
    wait_no_difference(kube, "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted}))
    again = kube.apply(*wanted)
    assert [line.rpartition(" ")[2] for line in again.stdout.splitlines()] == ["unchanged", "unchanged"]
    for each, before in zip(wanted, made, strict=True):
        kind, name = each["kind"], each["metadata"]["name"]
        kube.delete(kind, name)
        kube.run("apply", "-f", "-", stdin=json.dumps(each))
        of_kubectl = kube.get(kind, name) or {}
        assert json.loads(of_kubectl["metadata"]["annotations"][LAST_APPLIED]) == json.loads(
            before["metadata"]["annotations"][LAST_APPLIED]
        )
        assert (of_kubectl.get("spec"), of_kubectl.get("data")) == (before.get("spec"), before.get("data"))


def test_what_follows_an_object_that_is_there_is_not_created_before_it(kube: Kubectl) -> None:
    kube.apply(settings("one", text="old"))
    done = kube.apply(settings("zero"), settings("one", text="new"), settings("two"))
    assert done.stdout.splitlines() == ["configmap/one configured", "configmap/two created"]
    assert (kube.get("configmap", "one") or {})["data"] == {"text": "new"}
    assert {each["metadata"]["name"] for each in kube.list("configmaps")} >= {"zero", "one", "two"}


def test_what_is_refused_is_refused_in_kubectls_words(kube: Kubectl, crds: None) -> None:
    wrong = group("wrong", PROMPTS["a"], replicas=-1)
    with pytest.raises(KubectlError, match=r"spec\.replicas"):
        kube.apply(wrong)
    with pytest.raises(KubectlError, match='unknown field "sparse"'):
        kube.apply(settings("one") | {"sparse": 1})
    with pytest.raises(KubectlError, match="not found"):
        kube.scale("promptgroup", "nobody", 2)
    with pytest.raises(KubectlError, match="not found"):
        kube.patch("promptgroup", "nobody", {})
    with pytest.raises(KubectlError, match="not found"):
        kube.delete("promptgroup", "nobody")


def test_it_scales_patches_and_deletes(kube: Kubectl, crds: None) -> None:
    kube.apply(deployment("web", 1, web()))
    kube.rolled_out("web")
    kube.scale("deployment", "web", 2)
    kube.rolled_out("web")
    assert kube.run("rollout", "status", "deployment/web", "--timeout=60s").returncode == 0
    found = kube.get("deployment", "web") or {}
    assert found["status"]["availableReplicas"] == found["spec"]["replicas"] == 2
    kube.patch("deployment", "web", {"metadata": {"labels": {"tier": "front"}}})
    assert (kube.get("deployment", "web") or {})["metadata"]["labels"]["tier"] == "front"
    kube.delete("deployment", "web")
    assert kube.get("deployment", "web") is None


def test_a_folder_is_applied_as_kubectl_applies_it(kube: Kubectl, crds: None) -> None:
    folder = lab.ROOT / "manifests/router"
    kube.apply_folder(folder)
    wait_no_difference(kube, "--server-side", "-k", str(folder))


def test_kubectl_says_why_something_was_not_read(kube: Kubectl, cluster: LocalCluster) -> None:
    with pytest.raises(UnansweredError):
        api_client(cluster.kubeconfig).list("unknowns", "", kube.namespace)
    with pytest.raises(KubectlError, match="unknowns"):
        kube.list("unknowns")
    with pytest.raises(KubectlError, match="unknowns"):
        kube.get("unknowns", "any")


def test_a_kind_that_comes_later_is_found_and_one_that_goes_is_missed(kube: Kubectl) -> None:
    names = {"plural": "visitors", "singular": "visitor", "kind": "Visitor", "listKind": "VisitorList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    kind = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "visitors.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    kube.apply(kind)
    kube.run("wait", "crd/visitors.example.com", "--for=condition=Established", "--timeout=60s")
    # the API server may refuse for a moment what it calls established
    visitor = {"apiVersion": "example.com/v1", "kind": "Visitor", "metadata": {"name": "one"}}
    wait_for(lambda: True if kube.apply(visitor, check=False).returncode == 0 else None, "a visitor")
    assert [each["metadata"]["name"] for each in kube.list("visitors")] == ["one"]
    kube.delete("crd", "visitors.example.com")

    def missed() -> str | None:
        """Return why visitors are not listed; None while the API server still serves the kind that went."""
        try:
            kube.list("visitors")
        except KubectlError as error:
            return str(error)
        return None

    assert "visitor" in wait_for(missed, "the kind to be missed")


def test_a_server_that_is_away_is_kubectls_error_and_found_again(cluster: LocalCluster) -> None:
    kube = cluster.kubectl("default")
    assert kube.list("nodes")
    cluster.plane.stop_apiserver()
    try:
        with pytest.raises(KubectlError):
            kube.list("nodes")
    finally:
        cluster.plane.start_apiserver()
    assert api_client(cluster.kubeconfig).list("nodes", "", "")
