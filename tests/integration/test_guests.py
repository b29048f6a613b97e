"""Guests on a real control plane: prompts that are warmed, routed and released on the replicas of another group."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import urllib3

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Task
from support.groups import PROMPTS, group, guest
from support.life import cold, unharmed
from support.load import Load, Seen, endless
from support.operators import REPLICAS, set_operators
from support.routed import routed, routers_know

pytestmark = pytest.mark.integration

HOST = "pool"
GUESTS = {"first": "b", "second": "c", "third": "d"}
"""Name of a guest → letter of its prompt."""


def bare(**env: str) -> dict[str, Any]:
    """A host of one replica that declares no prompt."""
    made = group(HOST, replicas=1, env=env)
    del made["spec"]["prompt"]
    return made


@dataclass(frozen=True, slots=True)
class Hosted:
    """A host with guests, and a load on each guest."""

    kube: Kubectl
    loads: tuple[Load, ...]

    def pods(self) -> set[str]:
        """Pods of the namespace that are engines and do not terminate."""
        return {each["metadata"]["uid"] for each in lab.engine_pods(self.kube, HOST)}

    def all_warm(self, warm: str) -> None:
        """Wait until each guest is warm on so many replicas."""
        for name in GUESTS:
            self.kube.wait_warm(name, warm)

    def proofs(self) -> dict[tuple[str, str], str]:
        """Guest and pod → the time of its proof, of the revision that serves."""
        found = {}
        for name in GUESTS:
            for each in (self.kube.get("promptroute", name) or {})["spec"]["guest"]["revisions"]:
                found |= {(name, proof["pod"]): proof["since"] for proof in each.get("warm", ())}
        return found

    @contextmanager
    def seen(self) -> Iterator[list[Seen]]:
        """What became of the requests of all guests within the context."""
        with ExitStack() as stack:
            yield [stack.enter_context(load.watched()) for load in self.loads]


@pytest.fixture(scope="module")
def hosted(cluster: LocalCluster) -> Iterator[Hosted]:
    with routed(cluster, "guests") as kube:
        kube.apply(group(HOST, PROMPTS["a"], replicas=2))
        kube.apply(*(guest(name, PROMPTS[letter]) for name, letter in GUESTS.items()))
        for name in (HOST, *GUESTS):
            kube.wait_warm(name, "2/2")
        routers_know(kube, HOST, *GUESTS)
        target = Target([lab.router_url(kube)], "tiny", groups={name: name for name in GUESTS})
        met_cold = lambda: cold(cluster.folder, "guests", HOST)  # noqa: E731
        with ExitStack() as stack:
            loads = tuple(
                stack.enter_context(
                    Load(target, endless(Task(name, PROMPTS[letter]), seed), met_cold, at_once=4, pause=0.2)
                )
                for (name, letter), seed in zip(GUESTS.items(), itertools.count(1, 10**6))
            )
            yield Hosted(kube, loads)


def test_guests_are_ready_without_a_pod_or_a_deployment_of_their_own(hosted: Hosted) -> None:
    kube = hosted.kube
    for name in GUESTS:
        kube.wait_condition(name, "Ready", "True", "Warm")
        assert kube.list("deployments", f"{names.LABEL_GROUP}={name}") == []
        assert kube.list("pods", f"{names.LABEL_GROUP}={name}") == []
    assert len(hosted.pods()) == 2


def test_a_release_makes_no_pod_and_loses_no_request(hosted: Hosted) -> None:
    kube, before = hosted.kube, hosted.pods()
    old = (kube.get("promptgroup", "first") or {})["status"]["fingerprint"]
    with hosted.seen() as seen:
        kube.apply(guest("first", PROMPTS["e"]))

        def taken_over() -> bool | None:
            listed = (kube.get("promptroute", "first") or {})["spec"]["revisions"]
            return True if {each["fingerprint"]: each["weight"] for each in listed}.get(old) == 0 else None

        wait_for(taken_over, "the new prompt to take over", lambda: kube.get("promptgroup", "first"))
        kube.wait_condition("first", "Ready", "True", "Warm")
        kube.wait_warm("first", "2/2")
    assert hosted.pods() == before
    assert all(map(unharmed, seen))


def test_a_release_in_steps_is_judged_by_what_routers_saw(hosted: Hosted) -> None:
    kube, before = hosted.kube, hosted.pods()
    seen_weights: set[int] = set()
    old = (kube.get("promptgroup", "second") or {})["status"]["fingerprint"]
    judge = {"minRequests": 10, "maxTtftRisePercent": 1000}
    with hosted.seen() as seen:
        kube.apply(guest("second", PROMPTS["f"], rollout={"steps": [{"weight": 50, "pause": "5s"}], "judge": judge}))

        def taken_over() -> bool | None:
            listed = (kube.get("promptroute", "second") or {})["spec"]["revisions"]
            weights = {each["fingerprint"]: each["weight"] for each in listed}
            seen_weights.update(weight for name, weight in weights.items() if name != old)
            return True if weights.get(old) == 0 else None

        wait_for(taken_over, "the canary to take over", lambda: kube.get("promptgroup", "second"), seconds=90)
        kube.wait_warm("second", "2/2")
    assert {50, 100} <= seen_weights
    assert hosted.pods() == before
    assert all(map(unharmed, seen))


def test_a_lost_replica_is_left_and_its_successor_is_warmed_for_every_guest(hosted: Hosted) -> None:
    kube = hosted.kube
    (victim, *_) = lab.engine_pods(kube, HOST)
    with hosted.seen() as seen:
        kube.delete("pod", victim["metadata"]["name"], wait=False)
        gone = victim["metadata"]["uid"]
        wait_for(lambda: True if gone not in hosted.pods() and len(hosted.pods()) == 2 else None, "another pod")
        kube.wait_warm(HOST, "2/2")
        hosted.all_warm("2/2")
    assert all(map(unharmed, seen))


def test_a_host_that_grows_and_shrinks_takes_its_guests_along(hosted: Hosted) -> None:
    kube = hosted.kube
    with hosted.seen() as seen:
        kube.scale("promptgroup", HOST, 3)
        kube.wait_warm(HOST, "3/3")
        hosted.all_warm("3/3")
    assert all(map(unharmed, seen))
    with hosted.seen() as seen:
        kube.scale("promptgroup", HOST, 2)
        wait_for(lambda: True if len(hosted.pods()) == 2 else None, "a replica to go")
        hosted.all_warm("2/2")
    assert all(map(unharmed, seen))


def test_proofs_survive_the_operator(hosted: Hosted, cluster: LocalCluster) -> None:
    hosted.all_warm("2/2")
    before = hosted.proofs()
    assert len(before) >= 6
    set_operators(cluster, 0)
    set_operators(cluster, REPLICAS)
    # a change that the new operator must have seen
    hosted.kube.apply(guest("third", PROMPTS["d"], warmup={"timeout": "6m"}))
    generation = (hosted.kube.get("promptgroup", "third") or {})["metadata"]["generation"]
    wait_for(
        lambda: (hosted.kube.get("promptgroup", "third") or {})["status"]["observedGeneration"] == generation or None,
        "the operator to see the change",
    )
    hosted.all_warm("2/2")
    assert hosted.proofs() == before


def test_a_guest_tells_its_own_hit_rate_and_a_busy_one_gets_more_replicas(hosted: Hosted) -> None:
    kube = hosted.kube
    kube.apply(guest("third", PROMPTS["d"], placement={"minReplicas": 1, "maxReplicas": 2}))

    def found() -> bool | None:
        status = {name: (kube.get("promptgroup", name) or {})["status"] for name in GUESTS}
        rates = [int(each.get("hitRate", "0%").rstrip("%")) for each in status.values()]
        return True if min(rates) > 50 and status["third"]["warm"] == "2/2" else None

    wait_for(found, "hit rates of guests", lambda: kube.get("promptgroup", "third"), seconds=180)

    def tells(name: str) -> bool | None:
        """True once the condition has the rate, whatever its reason: tests before have released and moved guests."""
        message = kube.condition(name, "CacheEffective")["message"]
        return True if "of prompt tokens were found in cache" in message else None

    for name in GUESTS:
        wait_for(partial(tells, name), "the condition to tell the hit rate", partial(kube.get, "promptgroup", name))


def test_a_host_without_a_prompt_serves_what_nobody_declares_and_rolls_without_harm(
    cluster: LocalCluster, crds: None
) -> None:
    set_operators(cluster, REPLICAS)
    with routed(cluster, "bare-host") as kube:
        kube.apply(bare())
        kube.wait_warm(HOST, "1/1")
        assert kube.condition(HOST, "PrefixWarm")["reason"] == "NoPromptDeclared"
        kube.apply(guest("only", PROMPTS["b"]))
        kube.wait_warm("only", "1/1")
        routers_know(kube, HOST, "only")
        url = f"{lab.router_url(kube)}/v1/chat/completions"
        for model in ("tiny", HOST):
            said = [{"role": "system", "content": "Nobody declared this."}, {"role": "user", "content": "Hello"}]
            answer = urllib3.request("POST", url, json={"model": model, "messages": said, "max_tokens": 2}, timeout=30)
            assert answer.status == 200, answer.data
        target = Target([lab.router_url(kube)], "tiny", groups={"only": "only"})
        met_cold = lambda: cold(cluster.folder, "bare-host", HOST)  # noqa: E731
        before = {each["metadata"]["uid"] for each in lab.engine_pods(kube, HOST)}
        with Load(target, endless(Task("only", PROMPTS["b"])), met_cold, at_once=4, pause=0.2) as load:
            with load.watched() as seen:
                kube.apply(bare(ANOTHER="engine"))

                def rolled() -> bool | None:
                    now = {each["metadata"]["uid"] for each in lab.engine_pods(kube, HOST)}
                    return True if len(now) == 1 and not now & before else None

                wait_for(rolled, "another engine", lambda: kube.get("promptgroup", HOST))
                kube.wait_warm("only", "1/1")
            assert unharmed(seen)


def test_a_guest_without_its_host_says_so_and_is_sent_nowhere(cluster: LocalCluster, kube: Kubectl, crds: None) -> None:
    set_operators(cluster, REPLICAS)
    kube.apply(guest("alone", PROMPTS["f"]))
    found = kube.wait_condition("alone", "ResolvedRefs", "False", "HostNotFound")
    assert "spec.engineFrom.promptGroup" in found["message"]
    nested = guest("nested", PROMPTS["g"])
    nested["spec"]["engineFrom"] = {"promptGroup": "alone"}
    kube.apply(nested)
    assert "name pool instead" in kube.wait_condition("nested", "Accepted", "False", "HostIsGuest")["message"]
    kube.apply(group(HOST, PROMPTS["a"], replicas=1))
    kube.wait_warm("alone", "1/1")
    kube.delete("promptgroup", HOST)
    kube.wait_condition("alone", "Ready", "False", "HostNotFound")

    def ready_slots() -> bool | None:
        listed = (kube.get("promptroute", "alone") or {})["spec"]["revisions"]
        return True if not any(each.get("slots") for each in listed) else None

    wait_for(ready_slots, "the route to lead nowhere", lambda: kube.get("promptroute", "alone"))
