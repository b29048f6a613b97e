"""What the policies of manifests/policies look at, by the schema of what they are about."""

import re
from pathlib import Path

import pytest
from kubernetes.client import V1Container, V1PodSpec, V1Probe, V1VolumeProjection

from support.yamlfiles import document, documents

ROOT = Path(__file__).parents[3]
NAMES_A_SECRET = re.compile(r"secret", re.IGNORECASE)


def secrets_of(schema, path):
    """Paths of a schema whose values name Secrets: references to keys of one, and fields that are called after it."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        inner = field.get("properties", {})
        if name == "secretKeyRef" or (name == "credentialFrom" and inner.keys() >= {"name", "key"}):
            yield f"{here}.name"
        elif NAMES_A_SECRET.search(name):
            yield here
        else:
            yield from secrets_of(field, here)
            yield from secrets_of(field.get("items", {}), f"{here}[]")


def test_no_field_of_a_group_names_a_secret_past_the_template_policy():
    crd = document((ROOT / "crds/promptgroups.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    paths = sorted(secrets_of(schema, "object.spec"))
    assert len(paths) >= 8
    policy = next(documents((ROOT / "manifests/policies/templates.yaml").read_text()))
    checks = " ".join(each["expression"] for each in policy["spec"]["validations"])
    checked = (r"{} in variables\.secrets", r"{}\.all\((\w+), \1 in variables\.secrets\)")
    missing = [path for path in paths if not any(re.search(each.format(re.escape(path)), checks) for each in checked)]
    assert missing == []


def expressions(name):
    """All that a policy looks at."""
    policy = next(documents((ROOT / f"manifests/policies/{name}.yaml").read_text()))["spec"]
    return " ".join(each["expression"] for each in [*policy["variables"], *policy["validations"]])


HARMLESS = {
    "pod": {
        "activeDeadlineSeconds": "ends the pod itself",
        "dnsConfig": "names that the pod itself looks up",
        "dnsPolicy": "the same",
        "enableServiceLinks": "variables of Services that the namespace's pods find anyway",
        "hostAliases": "names that the pod itself looks up",
        "hostUsers": "a namespace of users is the stricter choice",
        "hostname": "a name that DNS tells with a Service only, which finds pods by labels",
        "hostnameOverride": "the pod's own name for itself",
        "os": "what the container runtime of another system refuses",
        "overhead": "admission sets it by the runtime class",
        "preemptionPolicy": "of the priority class that is judged",
        "readinessGates": "makes the pod itself less ready",
        "resources": "what quotas bound",
        "restartPolicy": "a Deployment takes one value alone",
        "schedulingGroup": "which pods are placed together",
        "securityContext": "Pod Security's",
        "setHostnameAsFQDN": "the pod's own name for itself",
        "shareProcessNamespace": "containers of one pod see each other",
        "subdomain": "a name that DNS tells with a Service only",
        "terminationGracePeriodSeconds": "ends the pod itself",
        "topologySpreadConstraints": "where the pod is better not placed",
        "workloadRef": "which pods are placed together",
    },
    "container": {
        "args": "what the image may do is the author's",
        "command": "the same",
        "image": "the same",
        "imagePullPolicy": "the same",
        "name": "a name within the pod",
        "restartPolicy": "of the container itself",
        "restartPolicyRules": "of the container itself",
        "resizePolicy": "of the container itself",
        "stdin": "whoever may attach needs a right of Kubernetes",
        "stdinOnce": "the same",
        "tty": "the same",
        "terminationMessagePath": "a file of the container",
        "terminationMessagePolicy": "the same",
        "volumeDevices": "of volumes that are judged",
        "volumeMounts": "of volumes that are judged",
        "workingDir": "a folder of the container",
    },
}
"""What of a template the template policy lets through, and why."""


@pytest.mark.parametrize(("kind", "model"), [("pod", V1PodSpec), ("container", V1Container)])
def test_each_field_of_a_pod_is_looked_at_by_the_template_policy_or_harmless(kind, model):
    looked_at = expressions("templates")
    open_ = [name for name in model.attribute_map.values() if not re.search(rf"\.{name}\b", looked_at)]
    assert sorted(set(open_) - HARMLESS[kind].keys()) == []


def test_sources_of_projected_volumes_are_those_that_were_judged():
    sources = set(V1VolumeProjection.attribute_map.values())
    allowed = re.search(r"source\.all\(field, field in \[([^]]*)\]", expressions("templates"))[1]
    taken = set(re.findall(r"'(\w+)'", allowed))
    assert taken == {"configMap", "downwardAPI", "secret", "serviceAccountToken"}
    assert taken < sources


def test_no_handler_of_a_kubelet_has_a_host_that_nobody_looked_at():
    """Probes and hooks that name a host are those that a kubelet connects for."""
    kinds = {kind for name, kind in V1Probe.openapi_types.items() if kind.endswith("Action")}
    assert kinds == {"V1ExecAction", "V1GRPCAction", "V1HTTPGetAction", "V1TCPSocketAction"}
    looked_at = expressions("templates")
    assert "has(handler.httpGet.host)" in looked_at
    assert "has(handler.tcpSocket.host)" in looked_at
    for handler in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle.postStart", "lifecycle.preStop"):
        assert f"container.{handler}]" in looked_at
