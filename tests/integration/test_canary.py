"""Releases in steps on a real control plane: judged by what the routers saw, promoted, taken back, kept."""

from collections.abc import Iterator
from typing import Any

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group
from support.load import sessions_by_name
from support.routed import routed, routers_know

pytestmark = pytest.mark.integration

NAME = "canary"
PAUSE = "5s"
"""Shortest time of a step: who polls sees each of them, on a busy machine as well."""
STEPS: dict[str, Any] = {
    "steps": [{"weight": 30, "pause": PAUSE}, {"weight": 60, "pause": PAUSE}],
    "retireAfter": "10s",
    "judge": {"minRequests": 20, "maxTtftRisePercent": 100},
}


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    """A namespace with a router and one group of three replicas."""
    with routed(cluster, "canary") as kubectl:
        kubectl.apply(canary("a"))
        kubectl.wait_warm(NAME, "3/3")
        routers_know(kubectl, NAME)
        yield kubectl


def canary(letter: str, step: int = 30) -> dict[str, Any]:
    """A revision whose first token comes after `step` ms and little work: a busy machine cannot double that."""
    return group(NAME, PROMPTS[letter], replicas=3, env={"STANDIN_STEP_MS": str(step)}, rollout=STEPS)


def weights(kube: Kubectl) -> dict[str, int]:
    route = kube.get("promptroute", NAME) or {"spec": {"revisions": []}}
    return {each["fingerprint"]: each["weight"] for each in route["spec"]["revisions"]}


def replicas(kube: Kubectl) -> int:
    """Pods that do not terminate."""
    return len(lab.engine_pods(kube, NAME))


def fingerprint(kube: Kubectl) -> str:
    return str((kube.get("promptgroup", NAME) or {})["status"]["fingerprint"])


def uids(kube: Kubectl, revision: str) -> set[str]:
    pods = lab.engine_pods(kube, NAME)
    return {each["metadata"]["uid"] for each in pods if each["metadata"]["name"].startswith(f"{NAME}-{revision[:8]}-")}


def templates(kube: Kubectl, revision: str) -> set[str]:
    """Pod templates of the revision's pods."""
    pods = lab.engine_pods(kube, NAME)
    own = (each["metadata"] for each in pods if each["metadata"]["name"].startswith(f"{NAME}-{revision[:8]}-"))
    return {each["labels"]["pod-template-hash"] for each in own}


def version(kube: Kubectl, revision: str) -> str:
    return str((kube.get("deployment", f"{NAME}-{revision[:8]}") or {})["metadata"]["resourceVersion"])


def test_a_canary_goes_through_its_steps_and_takes_over(kube: Kubectl) -> None:
    old = fingerprint(kube)
    seen: set[int] = set()
    most = 0

    def promoted() -> bool | None:
        nonlocal most
        most = max(most, replicas(kube))
        found = weights(kube)
        seen.update(weight for each, weight in found.items() if each != old)
        return True if found.get(old) == 0 else None

    with sessions_by_name(lab.router_url(kube), NAME, batch=12, turns=2, concurrency=4) as outcomes:
        kube.apply(canary("b"))
        wait_for(promoted, "the canary to take over", lambda: kube.get("promptgroup", NAME), seconds=120)
        kube.wait_warm(NAME, "3/3", seconds=120)
    assert {30, 60, 100} <= seen
    assert most <= 4
    assert [each.error for each in outcomes if each.failed] == []
    new = fingerprint(kube)
    assert {each.served_by.split("/")[2] for each in outcomes} >= {old[:8], new[:8]}


def test_a_canary_on_a_slower_engine_is_rolled_back_and_no_pod_of_the_old_one_is_replaced(kube: Kubectl) -> None:
    old = fingerprint(kube)
    before, template = uids(kube, old), templates(kube, old)
    kube.apply(canary("c", step=240))
    with sessions_by_name(lab.router_url(kube), NAME, batch=12, turns=2, concurrency=4) as outcomes:
        found = kube.wait_condition(NAME, "Degraded", "True", "RolledBack")
        wait_for(lambda: True if weights(kube).get(old) == 100 else None, "the old revision to have it all")
    assert "TimeToFirstToken" in found["message"]
    assert "ms with the old revision" in found["message"]
    # one may have made room, if the canary was found to be slow in its second step only; it comes back as it was
    assert len(uids(kube, old) & before) >= 2
    assert templates(kube, old) == template
    assert [each.error for each in outcomes if each.failed] == []
    kube.wait_condition(NAME, "Progressing", "False")
    assert fingerprint(kube) == old  # status speaks of what serves
    kube.wait_condition(NAME, "Ready", "True")
    kube.wait_warm(NAME, "3/3")
    (record,) = [
        each
        for each in kube.list("deployments", "promptgroup.dev/group=canary")
        if "promptgroup.dev/rolled-back" in each["metadata"]["annotations"]
    ]
    new = str(record["metadata"]["annotations"]["promptgroup.dev/fingerprint"])
    wait_for(lambda: True if not uids(kube, new) else None, "the canary to go", lambda: lab.engine_pods(kube, NAME))
    # the old revision keeps its pod template, and that is no difference to write again and again
    kube.rolled_out(f"{NAME}-{old[:8]}")  # nobody writes its status any more
    before_look = version(kube, old)
    kube.patch("promptgroup", NAME, {"spec": {"warmup": {"timeout": "6m"}}})
    kube.wait_condition(NAME, "Degraded", "True", "RolledBack")
    assert version(kube, old) == before_look
    # the old prompt and the old engine again: nothing is released, nothing is replaced
    kube.apply(canary("b"))
    kube.wait_warm(NAME, "3/3")
    assert fingerprint(kube) == old
    assert len(uids(kube, old) & before) >= 2


def test_the_prompt_before_is_found_in_the_history(kube: Kubectl) -> None:
    kube.apply(canary("b"))
    kube.wait_warm(NAME, "3/3")

    def retired() -> str | None:
        """Return the name of the Deployment whose revision was replaced, once it has no replica."""
        made = kube.list("deployments", "promptgroup.dev/group=canary")
        records = [each for each in made if each["spec"]["replicas"] == 0]
        names = [
            each["metadata"]["name"]
            for each in records
            if "promptgroup.dev/rolled-back" not in each["metadata"]["annotations"]
        ]
        return names[0] if names else None

    name = wait_for(retired, "the first prompt to retire", lambda: kube.list("deployments"))
    uid = kube.get("deployment", name)["metadata"]["uid"]  # type: ignore[index]
    calm = canary("a")
    calm["spec"]["rollout"] = {"retireAfter": "2s"}
    kube.apply(calm)
    kube.wait_warm(NAME, "3/3", seconds=120)
    found = kube.get("deployment", name)
    assert found is not None
    assert (found["metadata"]["uid"], found["spec"]["replicas"]) == (uid, 3)
