"""Reads without kubectl say what kubectl says, on a real control plane."""

import json

import pytest

from promptgroup_local.api_reader import UnreadError, api_reader
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, KubectlError
from support.controlplane import deployment, web

pytestmark = pytest.mark.integration


def test_it_reads_what_kubectl_reads(kube: Kubectl, cluster: LocalCluster, crds: None) -> None:
    kube.apply(deployment("web", 2, web()))
    kube.run("rollout", "status", "deployment/web", "--timeout=30s")
    reader = api_reader(cluster.kubeconfig)
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
        assert reader.list(kinds, selector, kube.namespace) == json.loads(kube.run(*arguments).stdout)["items"], kinds
    for kind, name in (
        *(("deployment", "web"), ("deploy", "web"), ("Deployment", "web")),
        *(("namespace", kube.namespace), ("CustomResourceDefinition", "promptgroups.promptgroup.dev")),
    ):
        assert reader.get(kind, name, kube.namespace) == json.loads(kube.run("get", kind, name, "-o", "json").stdout)


def test_what_is_not_there_is_none_and_where_no_namespace_is_named_it_is_the_contexts(
    kube: Kubectl, cluster: LocalCluster, crds: None
) -> None:
    assert kube.get("promptgroup", "nobody") is None
    everywhere = api_reader(cluster.kubeconfig)
    assert (everywhere.get("service", "kubernetes", "") or {})["metadata"]["namespace"] == "default"


def test_kubectl_says_why_something_was_not_read(kube: Kubectl, cluster: LocalCluster) -> None:
    with pytest.raises(UnreadError):
        api_reader(cluster.kubeconfig).list("unknowns", "", kube.namespace)
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
    kube.apply({"apiVersion": "example.com/v1", "kind": "Visitor", "metadata": {"name": "one"}})
    assert [each["metadata"]["name"] for each in kube.list("visitors")] == ["one"]
    kube.delete("crd", "visitors.example.com")
    with pytest.raises(KubectlError, match="visitor"):
        kube.list("visitors")


def test_a_server_that_is_away_is_kubectls_error_and_found_again(cluster: LocalCluster) -> None:
    kube = cluster.kubectl("default")
    assert kube.list("nodes")
    cluster.plane.stop_apiserver()
    try:
        with pytest.raises(KubectlError):
            kube.list("nodes")
    finally:
        cluster.plane.start_apiserver()
    assert api_reader(cluster.kubeconfig).list("nodes", "", "")
