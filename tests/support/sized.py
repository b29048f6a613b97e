"""A group that sizes itself under sessions that come and go, and a real Prometheus that watches it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Task
from promptgroup_local.ports import free_ports
from promptgroup_operator.world.load import PERIOD
from support import quickoperator
from support.groups import PROMPTS, group
from support.life import cold
from support.load import PAUSE, TURNS, Load, dated, endless
from support.prometheus import Prometheus, prometheus, until
from support.routed import routers_know

GROUP = "sized"
MODEL = "tiny"
TASK = Task("sized", PROMPTS["h"])
LOOK = 2.0
"""Seconds between two looks of Prometheus' discovery at the pods."""
SIZING: dict[str, Any] = {
    "minReplicas": 1,
    "maxReplicas": 4,
    "targets": {"ttft": "2s"},
    "behavior": {
        "scaleDown": {
            "stabilizationWindowSeconds": 15,
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
        }
    },
}
"""Bounds and windows with which a test need not wait for minutes."""
MINUTES = 240.0
"""Longest wait for a number of replicas: the window of a load must have passed, then windows and a drain."""
LOOKS = 3
AWAY = LOOKS * PERIOD.total_seconds()
"""Seconds in which a number would change if anything changed it: so many looks at the group."""
QUICKLY_AWAY = LOOKS * quickoperator.PERIOD.total_seconds()
"""The same, where the operator looks more often."""
FEW = 2
"""Sessions at a time that one replica serves well."""
SLOW = 600
"""Prompt tokens a second, a twentieth of a GPU's: a dozen sessions keep two engines busy, and no core."""


def sized(
    *, args: tuple[str, ...] = (), rate: int = SLOW, most: int = 4, cache: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The group; alone in its namespace, so that who serves is warm for its prompt."""
    env = {"STANDIN_PREFILL_TOKENS_PER_SECOND": str(rate)}
    made = group(GROUP, TASK.system, args=args, env=env, sizing=SIZING | {"maxReplicas": most})
    made["spec"] |= {"cache": cache} if cache is not None else {}
    del made["spec"]["replicas"]
    return made


@dataclass(frozen=True, slots=True)
class Sized:
    """The group, and what is seen of it."""

    cluster: LocalCluster
    kube: Kubectl

    def load(self, at_once: int, seed: int = 1000, pause: float = PAUSE, turns: int = TURNS) -> Load:
        """So many sessions at a time that name the group."""
        routers_know(self.kube, GROUP)
        target = Target([lab.router_url(self.kube)], MODEL, groups={TASK.name: GROUP})
        return Load(target, endless(TASK, seed, turns), self._cold, at_once, pause)

    def departing(self, at_once: int) -> Load:
        """So many short sessions at a time that bring the prompt with the time on top."""
        routers_know(self.kube, GROUP)
        target = Target([lab.router_url(self.kube)], MODEL)
        return Load(target, dated(endless(TASK, turns=2)), self._cold, at_once)

    def _cold(self) -> int:
        return cold(self.cluster.folder, self.kube.namespace, GROUP)

    def found(self) -> dict[str, Any]:
        """The group as it stands."""
        return self.kube.get("promptgroup", GROUP) or {}

    def wanted(self) -> int:
        """Replicas that the group wants."""
        return int(self.found().get("status", {}).get("warm", "0/0").partition("/")[2])

    def pods(self) -> int:
        """Pods that do not terminate."""
        return len(lab.engine_pods(self.kube, GROUP))

    def steady(self, wanted: int, seconds: float) -> None:
        """The number stays, for as long as a number could change in."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.wanted() == wanted, self.told()
            until(time.monotonic() + 1)

    def told(self) -> object:
        """What a test that fails shows."""
        conditions = self.found().get("status", {}).get("conditions", [])
        return {
            "wanted": self.wanted(),
            "pods": self.pods(),
            **{each["type"]: f"{each['status']} {each['reason']}: {each['message']}" for each in conditions},
        }


@contextmanager
def scraping(kube: Kubectl, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the engines and routers of a namespace as they come and go."""
    [port] = free_ports(1)
    done = threading.Event()
    with prometheus(folder, port, targets(kube)) as server:

        def discover() -> None:
            while not done.wait(LOOK):
                server.aim(targets(kube))

        discovering = threading.Thread(target=discover)
        discovering.start()
        try:
            yield server
        finally:
            done.set()
            discovering.join()


def targets(kube: Kubectl) -> dict[str, dict[str, str]]:
    """Address → labels of what Prometheus scrapes in a namespace, as its discovery of pods gives them."""
    found = {}
    for pod in kube.list("pods"):
        labels, address = pod["metadata"]["labels"], pod["status"].get("podIP")
        port = names.PORT_ENGINE if names.LABEL_GROUP in labels else names.PORT_ROUTER_ADMIN
        if address and pod["status"].get("phase") == "Running":
            found[f"{address}:{port}"] = {"namespace": kube.namespace, "pod": pod["metadata"]["name"]}
    return found
