"""README: releases that prove themselves. A prompt of equal worth is released twenty times, and never rolled back.

Clients are mixed: whole answers and streams by the group's name, and streams that bring one of the two prompts, which
is the new one in every second release. The group is a guest, whose release takes no new pod.
"""

from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic

from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, prompt, revision, weights
from harness.images import Images
from promptgroup_local.kubectl import Kubectl, wait_for

HOST, NAME = "pool", "equal"
RELEASES = 20
STEADY = {"STANDIN_STEP_MS": "20"}
ROLLOUT = {"steps": [{"weight": 50, "pause": "1s"}], "judge": {"minRequests": 20}, "retireAfter": "5s"}
SECONDS = 240.0
"""Longest release: its step needs twenty samples of each revision, and more where a figure differs by chance."""


def guest(letter: str) -> dict[str, object]:
    return {
        "apiVersion": "promptgroup.dev/v1alpha1",
        "kind": "PromptGroup",
        "metadata": {"name": NAME},
        "spec": {"engineFrom": {"promptGroup": HOST}, "prompt": {"system": prompt(letter)}, "rollout": ROLLOUT},
    }


def test_an_equal_prompt_is_released_twenty_times_without_a_false_rollback(
    cluster: Cluster, kubectl: Kubectl, images: Images, record_property: Callable[[str, object], None]
) -> None:
    kubectl.apply(group(HOST, images, prompt("a"), replicas=2, env=STEADY), guest("f"))
    kubectl.wait_warm(NAME, "2/2")
    url = service(kubectl.namespace)
    plans = (
        Plan((url,), NAME, at_once=5, last=1, pause=0.3, streamed=False, seed=1),
        Plan((url,), NAME, at_once=3, last=3, pause=0.3, tokens=8, streamed=True, seed=2),
        Plan((url,), system=prompt("f"), at_once=3, last=1, pause=0.3, tokens=4, streamed=True, seed=3),
    )
    taken: list[float] = []
    with ExitStack() as stack:
        running = [stack.enter_context(clients(cluster, images, kubectl, NAME, plan)) for plan in plans]
        for number in range(RELEASES):
            before, start = revision(kubectl, NAME), monotonic()
            kubectl.apply(guest("gf"[number % 2]))

            def served(before: str = before) -> bool | None:
                assert kubectl.condition(NAME, "Degraded").get("reason") != "RolledBack"
                now = revision(kubectl, NAME)
                return True if now != before and weights(kubectl, NAME).get(now) == 100 else None

            wait_for(served, f"release {number}", lambda: kubectl.get("promptgroup", NAME), seconds=SECONDS)
            taken.append(monotonic() - start)
        outcomes = [outcome for client in running for outcome in client.outcomes()]
    record_property("answers", len(outcomes))
    record_property("seconds of each release", [round(seconds) for seconds in taken])
    assert [outcome.error for outcome in outcomes if outcome.error] == []
