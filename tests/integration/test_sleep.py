"""Groups that sleep on a real control plane: what wakes them, and that nobody who waits is lost or out of turn."""

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_operator.base.timestamps import rfc3339
from support.groups import PROMPTS, group, guest
from support.life import cold
from support.operators import is_ready, operator_process, stopped
from support.routed import reason, routers_know

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NAME = "sleeper"
GUEST = "lodger"
SIZING = {"minReplicas": 0, "maxReplicas": 1, "idleAfter": "1m"}
CLIENTS, BATCHES = 200, 10
IDLE = timedelta(minutes=1)
ONE_BY_ONE = ("--max-num-seqs=1",)
"""The engine works on one request at a time, so that they end in the order in which it got them."""
MINUTES = 240.0
ROUTER = "promptgroup-router"
SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client got."""

    number: int
    status: int
    body: str
    at: float
    """When it had it, in monotonic seconds."""
    retry_after: str


@dataclass(frozen=True, slots=True)
class Sleeping:
    """A group that sleeps."""

    cluster: LocalCluster
    kube: Kubectl
    name: str = NAME
    operator: subprocess.Popen[bytes] | None = None

    def ask(self, number: int = 0, *, name: str = "", timeout: float = 120.0, url: str = "") -> Answer:
        """Ask the group, and wait for the answer."""
        body = {
            "model": name or self.name,
            "messages": [{"role": "user", "content": f"Question {number}: what is the answer?"}],
            "max_tokens": 2,
        }
        got = urllib3.request(
            "POST",
            f"{url or lab.router_url(self.kube)}/v1/chat/completions",
            body=json.dumps(body),
            headers={"content-type": "application/json"},
            timeout=timeout,
            retries=False,
        )
        return Answer(number, got.status, got.data.decode(), time.monotonic(), got.headers.get("retry-after", ""))

    def sleep(self) -> dict[str, Any]:
        """What the PromptRoute tells of the group's sleep."""
        route = self.kube.get("promptroute", self.name) or {}
        found: dict[str, Any] = route.get("spec", {}).get("sleep", {})
        return found

    def doze(self) -> None:
        """Have the group fall asleep now, as if it had been idle: the PromptRoute remembers it.

        The time is so late that requests from now on wake the group, and none that came before.
        """
        told = {"spec": {"sleep": {**self.sleep(), "since": rfc3339(datetime.now(UTC) + IDLE / 2)}}}
        self.kube.run("patch", "promptroute", self.name, "--type=merge", "-p", json.dumps(told))

    def asleep(self, seconds: float = 60.0) -> None:
        """Wait until the group sleeps, and its last pod is gone."""

        def said() -> bool | None:
            return True if reason(self.kube, self.name, "Ready") == "Asleep" else None

        wait_for(said, "it to sleep", self.sleep, seconds)
        wait_for(lambda: True if not self.kube.list("pods", f"{names.LABEL_GROUP}={self.name}") else None, "no pod")

    def held(self) -> int:
        """Requests that the router holds for the group."""
        page = urllib3.request("GET", f"{lab.router_admin_url(self.kube)}/metrics", timeout=5).data.decode()
        label = f'promptgroup_router_wake_waiting{{group="{self.kube.namespace}/{self.name}"}} '
        return next((int(line.removeprefix(label)) for line in page.splitlines() if line.startswith(label)), 0)

    def rescaled(self) -> list[str]:
        """Sizes that the operator has told of in events."""
        events = [each for each in self.kube.list("events") if each.get("reason") == "SuccessfulRescale"]
        return [each.get("message", each.get("note", "")) for each in events]

    def generations(self) -> int:
        """Writes of the spec of the group's Deployment."""
        (found,) = self.kube.list("deployments", f"{names.LABEL_GROUP}={self.name}")
        return int(found["metadata"]["generation"])

    def cold(self) -> int:
        """Requests that met a cold prompt."""
        return cold(self.cluster.folder, self.kube.namespace, self.name)


def sleeper(**spec: Any) -> dict[str, Any]:
    made = group(NAME, PROMPTS["a"], sizing=SIZING, **spec)
    del made["spec"]["replicas"]
    return made


def batches(count: int, size: int) -> list[range]:
    """So many numbers, in their order."""
    return [range(first, min(count, first + size)) for first in range(0, count, size)]


