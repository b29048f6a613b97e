"""What the API server refuses by the policies of manifests/policies, and who may do what by the roles."""

import json
from typing import Any

import pytest

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import group
from support.operators import SYSTEM

pytestmark = pytest.mark.integration

OPERATOR = f"system:serviceaccount:{SYSTEM}:promptgroup-operator"
SECRET = {"secretKeyRef": {"name": "token", "key": "token"}}
AUTHORITIES = {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}
SEMANTIC = {
    "cache": "Exact",
    "semantic": {
        "threshold": 0.9,
        "embeddings": {"url": "http://embedder/v1/embeddings", "model": "m", "credentialFrom": SECRET["secretKeyRef"]},
    },
}


def with_template(**spec: Any) -> dict[str, Any]:
    made = group("support", replicas=1)
    made["spec"]["engine"]["template"] = {"spec": spec}
    return made


def with_spec(**fields: Any) -> dict[str, Any]:
    made = group("support", replicas=1)
    for name, value in fields.items():
        made["spec"][name] = {**made["spec"].get(name, {}), **value} if name == "engine" else value
    return made


def with_engine(**container: Any) -> dict[str, Any]:
    return with_template(containers=[{"name": "engine", **container}])


def with_metadata(**fields: Any) -> dict[str, Any]:
    made = group("support", replicas=1)
    made["spec"]["engine"]["template"] = {"metadata": fields}
    return made


