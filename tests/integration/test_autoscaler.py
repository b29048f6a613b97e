"""A HorizontalPodAutoscaler on the scale subresource, beside a group that sizes itself and instead of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from promptgroup_local.kubectl import Kubectl, wait_for
from support.externalmetric import autoscaler, external_metric
from support.life import unharmed
from support.sized import FEW, GROUP, SIZING, Sized, sized

pytestmark = [pytest.mark.integration, pytest.mark.slow]


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
        assert _judged(kube, "ScalingActive", "ValidMetricFound")
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