@contextmanager
def clients(group: Sleeping, count: int, **asked: Any) -> Iterator[list[Future[Answer]]]:
    """So many clients, in batches that reach the router one after the other, before the operator wakes the group."""
    size = max(1, count // BATCHES)
    before = group.held()
    assert group.operator is not None
    with ThreadPoolExecutor(count) as pool:
        found: list[Future[Answer]] = []
        with stopped(group.operator):
            for batch in batches(count, size):
                found += [pool.submit(group.ask, number, **asked) for number in batch]
                wanted = before + len(found)
                wait_for(lambda: True if group.held() >= wanted or found[0].done() else None, "them to be held")  # noqa: B023
        yield found


@pytest.fixture
def group_asleep(cluster: LocalCluster, kube: Kubectl, no_operator: None) -> Iterator[Sleeping]:
    """A group that was warm once, and sleeps; its operator is a process of the test's own."""
    lab.install_router(kube)
    with operator_process(cluster, kube.namespace, quick=True) as (operator, _):
        found = Sleeping(cluster, kube, operator=operator)
        kube.apply(sleeper(args=ONE_BY_ONE))
        kube.wait_warm(NAME, "1/1")
        found.doze()
        found.asleep()
        yield found


def test_a_group_that_nobody_asks_falls_asleep(cluster: LocalCluster, kube: Kubectl, no_operator: None) -> None:
    lab.install_router(kube)
    found = Sleeping(cluster, kube)
    with operator_process(cluster, kube.namespace, quick=True):
        kube.apply(sleeper())
        kube.wait_warm(NAME, "1/1")
        routers_know(kube, NAME)
        assert found.ask().status == 200
        found.asleep(MINUTES)
        assert found.sleep()["since"]
        assert "New size: 0; reason: Asleep" in " ".join(found.rescaled())
        assert found.ask().status == 200
        kube.wait_condition(NAME, "Ready", "True", "Warm")
        wait_for(lambda: found.sleep().get("startSeconds"), "the start to be timed", found.sleep)
    assert found.cold() == 0


def test_two_hundred_clients_wake_a_group_once_and_are_answered_in_their_order(group_asleep: Sleeping) -> None:
    before = group_asleep.generations()
    with clients(group_asleep, CLIENTS) as asked:
        answers = [each.result() for each in asked]
    assert {each.status for each in answers} == {200}
    assert group_asleep.cold() == 0
    assert group_asleep.generations() == before + 1
    order = [each.number for each in sorted(answers, key=lambda each: each.at)]
    places = {number: place for place, number in enumerate(order)}
    size = CLIENTS // BATCHES
    means = [sum(places[number] for number in batch) / size for batch in batches(CLIENTS, size)]
    # of two batches that follow each other threads of the test may be late
    assert all(before < after for before, after in zip(means, means[2:], strict=False)), means


def test_a_request_that_has_gone_before_anybody_looks_wakes_the_group(group_asleep: Sleeping) -> None:
    with pytest.raises(urllib3.exceptions.TimeoutError):
        group_asleep.ask(timeout=0.1)
    group_asleep.kube.wait_warm(NAME, "1/1")


def test_so_does_one_that_came_while_the_operator_was_away(
    cluster: LocalCluster, kube: Kubectl, no_operator: None
) -> None:
    lab.install_router(kube)
    found = Sleeping(cluster, kube)
    with operator_process(cluster, kube.namespace, quick=True):
        kube.apply(sleeper(routing={"wakeTimeout": "2s"}))
        kube.wait_warm(NAME, "1/1")
        found.doze()
        found.asleep()
    answer = found.ask()
    assert answer.status == 503
    assert "whether the operator runs" in answer.body
    with operator_process(cluster, kube.namespace, quick=True):
        kube.wait_warm(NAME, "1/1")


def test_a_quota_that_forbids_the_pod_is_told_to_those_who_wait(group_asleep: Sleeping) -> None:
    kube = group_asleep.kube
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": str(len(kube.list("pods")))}},
    }
    kube.apply(quota)
    wait_for(lambda: (kube.get("resourcequota", "none") or {}).get("status", {}).get("hard"), "the quota to be counted")
    answer = group_asleep.ask()
    assert answer.status == 503
    assert "exceeded quota" in answer.body
    assert answer.retry_after
    kube.delete("resourcequota", "none")
    kube.wait_warm(NAME, "1/1", seconds=MINUTES)
    assert group_asleep.ask().status == 200


