"""README: whatever happens to pods, routers, operator and API server, no request fails, is cut or meets a cold prompt.

Clients of four kinds run through one event after the other. It takes ten minutes, so `make e2e` leaves it out:
`make e2e ARGS=e2e/test_hard_day.py` runs it and prints what became of the requests in each event.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from harness.clients import Clients, Plan, clients, service
from harness.cluster import Cluster
from harness.group import BY_RING, group, pods, prompt, revision, weights
from harness.images import Images
from harness.install import ROLLOUT, SYSTEM
from harness.outcomes import Seen
from harness.preemption import preempted
from promptgroup_local.kubectl import Kubectl, wait_for
from support.evictions import wait_evicted

pytestmark = pytest.mark.alone

NAME = "day"
SECONDS = 240.0
SETTLE = 12
"""Answers that each kind of clients gets after an event: what it broke shows in them."""
COLUMNS = ("event", "requests", "failed", "cut", "cold", "other revision")


@dataclass(slots=True)
class Day:
    """The clients of a day, and what became of their requests in each event."""

    running: dict[str, Clients]
    events: list[tuple[str, Seen]] = field(default_factory=list)

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Watch all clients while something is done."""
        with ExitStack() as stack:
            watched = [stack.enter_context(each.watched(settle=SETTLE)) for each in self.running.values()]
            yield
        total = Seen()
        for seen in watched:
            total.requests += seen.requests
            total.failed += seen.failed
            total.cut += seen.cut
            total.cold += seen.cold
            total.moves += seen.moves
        self.events.append((name, total))

    def table(self) -> str:
        """One line an event."""
        rows = [COLUMNS]
        for name, seen in self.events:
            counts = (seen.requests, len(seen.failed), len(seen.cut), len(seen.cold), seen.changed_revision())
            rows.append((name, *map(str, counts)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n" + "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        )


def asked(images: Images, letter: str, replicas: int = 3, *, args: tuple[str, ...] = ()) -> dict[str, object]:
    rollout = {
        "steps": [{"weight": 50, "pause": "5s"}],
        "judge": {"minRequests": 20},
        "retireAfter": "20s",
        "drainTimeout": "60s",
    }
    return group(NAME, images, prompt(letter), replicas=replicas, args=args, routing=BY_RING, rollout=rollout)


def test_a_hard_day_fails_cuts_and_chills_no_request(
    cluster: Cluster, kubectl: Kubectl, images: Images, record_property: Callable[[str, object], None]
) -> None:
    kubectl.apply(asked(images, "a"))
    kubectl.wait_warm(NAME, "3/3")
    url = (service(kubectl.namespace),)
    kinds = {
        "by name, whole": Plan(url, NAME, at_once=4, streamed=False, seed=1),
        "by name, streams of ten seconds": Plan(url, NAME, at_once=3, last=40, tokens=400, streamed=True, seed=2),
        "by content": Plan(url, system=prompt("a"), at_once=4, seed=3),
        "sessions of forty turns": Plan(url, NAME, at_once=3, last=40, seed=4),
    }
    with ExitStack() as stack:
        day = Day(
            {kind: stack.enter_context(clients(cluster, images, kubectl, NAME, plan)) for kind, plan in kinds.items()}
        )
        try:
            run(day, cluster, kubectl, images)
        finally:
            record_property("the day", day.table())
    harmed = [(name, seen.failed, seen.cut, seen.cold) for name, seen in day.events if harm(seen)]
    assert harmed == []


def harm(seen: Seen) -> int:
    return len(seen.failed) + len(seen.cut) + len(seen.cold)


def run(day: Day, cluster: Cluster, kubectl: Kubectl, images: Images) -> None:
    """Let everything happen, one event after the other."""
    system = cluster.kubectl(SYSTEM)
    with day.event("nothing"):
        pass
    with day.event("scaled from 3 to 5"):
        kubectl.scale("promptgroup", NAME, 5)
        kubectl.wait_warm(NAME, "5/5")
    with day.event("scaled from 5 to 3"):
        kubectl.scale("promptgroup", NAME, 3)
        gone(kubectl, 3)
    with day.event("a pod deleted"):
        replaced(kubectl, lambda pod: kubectl.run("delete", "pod", pod, "--wait=false"))
    with day.event("a pod evicted"):
        replaced(kubectl, lambda pod: wait_evicted(kubectl, pod))
    with day.event("a node drained"):
        node = pods(kubectl, NAME)[0]["spec"]["nodeName"]
        cluster.kubectl().run(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={SECONDS:.0f}s"
        )
        cluster.kubectl().run("uncordon", node)
        kubectl.wait_warm(NAME, "3/3")
    with day.event("a node's replicas preempted"):
        node = pods(kubectl, NAME)[0]["spec"]["nodeName"]
        with preempted(cluster, images, node):
            pass
        kubectl.wait_warm(NAME, "3/3")
    with day.event("engine arguments changed"):
        before = {pod["metadata"]["name"] for pod in pods(kubectl, NAME)}
        kubectl.apply(asked(images, "a", args=("--max-num-seqs=64",)))
        wait_for(
            lambda: True if not before & {pod["metadata"]["name"] for pod in pods(kubectl, NAME)} else None,
            "all pods to be replaced",
            seconds=SECONDS,
        )
        kubectl.wait_warm(NAME, "3/3", seconds=SECONDS)
    with day.event("routers restarted"):
        kubectl.run("rollout", "restart", "deployment/promptgroup-router")
        kubectl.run("rollout", "status", "deployment/promptgroup-router", ROLLOUT)
    with day.event("operators restarted"):
        system.run("rollout", "restart", "deployment/promptgroup-operator")
        system.run("rollout", "status", "deployment/promptgroup-operator", ROLLOUT)
    with day.event("no API server"), cluster.without_apiserver():
        next(iter(day.running.values())).more(60)
    with day.event("a prompt released"):
        before_release = revision(kubectl, NAME)
        kubectl.apply(asked(images, "b", args=("--max-num-seqs=64",)))
        wait_for(
            lambda: True if weights(kubectl, NAME).get(before_release, 0) == 0 else None,
            "the new prompt to take over",
            lambda: kubectl.get("promptgroup", NAME),
            seconds=SECONDS,
        )
        kubectl.wait_warm(NAME, "3/3", seconds=SECONDS)


def gone(kubectl: Kubectl, count: int) -> None:
    left = lambda: [pod["metadata"]["name"] for pod in kubectl.list("pods", f"promptgroup.dev/group={NAME}")]  # noqa: E731
    wait_for(lambda: True if len(left()) == count else None, f"{count} replicas to be left", left, seconds=SECONDS)


def replaced(kubectl: Kubectl, leave: Callable[[str], object]) -> None:
    pod = pods(kubectl, NAME)[0]["metadata"]["name"]
    leave(pod)
    wait_for(lambda: True if kubectl.get("pod", pod) is None else None, "the pod to go", seconds=SECONDS)
    kubectl.wait_warm(NAME, "3/3", seconds=SECONDS)
