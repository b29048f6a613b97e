import pytest

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.observe.inference_pools import InferencePools
from promptgroup_operator.observe.unwatched import UnwatchedObjects
from promptgroup_operator.world.snapshot import NO_POOLS
from support.builders import group

WANTS = group(gateway={"inferencePool": "shared"})


class Server:
    """It has no pool, or none that the operator may see."""

    def __init__(self, status, *, unknown_kind=False):
        self.error = ClusterError("none", status=status, unknown_kind=unknown_kind)
        self.reads = 0

    def request(self, method, path):
        self.reads += 1
        raise self.error


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Server(404, unknown_kind=True), "NoCRD"),
        (Server(403), "NotAllowed"),
        (Server(404), None),
    ],
    ids=["the CRD is missing", "the role leaves it out", "there is none"],
)
def test_why_no_pool_can_be_seen_is_told(server, reason):
    seen = InferencePools(UnwatchedObjects(server)).of(WANTS)
    assert (seen.by_name, seen.problem and seen.problem.reason) == ({}, reason)


def test_a_group_that_wants_none_and_has_none_is_looked_at_once_until_it_comes_again():
    server = Server(404)
    pools = InferencePools(UnwatchedObjects(server))
    assert [pools.of(group()), pools.of(group())] == [NO_POOLS, NO_POOLS]
    assert server.reads == 1
    pools.forget(group().key)
    pools.of(group())
    assert server.reads == 2
