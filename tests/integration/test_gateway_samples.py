"""An API server with the gateways' own definitions takes the samples, and the InferencePool that the operator makes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from promptgroup_local.kubectl import Kubectl
from promptgroup_operator.gateway import inference_pool
from promptgroup_operator.plan import desired
from promptgroup_operator.world.snapshot import SeenPools
from support.builders import group
from support.definitions import defined, take

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parents[2] / "manifests" / "samples" / "gateways"
DEFINED = {
    "sigs.k8s.io/gateway-api@v1.6.1": ("config/crd/standard/*.yaml", ("GatewayClass", "Gateway", "HTTPRoute")),
    "istio.io/api@v1.31.0": ("kubernetes/customresourcedefinitions.gen.yaml", ("DestinationRule",)),
    "sigs.k8s.io/gateway-api-inference-extension@v1.6.0": ("config/crd/bases/*.yaml", ("InferencePool",)),
}
"""Go module → where it has its definitions, and the kinds that are taken. GKE publishes none there."""
OWN = {"PromptGroup", "NetworkPolicy"}
UNDEFINED = {"HealthCheckPolicy", "GCPBackendPolicy"}


@pytest.fixture
def gateways(kube: Kubectl, crds: None) -> Iterator[Kubectl]:
    with defined(kube, DEFINED):
        yield kube


def test_they_are_taken_as_they_are_written(gateways: Kubectl) -> None:
    objects, kinds = [], set()
    for path in sorted(FOLDER.glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            kinds.add(each["kind"])
            if each["kind"] not in UNDEFINED:
                objects.append(each)
    fronted = group(gateway={})
    made = inference_pool.decide(fronted, SeenPools(), taken=False)
    objects.append(desired.inference_pool(fronted, made.spec or {}))
    assert kinds == OWN | UNDEFINED | {kind for _, each in DEFINED.values() for kind in each} - {"InferencePool"}
    for each in objects:
        each["metadata"].pop("namespace", None)
        take(gateways, each)