def ephemeral(**claim: Any) -> dict[str, Any]:
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, **claim}
    return with_template(volumes=[{"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}])


def projected(**source: Any) -> dict[str, Any]:
    return with_template(volumes=[{"name": "p", "projected": {"sources": [source]}}])


@pytest.fixture
def restricted(kube: Kubectl, no_operator: None) -> Kubectl:
    """A namespace that opted in, once the API server knows the policies."""
    kube.run("label", "namespace", kube.namespace, "promptgroup.dev/template-policy=restricted")
    wait_for(lambda: True if dry(kube, with_template(hostNetwork=True)) else None, "the API server to know the policy")
    return kube


def dry(kube: Kubectl, thing: dict[str, Any], *flags: str, verb: str = "create") -> str:
    """What the API server says against an object; empty when it takes it. Nothing is kept."""
    done = kube.run(verb, "--dry-run=server", "-f", "-", *flags, stdin=json.dumps(thing), check=False)
    return "" if done.returncode == 0 else done.stderr


ELSEWHERE = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": {}}
REFUSED = {
    "a service account": (with_template(serviceAccountName="admin"), "allowed-service-accounts"),
    "a service account by its old name": (with_template(serviceAccount="admin"), "allowed-service-accounts"),
    "a token": (with_template(automountServiceAccountToken=True), "a token is mounted"),
    "a projected token": (
        with_template(volumes=[{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
        "a token is mounted",
    ),
    "the host's network": (with_template(hostNetwork=True), "hostNetwork"),
    "the host's processes": (with_template(hostPID=True), "hostPID"),
    "the host's memory": (with_template(hostIPC=True), "hostIPC"),
    "a node": (with_template(nodeName="control-plane"), "nodeName"),
    "a port of the host": (with_engine(ports=[{"containerPort": 8000, "hostPort": 80}]), "hostPort"),
    "a folder of the host": (with_template(volumes=[{"name": "h", "hostPath": {"path": "/"}}]), "volumes are"),
    "a privileged container": (with_engine(securityContext={"privileged": True}), "privileged"),
    "a privileged init container": (
        with_template(initContainers=[{"name": "x", "image": "x", "securityContext": {"privileged": True}}]),
        "privileged",
    ),
    "a capability": (with_engine(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "capabilities"),
    "a priority": (with_template(priorityClassName="system-node-critical"), "allowed-priority-classes"),
    "a Secret in a variable": (with_engine(env=[{"name": "T", "valueFrom": SECRET}]), "allowed-secrets"),
    "a Secret's variables": (with_engine(envFrom=[{"secretRef": {"name": "token"}}]), "allowed-secrets"),
    "a Secret in a volume": (
        with_template(volumes=[{"name": "s", "secret": {"secretName": "token"}}]),
        "allowed-secrets",
    ),
    "a Secret projected": (
        with_template(volumes=[{"name": "s", "projected": {"sources": [{"secret": {"name": "token"}}]}}]),
        "allowed-secrets",
    ),
    "a token of the default account": (with_template(automountServiceAccountToken=None), "a token is mounted"),
    "a whole pod in place of the operator's": (with_template(**{"$patch": "replace"}), "a token is mounted"),
    "an annotation": (with_metadata(annotations={"k8s.v1.cni.cncf.io/networks": "host"}), "allowed-annotations"),
    "another app's label": (with_metadata(labels={"app": "payments"}), "allowed-labels"),
    "a claim": (
        with_template(volumes=[{"name": "c", "persistentVolumeClaim": {"claimName": "payments"}}]),
        "allowed-volume-claims",
    ),
    "a claim for KV": (
        with_spec(cache={"offload": {"memory": "1Gi", "claimName": "payments"}}),
        "allowed-volume-claims",
    ),
    "a clone of a claim": (ephemeral(dataSource={"kind": "PersistentVolumeClaim", "name": "payments"}), "begins empty"),
    "a clone by reference": (ephemeral(dataSourceRef={"kind": "VolumeSnapshot", "name": "payments"}), "begins empty"),
    "a volume by name": (ephemeral(volumeName="pv-payments"), "begins empty"),
    "a volume by labels": (ephemeral(selector={"matchLabels": {"app": "payments"}}), "begins empty"),
    "a volume that an importer fills": (
        with_template(
            volumes=[
                {
                    "name": "e",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "metadata": {"annotations": {"k8s.io/CloneRequest": "payments/data"}},
                            "spec": {
                                "accessModes": ["ReadWriteOnce"],
                                "resources": {"requests": {"storage": "1Gi"}},
                            },
                        }
                    },
                }
            ]
        ),
        "begins empty",
    ),
    "nodes without pods of others": (
        with_template(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ELSEWHERE]}}),
        "pods of this namespace alone",
    ),
    "nodes beside pods of others": (
        with_template(
            affinity={
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaces": ["payments"]}}
                    ]
                }
            }
        ),
        "pods of this namespace alone",
    ),
    "a field of a later Kubernetes": (with_template(ownNode=True), "does not know"),
    "a condition that somebody else sets": (
        with_template(readinessGates=[{"conditionType": "example.com/x"}]),
        "does not know",
    ),
    "a certificate": (projected(podCertificate={"signerName": "x/y", "keyType": "ED25519"}), "projected sources are"),
    "a bundle of authorities": (projected(clusterTrustBundle={"name": "x", "path": "y"}), "projected sources are"),
    "a device": (with_template(resourceClaims=[{"name": "d", "resourceClaimName": "d"}]), "resource claims"),
    "a device of a container": (with_engine(resources={"claims": [{"name": "d"}]}), "resource claims"),
    "any taint": (with_template(tolerations=[{"operator": "Exists"}]), "allowed-tolerations"),
    "a taint": (
        with_template(tolerations=[{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]),
        "allowed-tolerations",
    ),
    "nodes by label": (
        with_template(nodeSelector={"node-role.kubernetes.io/control-plane": ""}),
        "allowed-node-labels",
    ),
    "nodes by affinity": (
        with_template(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
        "nodeAffinity",
    ),
    "a scheduler": (with_template(schedulerName="own"), "schedulerName"),
    "a runtime": (with_template(runtimeClassName="host"), "runtimeClassName"),
    "a part in its eviction": (with_template(evictionResponders=[{"name": "x"}]), "evictionResponders"),
    "a probe's host": (with_engine(livenessProbe={"httpGet": {"port": 80, "host": "169.254.169.254"}}), "no host"),
    "a probe's socket": (with_engine(startupProbe={"tcpSocket": {"port": 80, "host": "10.0.0.1"}}), "no host"),
    "a readiness probe's host": (with_engine(readinessProbe={"httpGet": {"port": 80, "host": "x"}}), "no host"),
    "a hook's host": (with_engine(lifecycle={"preStop": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}), "no host"),
    "a first hook's host": (with_engine(lifecycle={"postStart": {"tcpSocket": {"port": 1, "host": "x"}}}), "no host"),
    "an init container's probe": (
        with_template(
            initContainers=[{"name": "i", "image": "x", "startupProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}]
        ),
        "no host",
    ),
    "a Secret to pull with": (with_template(imagePullSecrets=[{"name": "token"}]), "allowed-secrets"),
    "a Secret as the system prompt": (with_spec(prompt={"systemFrom": SECRET}), "spec.prompt: a Secret"),
    "a Secret as tools": (with_spec(prompt={"system": "x", "toolsFrom": SECRET}), "spec.prompt: a Secret"),
    "a Secret as messages": (with_spec(prompt={"system": "x", "messagesFrom": SECRET}), "spec.prompt: a Secret"),
    "a Secret with API keys": (
        with_spec(access={"type": "APIKey", "apiKey": {"secrets": ["token"]}}),
        "spec.access.apiKey.secrets",
    ),
    "a Secret with the engines' key": (
        with_spec(engine={"credentialFrom": SECRET["secretKeyRef"]}),
        "spec.engine.credentialFrom",
    ),
    "a Secret with a certificate": (
        with_spec(engine={"tls": {"secretName": "token", "caFrom": AUTHORITIES}}),
        "spec.engine.tls",
    ),
    "a Secret with authorities": (with_spec(engine={"tls": {"caFrom": SECRET}}), "spec.engine.tls"),
    "a Secret with a key for embeddings": (
        with_spec(responses=SEMANTIC),
        "spec.responses.semantic.embeddings.credentialFrom",
    ),
}


@pytest.mark.slow
def test_templates_ask_for_no_more_than_the_namespace_allows(restricted: Kubectl) -> None:
    assert dry(restricted, group("support")) == ""
    found = {name: dry(restricted, thing) for name, (thing, _) in REFUSED.items()}
    assert {name: said for name, said in found.items() if REFUSED[name][1] not in said} == {}

    named = group("support")
    named["spec"]["engine"]["template"] = {"metadata": {"labels": {"app.kubernetes.io/name": "promptgroup-router"}}}
    assert "the product's own pods" in dry(restricted, named)

    everything = with_template(
        serviceAccountName="weights",
        automountServiceAccountToken=True,
        priorityClassName="inference",
        imagePullSecrets=[{"name": "registry"}],
        volumes=[{"name": "cache", "persistentVolumeClaim": {"claimName": "weights"}}],
        containers=[
            {
                "name": "engine",
                "env": [{"name": "HF_TOKEN", "valueFrom": SECRET}],
                "livenessProbe": {"httpGet": {"path": "/health", "port": "http"}},
                "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
            }
        ],
        nodeSelector={"nvidia.com/gpu.present": "true"},
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        topologySpreadConstraints=[{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1}],
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
            }
        },
        terminationGracePeriodSeconds=600,
    )
    everything["spec"]["engine"]["template"]["metadata"] = {
        "labels": {"team": "chat"},
        "annotations": {"promptgroup.dev/engine-config": "x: y", "example.com/cost": "1"},
    }
    assert dry(restricted, everything) != ""
    annotations = {
        "service-accounts": "weights",
        "priority-classes": "inference, batch",
        "secrets": "token, registry",
        "volume-claims": "weights",
        "labels": "team, app.kubernetes.io/part-of",
        "annotations": "example.com/cost",
        "tolerations": "nvidia.com/gpu",
        "node-labels": "nvidia.com/gpu.present",
    }
    allowed = [f"promptgroup.dev/allowed-{what}={names}" for what, names in annotations.items()]
    restricted.run("annotate", "namespace", restricted.namespace, *allowed)
    wait_for(lambda: True if dry(restricted, everything) == "" else None, "the namespace's annotations to count")


def test_a_namespace_that_did_not_opt_in_is_left_alone(kube: Kubectl, no_operator: None) -> None:
    assert dry(kube, with_template(hostNetwork=True, serviceAccountName="admin")) == ""


def owned(kind: str, version: str = "v1", **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "promptgroup.dev/v1alpha1", "kind": "PromptGroup", "name": "support", "uid": "u-1"}
    metadata = {"name": "support-1", "ownerReferences": [{**owner, "controller": True}]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def bare(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


def test_the_operators_user_writes_what_groups_own_and_nothing_else(
    kube: Kubectl, cluster: LocalCluster, no_operator: None
) -> None:
    operator = f"--as={OPERATOR}"
    wait_for(
        lambda: True if "PromptGroup owns" in dry(kube, bare("ConfigMap", "x"), operator) else None,
        "the API server to know the policy",
    )
    assert dry(kube, owned("ConfigMap"), operator) == ""
    assert dry(kube, owned("Secret"), operator) == ""
    assert "PromptGroup owns" in dry(kube, bare("Secret", "x"), operator)
    assert dry(kube, bare("Secret", "promptgroup-router-peers"), operator) == ""
    token = owned("Secret", type="kubernetes.io/service-account-token")
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
    assert "no Secret that the cluster fills in" in dry(kube, token, operator)
    assert "own namespaces" in dry(cluster.kubectl("kube-system"), owned("ConfigMap"), operator)

    # what others made stays theirs, even if it is given an owner on the way
    kube.apply(bare("ConfigMap", "theirs"))
    patch = kube.run(
        *("patch", "configmap", "theirs", operator, "--type=merge", "--dry-run=server"),
        "-p",
        json.dumps({"metadata": {"ownerReferences": owned("ConfigMap")["metadata"]["ownerReferences"]}}),
        check=False,
    )
    assert "changes and deletes objects that it made" in patch.stderr
    gone = kube.run("delete", "configmap", "theirs", operator, "--dry-run=server", check=False)
    assert "changes and deletes objects that it made" in gone.stderr

    labels = {"promptgroup.dev/group": "support"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    engines = owned("Deployment", "apps/v1", spec={"selector": {"matchLabels": labels}, "template": pod})
    assert dry(kube, engines, operator) == ""
    labels["app.kubernetes.io/name"] = "promptgroup-router"
    assert "no router and no operator" in dry(kube, engines, operator)


def engines_of(owner: str = "support", name: str = "support-1", **spec: Any) -> dict[str, Any]:
    """A Deployment as the operator's user writes it, with these fields of its pods."""
    labels = {"promptgroup.dev/group": "support"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}], **spec}}
    made = owned("Deployment", "apps/v1", spec={"selector": {"matchLabels": labels}, "template": pod})
    made["metadata"]["name"] = name
    made["metadata"]["ownerReferences"][0]["name"] = owner
    return made


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "x", "image": "x", **fields}]}


