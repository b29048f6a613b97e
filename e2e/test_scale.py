"""README: one replica more moves at most 1/(n+1) of the sessions."""

import pytest

from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, prompt, rings, slots
from harness.images import Images
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl

# a replica that another test slows down is relieved of sessions, too
pytestmark = pytest.mark.alone

NAME = "scales"
SAMPLED = 30
"""Sessions whose rings are looked at."""


@pytest.fixture(scope="module")
def three(kubectl: Kubectl, images: Images) -> str:
    kubectl.apply(group(NAME, images, prompt("a"), replicas=3))
    kubectl.wait_warm(NAME, "3/3")
    return NAME


def test_one_replica_more_moves_few_sessions_and_fails_no_request(
    cluster: Cluster, kubectl: Kubectl, images: Images, three: str
) -> None:
    before, homes = slots(kubectl, three), rings(kubectl, three, SAMPLED)
    plan = Plan((service(kubectl.namespace),), three, at_once=16, last=4)
    with clients(cluster, images, kubectl, three, plan) as running, running.watched(settle=128) as seen:
        kubectl.scale("promptgroup", three, 4)
        kubectl.wait_warm(three, "4/4")
    assert unharmed(seen)
    after = slots(kubectl, three)
    assert before.items() <= after.items()
    assert set(seen.served) == set(after)
    for session, ring in rings(kubectl, three, SAMPLED).items():
        assert [slot for slot in ring if slot in before] == homes[session]
    # a session also leaves its replica because that is slow for a moment: the node is busy with many pods; by chance
    # three of four turns would
    assert seen.moved() <= plan.at_once / 4 + seen.requests / 8
