"""The samples of gateways hang together, and differ in what their gateways need alone."""

from pathlib import Path

import pytest

from promptgroup_contract import names
from support.yamlfiles import documents

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "manifests" / "samples" / "gateways"
GATEWAYS = ("agentgateway", "envoy-gateway", "gke", "istio", "kgateway")
FILES = {name: list(documents((FOLDER / f"{name}.yaml").read_text())) for name in GATEWAYS}


def one(name, kind):
    [found] = [each for each in FILES[name] if each["kind"] == kind]
    return found


def test_there_is_one_for_each_gateway_and_the_guide_has_them():
    guide = (ROOT / "docs/how-to/gateways.md").read_text()
    assert sorted(path.stem for path in FOLDER.iterdir()) == list(GATEWAYS)
    assert all(f"manifests/samples/gateways/{name}.yaml" in guide for name in GATEWAYS)


@pytest.mark.parametrize("name", GATEWAYS)
@pytest.mark.parametrize("kind", ["PromptGroup", "HTTPRoute"])
def test_group_and_route_are_the_same_everywhere(name, kind):
    assert one(name, kind) == one("istio", kind)


@pytest.mark.parametrize("name", GATEWAYS)
def test_all_that_is_named_is_there(name):
    group, route, gateway = one(name, "PromptGroup"), one(name, "HTTPRoute"), one(name, "Gateway")
    assert group["spec"]["gateway"] == {}  # the pool has the group's name
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": group["metadata"]["name"]}
    assert [each["name"] for each in route["spec"]["parentRefs"]] == [gateway["metadata"]["name"]]
    [rule] = route["spec"]["rules"]
    assert rule["backendRefs"] == [pool]
    targets = [each["spec"]["targetRef"] for each in FILES[name] if "targetRef" in each["spec"]]
    assert targets == [pool] * len(targets)
    policy = one(name, "NetworkPolicy")["spec"]
    [selected] = policy["podSelector"]["matchExpressions"]
    assert selected["key"] == names.LABEL_GROUP
    assert [each["port"] for each in policy["ingress"][0]["ports"]] == ["http"]
    for each in policy["ingress"][0]["from"]:
        labels = each.get("podSelector", {}).get("matchLabels", {})
        assert set(labels.values()) <= {gateway["metadata"]["name"]}


def test_istio_knows_the_pickers_by_their_service():
    assert one("istio", "DestinationRule")["spec"]["host"] == names.PICKER


def test_gke_looks_at_the_port_of_engines():
    check = one("gke", "HealthCheckPolicy")["spec"]["default"]["config"]["httpHealthCheck"]
    assert check["port"] == one("gke", "PromptGroup")["spec"]["engine"].get("port", 8000)
