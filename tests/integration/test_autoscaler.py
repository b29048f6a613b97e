"""Autoscalers on the scale subresource: beside a group that sizes itself, instead of it, and led by its figures."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.ports import free_ports
from support.definitions import defined, module_folder, take
from support.externalmetric import autoscaler, external_metric
from support.life import unharmed
from support.operators import operator_process
from support.sized import FEW, GROUP, MINUTES, QUICKLY_AWAY, SIZING, Sized, sized

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
MANY = 20
"""Sessions at a time for more than three replicas."""
KEDA = "github.com/kedacore/keda/v2@v2.21.0"
"""KEDA's Go module, with its definitions and the parameters of its triggers."""


def test_an_autoscaler_on_the_scale_subresource_takes_over_and_gives_back(
    quickly_operated: Sized, tmp_path: Path
) -> None:
    group, kube = quickly_operated, quickly_operated.kube
    kube.apply(sized())
    kube.wait_warm(GROUP, "1/1")
    refused = kube.run("scale", "promptgroup", GROUP, "--replicas=2", check=False)
    assert "replicas (fixed, or set through the scale subresource) and sizing exclude each other" in refused.stderr
    assert "replicas" not in group.found()["spec"]
    with external_metric(kube, tmp_path, value=6) as metric, group.load(FEW) as load, load.watched() as seen:
        kube.apply(autoscaler(GROUP, average=2))
        # beside `sizing` it finds no number that it could change
        wait_for(lambda: _judged(kube, "AbleToScale", "FailedGetScale"), "it to look", lambda: _autoscaled(kube))
        kube.wait_condition(GROUP, "ScalingActive", "True")
        assert group.wanted() == 1

        kube.patch("promptgroup", GROUP, {"spec": {"sizing": None, "replicas": group.wanted()}})
        kube.wait_condition(GROUP, "ScalingActive", "False", "FixedReplicas")
        kube.wait_warm(GROUP, "3/3")
        wait_for(lambda: _judged(kube, "ScalingActive", "ValidMetricFound"), "it to scale", lambda: _autoscaled(kube))
        # who scales makes no difference to whether the caches are explained
        kube.wait_condition(GROUP, "CacheEffective", "True", "Healthy")
        metric.value = 2
        kube.wait_warm(GROUP, "1/1")
        wait_for(lambda: group.pods() == 1 or None, "two to go", group.told)
        told = kube.run("get", "promptgroup", GROUP, "-o", "json", "--show-managed-fields").stdout
        owners = [each["manager"] for each in json.loads(told)["metadata"]["managedFields"] if _writes_replicas(each)]
        assert owners == ["kube-controller-manager"]

        metric.value = 6
        kube.patch("promptgroup", GROUP, {"spec": {"sizing": SIZING, "replicas": None}})
        kube.wait_condition(GROUP, "ScalingActive", "True")
        wait_for(lambda: _judged(kube, "AbleToScale", "FailedGetScale"), "it to stop", lambda: _autoscaled(kube))
        assert group.wanted() == 1
    assert unharmed(seen)


def test_an_autoscaler_follows_what_the_caches_need_and_keeps_the_number_while_that_is_unknown(
    cluster: LocalCluster, kube: Kubectl, no_operator: None, tmp_path: Path
) -> None:
    """The sample's metric and target; the adapter's part is to hand out what the operator serves to Prometheus."""
    lab.install_router(kube)
    [port] = free_ports(1)
    group, made = Sized(cluster, kube), sized()
    del made["spec"]["sizing"]
    made["spec"]["replicas"] = 1
    [follows] = [each for each in _sample("hpa-caches") if each["kind"] == "HorizontalPodAutoscaler"]
    [metric] = follows["spec"]["metrics"]
    follows["metadata"]["name"] = follows["spec"]["scaleTargetRef"]["name"] = GROUP
    follows["spec"] |= {
        "minReplicas": 1,
        "maxReplicas": 4,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }

    def served(name: str) -> int | None:
        assert name == metric["external"]["metric"]["name"]
        try:
            page = urllib3.request("GET", f"http://127.0.0.1:{port}/metrics", timeout=5, retries=False).data.decode()
        except urllib3.exceptions.HTTPError:
            return None  # as Prometheus has no sample of a target that is away
        line = re.search(rf'^{name}{{[^}}]*name="{GROUP}"[^}}]*}} ([0-9.]+)$', page, re.MULTILINE)
        return int(float(line[1])) if line is not None else None

    with external_metric(kube, tmp_path, value=served):
        with operator_process(cluster, kube.namespace, f"--metrics-port={port}", quick=True):
            kube.apply(made, follows)
            kube.wait_warm(GROUP, "1/1")
            with group.load(FEW) as few, few.watched() as calm:
                with group.load(MANY, seed=2_000_000) as many, many.watched() as busy:
                    wait_for(lambda: group.wanted() >= 3 or None, "more replicas", group.told, MINUTES)
                wait_for(lambda: _judged(kube, "ScalingActive", "ValidMetricFound"), "it to scale", group.told)
                wait_for(lambda: group.wanted() == group.pods() == 1 or None, "one replica again", group.told, MINUTES)
                kube.patch("hpa", GROUP, {"spec": {"minReplicas": 2}})
                kube.wait_warm(GROUP, "2/2")
            assert unharmed(calm)
            assert unharmed(busy)
        kube.patch("hpa", GROUP, {"spec": {"minReplicas": 1}})
        wait_for(
            lambda: _judged(kube, "ScalingActive", "FailedGetExternalMetric"), "it to look", lambda: _autoscaled(kube)
        )
        group.steady(2, QUICKLY_AWAY)


def test_kedas_definitions_take_the_sample_and_its_triggers_have_parameters_that_keda_knows(
    kube: Kubectl, crds: None
) -> None:
    with defined(kube, {KEDA: ("config/crd/bases/keda.sh_scaledobjects.yaml", ("ScaledObject",))}):
        objects = _sample("keda")
        for manifest in objects:
            take(kube, manifest)
    [scaled] = [each for each in objects if each["kind"] == "ScaledObject"]
    source = (module_folder(KEDA) / "pkg" / "scalers" / "prometheus_scaler.go").read_text()
    parameters = set(re.findall(r'keda:"name=([A-Za-z]+)', source))
    assert {"serverAddress", "query", "threshold"} < parameters
    for trigger in scaled["spec"]["triggers"]:
        assert trigger["metadata"].keys() <= parameters


def _sample(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((SAMPLES / f"{file}.yaml").read_text()))


def _autoscaled(kube: Kubectl) -> dict[str, Any]:
    return (kube.get("horizontalpodautoscaler", GROUP) or {}).get("status", {})


def _judged(kube: Kubectl, kind: str, reason: str) -> bool | None:
    """Whether the autoscaler says so of the group."""
    return (
        any((each["type"], each["reason"]) == (kind, reason) for each in _autoscaled(kube).get("conditions", ()))
        or None
    )


def _writes_replicas(entry: dict[str, Any]) -> bool:
    return "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
