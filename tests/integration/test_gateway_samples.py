"""An API server with the gateways' own definitions takes the samples, and the InferencePool that the operator makes."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from promptgroup_local.kubectl import Kubectl
from promptgroup_operator.gateway import inference_pool
from promptgroup_operator.plan import desired
from promptgroup_operator.world.snapshot import SeenPools
from support.builders import group

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


@cache
def definitions() -> list[dict[str, Any]]:
    if shutil.which("go") is None:
        pytest.skip("NO GO HERE, so that the definitions of gateways cannot be had")
    found = []
    for module, (pattern, kinds) in DEFINED.items():
        command = ["go", "mod", "download", "-json", module]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/")
        if done.returncode != 0:
            pytest.skip(
                f"{module} CANNOT BE HAD, so that samples are not compared with it: {done.stderr.strip()[-100:]}"
            )
        for path in sorted(Path(json.loads(done.stdout)["Dir"]).glob(pattern)):
            each = yaml.load_all(path.read_text(), yaml.CSafeLoader)
            found += [one for one in each if one and one["kind"] == "CustomResourceDefinition" and _kind(one) in kinds]
    assert sorted(map(_kind, found)) == sorted(kind for _, kinds in DEFINED.values() for kind in kinds)
    return found


def _kind(definition: dict[str, Any]) -> str:
    kind: str = definition["spec"]["names"]["kind"]
    return kind


@pytest.fixture
def gateways(kube: Kubectl, crds: None) -> Iterator[Kubectl]:
    made = definitions()
    try:
        kube.apply(*made)
        each = [f"crd/{one['metadata']['name']}" for one in made]
        kube.run("wait", *each, "--for=condition=Established", "--timeout=30s")
        yield kube
    finally:
        kube.run("delete", "crd", *(one["metadata"]["name"] for one in made))


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
        asked = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
        done = gateways.run(*asked, stdin=json.dumps(each))
        assert "Warning" not in done.stderr
