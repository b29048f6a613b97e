"""A group of real engines on CPU is scaled, released and sized while it serves.

Skipped where no variable names an engine's folder. Requests are counted: the times of these engines say nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.load.workload import tasks
from promptgroup_local.real.engine import MODEL, START_SECONDS, TASK, RealEngine
from promptgroup_local.real.sglang import SGLANG
from promptgroup_local.real.vllm import VLLM
from support.load import Load, endless
from support.realengines import marks, named

GROUP = "changed"
LEAVING_SECONDS = 360.0
"""Longest time of a replica to leave: the default of `rollout.drainTimeout`, and a margin."""
MANY = 32
"""Sessions whose history is more than four times what the cache of one engine can hold."""
PAUSE = 10.0
"""Seconds between their turns."""


@dataclass(frozen=True, slots=True)
class Served:
    """A group with one replica that has a small cache, and a router before it."""

    engine: RealEngine
    kubectl: Kubectl

    def load(self, version: int = 1, sessions: int = 2, pause: float = 0.5) -> Load:
        """Sessions in the background, with a version of the prompt."""
        target = Target([lab.router_url(self.kubectl)], MODEL)
        task = replace(tasks([TASK])[0], system=system_prompt(TASK, version))
        return Load(target, endless(task, turns=4), lambda: 0, at_once=sessions, pause=pause)

    def apply(self, version: int = 1, **spec: object) -> None:
        """Apply the group with a version of its prompt."""
        group = self.engine.group(GROUP, self.engine.small, **spec)
        group["spec"]["prompt"]["system"] = system_prompt(TASK, version)
        self.kubectl.apply(group)

    def status(self) -> dict[str, Any]:
        """Return the group's status."""
        status: dict[str, Any] = self.kubectl.get("promptgroup", GROUP)["status"]
        return status

    def one_left(self) -> None:
        """Wait until one pod of an engine is left."""

        def pods() -> list[dict[str, Any]]:
            return lab.engine_pods(self.kubectl, GROUP)

        wait_for(lambda: True if len(pods()) == 1 else None, "one replica to be left", pods, LEAVING_SECONDS)


@pytest.fixture(scope="module", params=[pytest.param(real, marks=marks(real), id=real.name) for real in (VLLM, SGLANG)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    engine: RealEngine = request.param
    images = engine.images(Path(named(engine.name.upper())).resolve())
    with LocalCluster(tmp_path_factory.mktemp("changes"), images=images) as local:
        kubectl = local.kubectl(GROUP)
        lab.install_operator(kubectl)
        kubectl.make_namespace(GROUP)
        lab.install_router(kubectl)
        result = Served(engine, kubectl)
        result.apply(replicas=1)
        kubectl.wait_warm(GROUP, "1/1", START_SECONDS)
        wait_for(lambda: kubectl.get("promptroute", GROUP), "the route")
        yield result


def test_scaling_under_load_fails_no_request(served: Served) -> None:
    kubectl = served.kubectl
    with served.load() as load, load.watched() as seen:
        kubectl.scale("promptgroup", GROUP, 2)
        kubectl.wait_warm(GROUP, "2/2", START_SECONDS)
        kubectl.scale("promptgroup", GROUP, 1)
        served.one_left()
    assert seen.requests > 0
    assert (seen.failed, seen.cut) == ([], [])


def test_a_release_under_load_fails_no_request(served: Served) -> None:
    first = served.status()["revision"]

    def warm() -> bool | None:
        status = served.status()
        return (status["revision"] != first and status["warm"] == "1/1") or None

    with served.load() as load, load.watched() as seen:
        served.apply(2, replicas=1)
        wait_for(warm, "the new prompt to be warm", served.status, START_SECONDS)
    assert seen.requests > 0
    assert (seen.failed, seen.cut) == ([], [])


def test_a_cache_that_is_too_small_brings_another_replica(served: Served) -> None:
    served.apply(2, sizing={"minReplicas": 1, "maxReplicas": 2})
    with served.load(2, MANY, PAUSE):
        served.kubectl.wait_warm(GROUP, "2/2", START_SECONDS)
