"""manifests/picker: its parts name each other rightly, and its flags are ones that the picker has."""

from pathlib import Path

import pytest

from promptgroup_contract import names
from promptgroup_picker.settings import parse
from promptgroup_router.base.core_settings import PeerName
from support.yamlfiles import document, documents

FOLDER = Path(__file__).parents[3] / "manifests" / "picker"


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], dict]:
    listed = document((FOLDER / "kustomization.yaml").read_text())["resources"]
    found = [each for name in listed for each in documents((FOLDER / name).read_text())]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture(scope="module")
def pod(objects) -> dict:
    return objects["Deployment", names.PICKER]["spec"]["template"]["spec"]


def test_every_file_is_listed():
    listed = document((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in FOLDER.glob("*.yaml")} == {*listed, "kustomization.yaml"}


def test_pickers_find_routers_and_each_other_by_one_key(objects, pod):
    (picker,) = pod["containers"]
    found = parse([*picker["args"], "--namespaces=a"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert found.peers == (PeerName("promptgroup-router-peers"), PeerName("promptgroup-picker-peers"))
    service = objects["Service", "promptgroup-picker-peers"]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert [(port["port"], port["protocol"]) for port in service["ports"]] == [(found.peer_port, "UDP")]
    (secret,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "peers"]
    assert (secret["secretName"], secret["optional"]) == (names.SECRET_PEERS, True)
    limit = picker["resources"]["limits"]["memory"]
    assert limit == "1Gi"
    assert 2 * found.body_memory_bytes + 8 * found.max_body_bytes + 256 * 2**20 <= 2**30
    assert not found.plaintext


def test_everything_selects_the_pickers_pods_and_no_others(objects):
    deployment = objects["Deployment", names.PICKER]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert labels == {"app.kubernetes.io/name": names.PICKER}
    assert deployment["selector"]["matchLabels"] == labels
    assert objects["PodDisruptionBudget", names.PICKER]["spec"]["selector"]["matchLabels"] == labels
    assert objects["NetworkPolicy", names.PICKER]["spec"]["podSelector"]["matchLabels"] == labels
    for name in (names.PICKER, "promptgroup-picker-peers"):
        assert objects["Service", name]["spec"]["selector"] == labels


def test_ports_are_those_of_the_settings(objects, pod):
    (picker,) = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in picker["ports"]}
    assert ports == {"grpc": 9002, "grpc-health": 9003, "admin": 9090, "peers": 9094}
    assert objects["Service", names.PICKER]["spec"]["ports"][0]["targetPort"] == "grpc"


def test_it_may_read_and_nothing_else(objects):
    verbs = {
        verb
        for (kind, _), each in objects.items()
        if kind == "Role"
        for rule in each.get("rules", ())
        for verb in rule["verbs"]
    }
    assert verbs == {"get", "list", "watch"}
