"""Sizing on a real control plane: a load is followed, and what replicas cannot mend is explained instead."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.externalmetric import autoscaler, external_metric
from support.life import unharmed
from support.operators import operator_process
from support.prometheus import Prometheus, until
from support.sized import GROUP, SIZING, TASK, Sized, scraping, sized

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MINUTES = 240.0
"""Longest wait for a number of replicas: the window of two minutes must have passed, then windows and a drain."""
AWAY = 45.0
"""Seconds in which a number would change if anything changed it: three looks at the group."""
FEW, MANY = 2, 20
"""Sessions at a time for one replica, and for more than three: on a machine that is slow itself they ask less often."""
SMALL = ("--num-gpu-blocks-override=512",)
"""8,192 tokens of KV cache, of which 1,000 are the prompt's."""
QUICK = 5000
"""Prompt tokens a second of engines that are never short of time."""
READS = 6.0
"""Seconds between two turns of those who read what they get: routers hold a session to be live for five."""
SHORT = 8
"""Turns of their sessions: within a window each of them opens one, so that it shows how many turns they have."""


@pytest.fixture
def operated(cluster: LocalCluster, kube: Kubectl, no_operator: None) -> Iterator[Sized]:
    """A namespace with a router, and an operator of its own that reads engines and routers itself."""
    lab.install_router(kube)
    with operator_process(cluster, kube.namespace):
        yield Sized(cluster, kube)


@pytest.fixture
def asked(
    cluster: LocalCluster, kube: Kubectl, no_operator: None, tmp_path: Path
) -> Iterator[tuple[Sized, Prometheus]]:
    """The same, where the operator asks a Prometheus."""
    lab.install_router(kube)
    with scraping(kube, tmp_path) as server:
        url = server.url.replace("//", "//user:secret@")
        with operator_process(cluster, kube.namespace, f"--prometheus-url={url}"):
            yield Sized(cluster, kube), server


def steady(group: Sized, wanted: int, seconds: float) -> None:
    """The number stays, for as long as a number could change in."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert group.wanted() == wanted, group.told()
        until(time.monotonic() + 1)


def _warm(group: Sized) -> int | None:
    wanted = group.wanted()
    return wanted if group.found()["status"]["warm"] == f"{wanted}/{wanted}" else None


def test_a_load_is_followed_up_and_down_by_the_operators_own_readings(operated: Sized) -> None:
    group, kube = operated, operated.kube
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
    assert f"held at {held}: Prometheus at {server.url} does not answer since" in found["message"]
    assert unharmed(seen)
    steady(group, held, AWAY)
    log = (cluster.folder / "logs" / f"operator-{kube.namespace}.log").read_text()
    assert server.url in log
    assert "secret" not in log + json.dumps(group.found())
    assert "secret" not in json.dumps(kube.list("events"))
    server.start()
    with group.load(FEW, seed=2_000_000) as load, load.watched() as seen:
        kube.wait_condition(GROUP, "ScalingActive", "True")
        wait_for(lambda: group.wanted() == group.pods() == 1 or None, "one replica again", group.told, MINUTES)
    assert unharmed(seen)


def test_prompts_that_leave_the_declared_one_are_named_and_add_no_replica(operated: Sized) -> None:
    group, kube = operated, operated.kube
    kube.apply(sized())
    kube.wait_warm(GROUP, "1/1")
    with group.load(1), group.departing(6):
        found = wait_for(lambda: _effective(group, "False", "PromptDrift"), "the drift", group.told, MINUTES)
        active = kube.wait_condition(GROUP, "ScalingActive", "True", "PromptDrift")
        steady(group, 1, AWAY)
    assert f"leave the declared prompt at byte 0 of {len(TASK.system.encode())} (about token 0 of" in found["message"]
    assert "more replicas do not help" in active["message"]
    assert TASK.system[:20] not in json.dumps(group.found()["status"])


def test_caches_that_are_too_small_for_the_sessions_are_named_and_replicas_mend_it(operated: Sized) -> None:
    group, kube = operated, operated.kube
    kube.apply(sized(args=SMALL, rate=QUICK, most=1))
    kube.wait_warm(GROUP, "1/1")
    with group.load(24, pause=READS, turns=SHORT):
        found = wait_for(lambda: _effective(group, "False", "Thrashing"), "the thrash", group.told, MINUTES)
        kube.wait_condition(GROUP, "ScalingLimited", "True", "TooManyReplicas")
        assert group.wanted() == 1
        kube.apply(sized(args=SMALL, rate=QUICK))
        wait_for(lambda: group.wanted() > 1 or None, "more replicas", group.told, MINUTES)
        wait_for(lambda: _effective(group, "True", "Healthy"), "the hits to recover", group.told, MINUTES)
    assert "the KV cache is too small for the sessions that are live" in found["message"]


def _effective(group: Sized, status: str, reason: str) -> dict[str, Any] | None:
    found = group.kube.condition(GROUP, "CacheEffective")
    return found if (found.get("status"), found.get("reason")) == (status, reason) else None


def test_an_autoscaler_on_the_scale_subresource_takes_over_and_gives_back(operated: Sized, tmp_path: Path) -> None:
    group, kube = operated, operated.kube
    kube.apply(sized())
    kube.wait_warm(GROUP, "1/1")
    refused = kube.run("scale", "promptgroup", GROUP, "--replicas=2", check=False)
    assert "replicas (fixed, or set through the scale subresource) and sizing exclude each other" in refused.stderr
    assert "replicas" not in group.found()["spec"]
    with external_metric(kube, tmp_path, value=6) as metric, group.load(2) as load, load.watched() as seen:
        kube.apply(autoscaler(GROUP, average=2))
        # beside `sizing` it finds no number that it could change
        wait_for(lambda: _judged(kube, "AbleToScale", "FailedGetScale"), "it to look", lambda: _autoscaled(kube))
        kube.wait_condition(GROUP, "ScalingActive", "True")
        assert group.wanted() == 1

        kube.patch("promptgroup", GROUP, {"spec": {"sizing": None, "replicas": group.wanted()}})
        kube.wait_condition(GROUP, "ScalingActive", "False", "FixedReplicas")
        kube.wait_warm(GROUP, "3/3")
        assert _judged(kube, "ScalingActive", "ValidMetricFound")
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
