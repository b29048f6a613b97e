"""manifests/router: its parts name each other rightly, and its flags are ones that the router has."""

from pathlib import Path

import pytest

from promptgroup_contract import names
from promptgroup_router.base.core_settings import PeerName
from promptgroup_router.base.settings import parse
from support.yamlfiles import document, documents

FOLDER = Path(__file__).parents[3] / "manifests" / "router"


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], dict]:
    listed = document((FOLDER / "kustomization.yaml").read_text())["resources"]
    found = [each for name in listed for each in documents((FOLDER / name).read_text())]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture(scope="module")
def pod(objects) -> dict:
    return objects["Deployment", "promptgroup-router"]["spec"]["template"]["spec"]


def test_the_memory_limit_fits_the_bodies_that_the_router_takes(pod):
    (router,) = pod["containers"]
    found = parse([*router["args"], "--namespaces=a"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    limit = router["resources"]["limits"]["memory"]
    assert limit == "1Gi"
    assert 2 * found.body_memory_bytes + 8 * found.max_body_bytes + 256 * 2**20 <= 2**30


def test_every_file_is_listed():
    listed = document((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in FOLDER.glob("*.yaml")} == {*listed, "kustomization.yaml"}


def test_routers_find_each_other_and_their_key(objects, pod):
    (router,) = pod["containers"]
    found = parse([*router["args"], "--namespaces=a"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    (name,) = found.peers
    assert name == PeerName("promptgroup-router-peers")
    service = objects["Service", name.host]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert [(port["port"], port["protocol"]) for port in service["ports"]] == [(found.peer_port, "UDP")]
    assert {"name": "peers", "containerPort": found.peer_port, "protocol": "UDP"} in router["ports"]
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in router["volumeMounts"]}
    (secret,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "peers"]
    assert (secret["secretName"], secret["optional"]) == (names.SECRET_PEERS, True)
    assert found.peer_key_file == mounts["peers"] / names.KEY_PEERS


def test_everything_selects_the_routers_pods(objects):
    deployment = objects["Deployment", "promptgroup-router"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["replicas"] == 2
    assert deployment["selector"]["matchLabels"] == labels
    assert objects["PodDisruptionBudget", "promptgroup-router"]["spec"]["selector"]["matchLabels"] == labels
    for name in ("promptgroup-router", "promptgroup-router-peers"):
        assert objects["Service", name]["spec"]["selector"] == labels


def test_the_pod_keeps_to_the_restricted_profile(pod):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted."""
    (router,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert router["securityContext"]["allowPrivilegeEscalation"] is False
    assert router["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert all("hostPort" not in port for port in router["ports"])
    assert all({"emptyDir", "secret"} & set(volume) for volume in pod["volumes"])
