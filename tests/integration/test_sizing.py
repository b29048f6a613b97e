"""Sizing on a real control plane: a load is followed, by own readings and by Prometheus."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.life import unharmed
from support.operators import operator_process
from support.prometheus import Prometheus
from support.sized import FEW, GROUP, MINUTES, QUICKLY_AWAY, Sized, scraping, sized

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
MANY = 20
"""Sessions at a time for more than three replicas: on a machine that is slow itself they ask less often."""


@pytest.fixture
def asked(
    cluster: LocalCluster, kube: Kubectl, no_operator: None, tmp_path: Path
) -> Iterator[tuple[Sized, Prometheus]]:
    """The same, where the operator asks a Prometheus."""
    lab.install_router(kube)
    with scraping(kube, tmp_path) as server:
        url = server.url.replace("//", "//user:secret@")
        with operator_process(cluster, kube.namespace, f"--prometheus-url={url}", quick=True):
            yield Sized(cluster, kube), server


def _warm(group: Sized) -> int | None:
    wanted = group.wanted()
    return wanted if group.found()["status"]["warm"] == f"{wanted}/{wanted}" else None


def test_a_load_is_followed_up_and_down_by_the_operators_own_readings(quickly_operated: Sized) -> None:
    group, kube = quickly_operated, quickly_operated.kube
    kube.apply(sized())
    kube.wait_warm(GROUP, "1/1")
    with group.load(FEW) as few, few.watched() as calm:
        kube.wait_condition(GROUP, "ScalingActive", "True")
        assert group.wanted() == 1
        with group.load(MANY, seed=2_000_000) as many, many.watched() as busy:
            wait_for(lambda: group.wanted() >= 3 or None, "more replicas", group.told, MINUTES)
            wait_for(lambda: _warm(group), "them to be warm", group.told)
            with many.watched():
                pass
            assert group.wanted() >= 3
        wait_for(lambda: group.wanted() == group.pods() == 1 or None, "one replica again", group.told, MINUTES)
    assert unharmed(calm)
    assert unharmed(busy)


def test_the_sample_whose_prompt_is_too_short_to_be_timed_is_sized_by_its_requests(quickly_operated: Sized) -> None:
    group, kube = quickly_operated, quickly_operated.kube
    sample = yaml.safe_load((SAMPLES / "sizing.yaml").read_text())
    made = sized()
    made["spec"]["sizing"] = sample["spec"]["sizing"]
    made["spec"]["prompt"] = sample["spec"]["prompt"]
    kube.apply(made)
    kube.wait_warm(GROUP, "2/2")
    with group.load(MANY, turns=1):
        wait_for(lambda: group.wanted() > 2 or None, "more replicas", group.told, MINUTES)
        found = kube.condition(GROUP, "ScalingActive")
    assert found["status"] == "True"


def test_a_load_is_followed_by_prometheus_and_the_number_holds_while_it_is_away(
    asked: tuple[Sized, Prometheus], cluster: LocalCluster
) -> None:
    group, server = asked
    kube = group.kube
    kube.apply(sized())
    kube.wait_warm(GROUP, "1/1")
    with group.load(MANY) as load, load.watched() as seen:
        grown = wait_for(lambda: (group.wanted() > 1 and _warm(group)) or None, "more replicas", group.told, MINUTES)
        server.stop()
        found = kube.wait_condition(GROUP, "ScalingActive", "False", "FailedGetMetrics")
        held = group.wanted()
        assert held >= grown
    assert found["message"].startswith(f"{held} replicas (min")
    assert f"Prometheus at {server.url} has not answered since" in found["message"]
    assert unharmed(seen)
    group.steady(held, QUICKLY_AWAY)
    log = (cluster.folder / "logs" / f"operator-{kube.namespace}.log").read_text()
    assert server.url in log
    assert "secret" not in log + json.dumps(group.found())
    assert "secret" not in json.dumps(kube.list("events"))
    server.start()
    with group.load(FEW, seed=2_000_000) as load, load.watched() as seen:
        kube.wait_condition(GROUP, "ScalingActive", "True")
        wait_for(lambda: group.wanted() == group.pods() == 1 or None, "one replica again", group.told, MINUTES)
    assert unharmed(seen)
