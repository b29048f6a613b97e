"""README: releases that prove themselves. Under load without an end what was replaced goes, and verdicts are true."""

import re
import statistics
from collections.abc import Sequence

from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, pods, prompt, revision, slots, weights
from harness.images import Images
from harness.outcomes import Outcome
from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "endless"
BUSY = {"STANDIN_PREFILL_TOKENS_PER_SECOND": "2000", "STANDIN_STEP_MS": "30"}
"""Engines that ten new sessions a second keep so busy that their overflow is lent."""
POOL = {"sharing": "Pool"}
"""As groups are that say nothing of it."""
FIGURES = re.compile(r"([\d.]+)% of (\w+)[^,;]*, ([\d.]+)% with the old revision \(first turns by name, whole\)")
BUCKET = 10
"""Points that a figure may be off: the width of a bucket of the routers' histogram of cached shares."""
SECONDS = 120.0


def test_an_equal_prompt_is_promoted_though_clients_by_content_stream_and_those_by_name_do_not(
    cluster: Cluster, kubectl: Kubectl, images: Images
) -> None:
    name, url = "mixed", service(kubectl.namespace)

    def asked(letter: str) -> dict[str, object]:
        rollout = {"steps": [{"weight": 50, "pause": "2s"}], "judge": {"minRequests": 20}}
        slow = {"STANDIN_STEP_MS": "20"}
        return group(name, images, prompt(letter), replicas=1, env=slow, routing=POOL, rollout=rollout)

    kubectl.apply(asked("f"))
    kubectl.wait_warm(name, "1/1")
    before = revision(kubectl, name)
    # ten requests a second: of the old revision most are streams, whose first byte comes at once, of the new one none
    whole = Plan((url,), name, at_once=5, last=1, pause=0.3, streamed=False)
    streams = Plan((url,), system=prompt("f"), at_once=3, last=1, pause=0.3, tokens=4, streamed=True, seed=2)
    with (
        clients(cluster, images, kubectl, name, whole) as by_name,
        clients(cluster, images, kubectl, name, streams) as by_content,
    ):
        kubectl.apply(asked("g"))
        wait_for(
            lambda: True if weights(kubectl, name).get(before, 0) == 0 and revision(kubectl, name) != before else None,
            "the equal prompt to take over",
            lambda: kubectl.get("promptgroup", name),
            seconds=SECONDS,
        )
        log = by_name.outcomes()
        assert [each.error for each in [*log, *by_content.outcomes()] if each.error] == []
    after = revision(kubectl, name)

    def steps() -> list[str] | None:
        messages = [event["message"] for event in kubectl.list("events") if event["reason"] == "NotWorse"]
        return [message for message in messages if message.startswith(after)] or None

    [message] = wait_for(steps, "the event that tells of the step")
    failed, cached = FIGURES.findall(message)
    assert failed == ("0.0", "requests", "0.0")
    assert abs(float(cached[0]) - share(log, after)) <= BUCKET, message
    assert abs(float(cached[2]) - share(log, before)) <= BUCKET, message


def share(log: Sequence[Outcome], revision: str) -> float:
    """Return the share of prompts that a revision had in cache, in percent, by the engines' word."""
    return 100 * statistics.mean(each.cached / each.prompt for each in log if each.revision == revision)


def released(images: Images, letter: str) -> dict[str, object]:
    return group(NAME, images, prompt(letter), replicas=1, env=BUSY, routing=POOL, rollout={"retireAfter": "10s"})


def test_three_releases_in_a_row_leave_one_revision_with_replicas(
    cluster: Cluster, kubectl: Kubectl, images: Images
) -> None:
    kubectl.apply(released(images, "a"))
    kubectl.wait_warm(NAME, "1/1")
    plan = Plan((service(kubectl.namespace),), NAME, at_once=12, last=1, pause=0.3)
    left = lambda: {each["metadata"]["labels"]["promptgroup.dev/revision"] for each in pods(kubectl, NAME)}  # noqa: E731
    with clients(cluster, images, kubectl, NAME, plan) as running:
        for letter in "bcd":
            before = revision(kubectl, NAME)
            kubectl.apply(released(images, letter))

            def served(before: str = before) -> bool | None:
                now = revision(kubectl, NAME)
                return True if now != before and weights(kubectl, NAME).get(now) == 100 else None

            wait_for(served, f"prompt {letter} to serve", lambda: kubectl.get("promptgroup", NAME), seconds=SECONDS)
        wait_for(lambda: True if left() == {revision(kubectl, NAME)} else None, "one revision", left, seconds=SECONDS)
        assert [each.error for each in running.outcomes() if each.error] == []


def test_a_replica_goes_at_its_drain_timeout_whatever_still_runs_on_it(
    cluster: Cluster, kubectl: Kubectl, images: Images
) -> None:
    name = "drains"
    slow = {"STANDIN_STEP_MS": "100"}
    kubectl.apply(group(name, images, prompt("h"), env=slow, rollout={"drainTimeout": "4s"}))
    kubectl.wait_warm(name, "2/2")
    highest = max(slots(kubectl, name))
    # answers of fifteen seconds without pauses: when the first ones end, the next have just begun
    plan = Plan((service(kubectl.namespace),), name, at_once=6, last=2, pause=0.0, tokens=150, streamed=True)
    with clients(cluster, images, kubectl, name, plan) as running:
        assert highest in {each.served for each in running.outcomes()}
        since = len(running.outcomes())
        kubectl.scale("promptgroup", name, 1)
        left = lambda: [each["metadata"]["name"] for each in pods(kubectl, name)]  # noqa: E731
        wait_for(lambda: True if len(left()) == 1 else None, "the replica to go", left, seconds=SECONDS)
        assert highest not in {each.served for each in running.outcomes()[since:]}
