"""README: replicas leave when their requests have ended."""

from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import GROUP, group, prompt, slots
from harness.images import Images
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl, wait_for

SLOW = {"STANDIN_STEP_MS": "75"}
"""An engine whose answers take long: 400 tokens half a minute, longer than anything waits for a pod that goes."""


def test_replicas_that_leave_end_their_long_answers_first(cluster: Cluster, kubectl: Kubectl, images: Images) -> None:
    name = "shrinks"
    kubectl.apply(group(name, images, prompt("b"), replicas=3, env=SLOW))
    kubectl.wait_warm(name, "3/3")
    before = slots(kubectl, name)
    # without pauses, so that an answer has just begun in every session when the replica is taken
    plan = Plan((service(kubectl.namespace),), name, at_once=9, last=2, pause=0.0, tokens=400, streamed=True)
    with clients(cluster, images, kubectl, name, plan) as running, running.watched(settle=9) as seen:
        kubectl.scale("promptgroup", name, 2)
        left = lambda: [pod["metadata"]["name"] for pod in kubectl.list("pods", f"{GROUP}={name}")]  # noqa: E731
        wait_for(lambda: True if len(left()) == 2 else None, "a replica to be gone", left, seconds=170)
        kubectl.wait_warm(name, "2/2")
    assert unharmed(seen)
    (gone,) = before.keys() - slots(kubectl, name).keys()
    assert seen.served[gone] > 0