HOST, PRIVILEGE, ACCOUNT = "of the host", "no privilege beyond", "no service account"
BEYOND = {
    "the host's network": ({"hostNetwork": True}, HOST),
    "the host's processes": ({"hostPID": True}, HOST),
    "the host's memory": ({"hostIPC": True}, HOST),
    "a node": ({"nodeName": "control-plane"}, HOST),
    "a folder of the host": ({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}, HOST),
    "a port of the host": (container(ports=[{"containerPort": 1, "hostPort": 80}]), HOST),
    "an init container's port": (
        {"initContainers": [{"name": "i", "image": "x", "ports": [{"containerPort": 1, "hostPort": 80}]}]},
        HOST,
    ),
    "a privileged container": (container(securityContext={"privileged": True}), PRIVILEGE),
    "a privileged init container": (
        {"initContainers": [{"name": "i", "image": "x", "securityContext": {"privileged": True}}]},
        PRIVILEGE,
    ),
    "a capability": (container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), PRIVILEGE),
    "every capability": (container(securityContext={"capabilities": {"add": ["ALL"]}}), PRIVILEGE),
    "no seccomp": ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, PRIVILEGE),
    "no seccomp of a container": (container(securityContext={"seccompProfile": {"type": "Unconfined"}}), PRIVILEGE),
    "no AppArmor": ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, PRIVILEGE),
    "a setting of the kernel": ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, PRIVILEGE),
    "an SELinux type": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, PRIVILEGE),
    "an SELinux user of a container": (container(securityContext={"seLinuxOptions": {"user": "root"}}), PRIVILEGE),
    "the kernel's files": ({"hostUsers": False, **container(securityContext={"procMount": "Unmasked"})}, PRIVILEGE),
    "a probe's host": (container(livenessProbe={"httpGet": {"port": 80, "host": "169.254.169.254"}}), HOST),
    "a hook's host": (container(lifecycle={"preStop": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}), HOST),
    "a service account": ({"serviceAccountName": "admin"}, ACCOUNT),
    "a service account by its old name": ({"serviceAccount": "admin"}, ACCOUNT),
    "a priority of the system": ({"priorityClassName": "system-node-critical"}, "no priority of the system"),
}


