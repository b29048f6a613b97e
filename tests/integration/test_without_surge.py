"""A group without a GPU to spare: `rollout.maxSurge: 0` lets one replica leave before another one comes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Task
from support.groups import PROMPTS, group
from support.life import cold, unharmed
from support.load import Load, Seen, endless
from support.routed import routed, routers_know

pytestmark = pytest.mark.integration

GROUP, REPLICAS = "tight", 2


def tight(letter: str, **env: str) -> dict[str, Any]:
    """The group on its two GPUs."""
    return group(GROUP, PROMPTS[letter], replicas=REPLICAS, env=env, rollout={"maxSurge": 0})


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    with routed(cluster, "tight") as kube:
        kube.apply(tight("a"))
        kube.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}")
        routers_know(kube, GROUP)
        yield kube


@contextmanager
def changed(kube: Kubectl, cluster: LocalCluster) -> Iterator[Seen]:
    """A change under load: no third pod may come. Gives what clients saw."""
    target = Target([lab.router_url(kube)], "tiny", groups={GROUP: GROUP})
    met_cold = lambda: cold(cluster.folder, "tight", GROUP)  # noqa: E731
    with (
        Load(target, endless(Task(GROUP, PROMPTS["a"])), met_cold, at_once=4, pause=0.2) as load,
        load.watched() as seen,
    ):
        yield seen


def pods(kube: Kubectl) -> set[str]:
    """Engines that do not terminate."""
    found = {each["metadata"]["uid"] for each in lab.engine_pods(kube, GROUP)}
    assert len(found) <= REPLICAS
    return found


def replace_all(kube: Kubectl, changed_group: dict[str, Any]) -> None:
    """Apply a change, and wait until all replicas are other ones, and warm."""
    before = pods(kube)
    kube.apply(changed_group)
    kube_pods = lambda: pods(kube)  # noqa: E731
    wait_for(
        lambda: True if len(found := kube_pods()) == REPLICAS and not found & before else None,
        "all replicas to be replaced",
        lambda: kube.get("promptgroup", GROUP),
        seconds=120,
    )
    kube.wait_condition(GROUP, "Ready", "True", "Warm")


def test_a_prompt_is_released_on_the_gpus_that_there_are(kube: Kubectl, cluster: LocalCluster) -> None:
    with changed(kube, cluster) as seen:
        replace_all(kube, tight("b"))
    assert unharmed(seen)


def test_an_engine_is_changed_on_the_gpus_that_there_are(kube: Kubectl, cluster: LocalCluster) -> None:
    with changed(kube, cluster) as seen:
        replace_all(kube, tight("b", ANOTHER="engine"))
    assert unharmed(seen)