def test_no_request_is_lost_that_comes_as_the_last_replica_leaves(group_asleep: Sleeping) -> None:
    group_asleep.ask()
    stop = threading.Event()
    answers: list[Answer] = []

    def keep_asking(first: int) -> None:
        for number in itertools.count(first, 4):
            if stop.is_set():
                return
            answers.append(group_asleep.ask(number))

    threads = [threading.Thread(target=keep_asking, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            group_asleep.kube.wait_warm(NAME, "1/1")
            wanted = len(answers) + 10
            group_asleep.doze()
            wait_for(lambda: True if len(answers) >= wanted else None, "more answers", group_asleep.sleep)  # noqa: B023
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(answers) >= 50
    assert {each.status for each in answers} == {200}
    assert group_asleep.cold() == 0


def test_requests_that_wait_in_two_routers_are_all_answered(group_asleep: Sleeping) -> None:
    kube = group_asleep.kube
    before = group_asleep.generations()
    kube.scale("deployment", ROUTER, 2)

    def urls() -> list[str] | None:
        pods = kube.list("pods", f"app.kubernetes.io/name={ROUTER}")
        found = [f"http://{each['status']['podIP']}:{names.PORT_ROUTER}" for each in pods if is_ready(each)]
        return found if len(found) == 2 else None

    routers = wait_for(urls, "two routers")
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda number: group_asleep.ask(number, url=routers[number % 2]), range(20)))
    assert {each.status for each in answers} == {200}
    assert group_asleep.generations() == before + 1
    assert group_asleep.cold() == 0


def test_a_router_that_restarts_loses_those_whom_it_holds_and_they_are_served_when_they_try_again(
    group_asleep: Sleeping,
) -> None:
    kube = group_asleep.kube
    before = group_asleep.generations()
    kube.run("scale", "deployment", ROUTER, "--replicas=1")

    def only() -> str | None:
        routers = [pod["metadata"]["name"] for pod in kube.list("pods", f"app.kubernetes.io/name={ROUTER}")]
        return routers[0] if len(routers) == 1 else None

    router = wait_for(only, "one router")
    [node] = [item["metadata"]["name"] for item in kube.list("nodes")]
    kube.run("cordon", node)  # so that no replica is there before the router is gone
    try:
        with ThreadPoolExecutor(1) as pool:
            lost = pool.submit(group_asleep.ask)
            wait_for(lambda: True if group_asleep.held() or lost.done() else None, "it to be held")
            group_asleep.cluster.kill_pod(kube.namespace, router, "router")
            with pytest.raises(urllib3.exceptions.ProtocolError):
                lost.result()
    finally:
        kube.run("uncordon", node)

    def again() -> Answer | None:
        try:
            answer = group_asleep.ask(1)
        except urllib3.exceptions.HTTPError:
            return None  # the router does not listen yet
        return answer if answer.status == 200 else None

    wait_for(again, "an answer of the router that is new", group_asleep.sleep)
    assert group_asleep.generations() == before + 1
    assert group_asleep.cold() == 0


def test_the_sample_sleeps_and_wakes(cluster: LocalCluster, kube: Kubectl, no_operator: None) -> None:
    lab.install_router(kube)
    (sample,) = yaml.safe_load_all((SAMPLES / "sleep.yaml").read_text())
    found = Sleeping(cluster, kube, sample["metadata"]["name"])
    with operator_process(cluster, kube.namespace, quick=True):
        kube.apply(sample)
        kube.wait_warm(found.name, "1/1")
        found.doze()
        found.asleep()
        assert found.sleep()["wakeTimeoutSeconds"] == 480
        assert found.ask().status == 200
        wait_for(lambda: found.sleep().get("startSeconds"), "the start to be timed", found.sleep)


def test_a_request_of_a_guest_wakes_its_host(group_asleep: Sleeping) -> None:
    kube = group_asleep.kube
    kube.apply(guest(GUEST, PROMPTS["b"], NAME))
    kube.wait_condition(GUEST, "Ready", "True", "Asleep")

    def answered() -> bool | None:
        """The router may not have read the new prompt yet, which is no question of sleep."""
        answer = group_asleep.ask(name=GUEST)
        assert answer.status == 200 or "has not been read yet" in answer.body
        return True if answer.status == 200 else None

    wait_for(answered, "an answer", group_asleep.sleep)
    assert group_asleep.ask(1, name=NAME).status == 200
    assert group_asleep.cold() == 0