@pytest.mark.slow
def test_pods_of_the_operators_user_ask_for_no_more_than_the_namespace_allows(kube: Kubectl, no_operator: None) -> None:
    operator = f"--as={OPERATOR}"
    refused = engines_of(hostNetwork=True)
    wait_for(lambda: True if HOST in dry(kube, refused, operator) else None, "the API server to know the policy")
    assert dry(kube, engines_of(), operator) == ""
    plain = engines_of(serviceAccountName="default", securityContext={"seccompProfile": {"type": "RuntimeDefault"}})
    assert dry(kube, plain, operator) == ""
    found = {name: dry(kube, engines_of(**spec), operator) for name, (spec, _) in BEYOND.items()}
    by_server = "disallowed by cluster policy"  # of one that was started without privileged containers
    assert {name: said for name, said in found.items() if BEYOND[name][1] not in said and by_server not in said} == {}
    # an owner in name only: another group's, one whose pods are not its own, two at a time
    assert "those of the PromptGroup" in dry(kube, engines_of(owner="another"), operator)
    assert "those of the PromptGroup" in dry(kube, engines_of(name="other-1"), operator)
    twice = engines_of()
    twice["metadata"]["ownerReferences"][0]["controller"] = False
    assert "PromptGroup owns" in dry(kube, twice, operator)

    annotations = {
        "service-accounts": "weights, admin",
        "priority-classes": "system-node-critical",
        "host-access": "true",
    }
    allowed = [f"promptgroup.dev/allowed-{what}={names}" for what, names in annotations.items()]
    kube.run("annotate", "namespace", kube.namespace, *allowed)
    for spec, _ in BEYOND.values():
        thing = engines_of(**spec)
        wait_for(
            lambda thing=thing: True if "promptgroup-operator" not in dry(kube, thing, operator) else None,
            "the namespace's annotations to count",
        )


def test_the_operators_user_marks_pods_of_groups_and_changes_nothing_else_of_them(
    kube: Kubectl, no_operator: None
) -> None:
    kube.run("create", "role", "reader", "--verb=get", "--resource=pods,pods/status")  # kubectl reads what it patches
    kube.run("create", "rolebinding", "reader", "--role=reader", f"--user={OPERATOR}")
    spec = {"containers": [{"name": "x", "image": "x"}]}
    for name, labels in (("engine", {"promptgroup.dev/group": "support", "app": "x"}), ("other", {"app": "x"})):
        kube.apply(bare("Pod", name) | {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def mark(pod: str, **labels: str | None) -> str:
        patch = json.dumps({"metadata": {"labels": labels}})
        flags = (f"--as={OPERATOR}", "--subresource=status", "--type=merge", "--dry-run=server", f"-p={patch}")
        return kube.run("patch", "pod", pod, *flags, check=False).stderr

    slot = {"promptgroup.dev/slot": "0"}
    wait_for(
        lambda: True if "marks pods of groups" in mark("other", **slot) else None,
        "the policy to be known",
        lambda: mark("other", **slot),
    )
    assert mark("engine", **slot) == ""
    assert "marks pods of groups" in mark("engine", app="y")
    assert "marks pods of groups" in mark("engine", app=None)
    assert "marks pods of groups" in mark("engine", **{"app.kubernetes.io/name": "promptgroup-router"})


ROLES = {
    "view": ({"get", "list", "watch"}, set()),
    "edit": ({"get", "list", "watch", "create", "update", "patch", "delete"}, {"update", "patch"}),
    "admin": ({"get", "list", "watch", "create", "update", "patch", "delete"}, {"update", "patch"}),
}
"""Role of the cluster → verbs on PromptGroups, writes to their scale."""


@pytest.mark.parametrize("role", ROLES)
def test_the_clusters_roles_hold_promptgroups_and_no_promptroutes(kube: Kubectl, no_operator: None, role: str) -> None:
    groups, scale = ROLES[role]
    kube.run("create", "rolebinding", "somebody", f"--clusterrole={role}", "--user=somebody")

    def may(verb: str, resource: str, subresource: str = "") -> bool:
        flags = ["--as=somebody", *([f"--subresource={subresource}"] if subresource else [])]
        return kube.run("auth", "can-i", verb, f"{resource}.promptgroup.dev", *flags, check=False).returncode == 0

    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    wait_for(lambda: True if may("get", "promptgroups") else None, "roles to be aggregated")
    assert {verb for verb in verbs if may(verb, "promptgroups")} == groups
    assert {verb for verb in ("update", "patch") if may(verb, "promptgroups", "scale")} == scale
    assert not may("patch", "promptgroups", "status")
    assert [verb for verb in verbs if may(verb, "promptroutes")] == []
